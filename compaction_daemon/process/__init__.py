"""The process that keeps many tables compact.

- `daemon`: the loop: which tables are due, a look at each, many at a time, and a step for each
- `watched_tables`: the tables of a daemon, those that were named and those that searches find, and when each is due
- `table_step`: one step for one table, within the bytes of an hour, and what it did
- `daemon_status`: what a daemon knows about its tables, as values
- `kept_leases`: the leases that a daemon keeps from one step to the next
"""
