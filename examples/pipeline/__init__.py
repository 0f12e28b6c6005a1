"""A Spark Declarative Pipeline whose tables are tidelog's: `make demo-pipeline`. Start at demo.py."""
