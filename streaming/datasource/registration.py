"""Making `format("tidelog")` known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidelog.streaming.datasource.source import TidelogDataSource
from tidelog.streaming.executors.running_jvm import require_jvm
from tidelog.streaming.executors.session import context_of


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to `spark`. Raises PrerequisiteError where Spark is too old, or is Connect.

    On a local master Spark's Python workers are made to run this interpreter: by default Spark takes the `python3`
    that stands first on PATH, which may not have tidelog installed. On a cluster set `PYSPARK_PYTHON` yourself.
    """
    require_jvm()
    context_of(spark)
    spark.dataSource.register(TidelogDataSource)
