"""A small Spark session with the Kafka connector and without console output, for one of the demo's programs."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from examples.kafka.folder import Folder
from examples.kafka.jars import connector_jars
from tidelog.streaming import register

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # The batches are small and the JVM lives for a minute, so the optimizing compiler does not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Nor does compiling a batch's expressions, which are long and evaluate a few hundred records.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # On a local disk Spark's default manager forks about forty processes per micro-batch (readlink and chmod).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def spark_session(folder: Folder, name: str) -> SparkSession:
    """A session with `format("kafka")` and `format("tidelog")`."""
    # By default Spark runs the first `python3` on PATH, which may not have tidelog installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName(f"tidelog kafka {name}")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = (
        builder.config("spark.jars", ",".join(map(str, connector_jars())))
        .config("spark.local.dir", str(folder.scratch / name))
        .getOrCreate()
    )
    register(spark)
    return spark
