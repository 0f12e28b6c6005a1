"""A year of flights, replayed day by day: `make demo`. Start at demo.py."""
