"""A small Spark session without console output whose JVM always ends with the block."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from examples.flights.folder import Folder
from examples.flights.interrupts import Interrupts
from examples.flights.source import DAYS
from tidelog.streaming import register

_END_JVM_S = 5

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "tidelog flights",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    # The batches are small and the JVM lives for two minutes, so the optimizing compiler does not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # On a local disk Spark's default manager forks about forty processes per micro-batch (readlink and chmod).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Keep all batches of a run, so that their times can be read at the end.
    "spark.sql.streaming.numRecentProgressUpdates": str(2 * DAYS),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(folder: Folder, interrupts: Interrupts) -> Iterator[SparkSession]:
    """A session with `format("tidelog")` that logs to a file; its queries and its JVM end with the block."""
    # By default Spark runs the first `python3` on PATH, which may not have tidelog installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    shutil.rmtree(folder.scratch, ignore_errors=True)
    conf = SparkConf().setAll([*_SETTINGS.items(), ("spark.local.dir", str(folder.scratch))])
    launch: Any = launch_gateway  # no type annotations
    with (folder.logs / "spark.log").open("ab") as log:
        gateway = launch(conf, {"stdout": log, "stderr": log})
    try:
        # Not in the main thread, where Spark would replace the SIGINT handler.
        spark = interrupts.attend(lambda: _start(conf, gateway))
        yield spark
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    finally:
        _end(gateway.proc)
        shutil.rmtree(folder.scratch, ignore_errors=True)


def _start(conf: SparkConf, gateway: Any) -> SparkSession:
    SparkContext(conf=conf, gateway=gateway)
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    return spark


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """The JVM ends when its standard input closes. If it does not, killing it loses nothing."""
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(_END_JVM_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
