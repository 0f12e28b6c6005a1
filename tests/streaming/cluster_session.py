"""A session on a local cluster: a driver, and executors in processes of their own."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from examples.shared.small_spark import SETTINGS
from tests.cluster.standalone import JAVA_OPTIONS


def cluster_session(master: str, local_dir: str, **settings: str) -> SparkSession:
    """A session whose executors run this interpreter and import from this checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .config(map={**SETTINGS})
        .config("spark.executor.extraJavaOptions", " ".join(JAVA_OPTIONS))
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.local.dir", local_dir)
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
