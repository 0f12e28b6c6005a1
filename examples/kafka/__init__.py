"""Kafka into a table, and its changes back into Kafka, with crashes: `make demo-kafka`. Start at demo.py."""
