"""A small Spark session with the Kafka connector, for one of the demo's programs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from examples.kafka.folder import Folder
from examples.kafka.jars import connector_jars
from examples.shared.small_spark import small_spark


def spark_session(folder: Folder, name: str) -> SparkSession:
    """A session with `format("kafka")` and `format("tidelog")`."""
    return small_spark(folder.scratch / name, name, {"spark.jars": ",".join(map(str, connector_jars()))})
