"""The data source behind `format("tidelog")`: batch reads, the change feed, and batch writes."""
