"""The CDC example: tables that follow a PostgreSQL database through Debezium and Kafka; `demo.py` runs it."""
