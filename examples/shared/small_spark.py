"""A small Spark session without console output, for a program that a demo starts and kills."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from tidelog.streaming import register

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # The batches are small and the JVM lives for a minute, so the optimizing compiler does not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Nor does compiling a batch's expressions, which evaluate a few hundred records.
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


def small_spark(scratch: Path, name: str, further: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """A session with `format("tidelog")` and the `further` settings, with its scratch space in `scratch`."""
    # By default Spark runs the first `python3` on PATH, which may not have tidelog installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName(f"tidelog {name}")
    for key, value in {**_SETTINGS, "spark.local.dir": str(scratch), **further}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
