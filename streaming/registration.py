"""Making `format("tidelog")` known to a Spark session."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from tidelog.streaming.prerequisites import require_spark
from tidelog.streaming.source import TidelogDataSource


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to `spark`. Raises PrerequisiteError where Spark is too old.

    On a local master Spark's Python workers are made to run this interpreter: by default Spark takes the `python3`
    that stands first on PATH, which may not have tidelog installed. On a cluster set `PYSPARK_PYTHON` yourself.
    """
    require_spark(spark.version)
    context = spark.sparkContext
    if (context.master or "").startswith("local") and context.pythonExec != sys.executable:
        context.pythonExec = sys.executable
    spark.dataSource.register(TidelogDataSource)
