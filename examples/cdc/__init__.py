"""The CDC example: tables that follow a PostgreSQL database through Debezium and Kafka; `demo.py` runs it.

`services.py` runs Kafka and Debezium alone, for the guide "Change data capture".
"""
