"""A year of flights, replayed day by day: `make demo`. See demo.py."""
