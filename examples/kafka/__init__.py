"""Kafka into a table, and its changes back into Kafka, with interruptions: `make demo-kafka`. See demo.py."""
