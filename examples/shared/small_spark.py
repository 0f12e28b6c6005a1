"""A small Spark session without console output, for a program that a demo starts and kills."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyspark
from pyspark.sql import SparkSession

from tidelog.streaming import register

# For a session on loopback with short queries over few rows. The tests' sessions have them, too.
SETTINGS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Short queries gain nothing from the second compiler, and pay for it with half of their CPU time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Compiling a plan takes longer than running it over a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_STREAMING = "org.apache.spark.sql.execution.streaming"
_CHECKPOINTING = _STREAMING if pyspark.__version__.startswith("4.0.") else f"{_STREAMING}.checkpointing"
# On a local disk Spark's default manager forks about forty processes per micro-batch (readlink and chmod).
FEW_FORKS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}
_FURTHER = {"spark.driver.memory": "512m", **FEW_FORKS}


def small_spark(scratch: Path, name: str, further: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """A session with `format("tidelog")` and the `further` settings, with its scratch space in `scratch`."""
    # By default Spark runs the first `python3` on PATH, which may not have tidelog installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName(f"tidelog {name}")
    spark = builder.config(map={**SETTINGS, **_FURTHER, "spark.local.dir": str(scratch), **further}).getOrCreate()
    register(spark)
    return spark
