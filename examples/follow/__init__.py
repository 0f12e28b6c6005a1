"""A second table that follows a table with updates and deletes: `make demo-follow`. Start at demo.py; the part to copy
is follower.py.
"""
