"""A Spark Connect server whose clients have tidelog: a Python process with Spark's JVM, which calls `register`.

    python serve.py        until SIGTERM or SIGINT

Its settings are those of spark-defaults.conf in the folder SPARK_CONF_DIR.
"""

import os
import signal
import sys
from threading import Event

from pyspark.sql import SparkSession

from tidelog import register


def main() -> None:
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    # The Python of Spark's tasks, and of the batch functions of clients.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("tidelog-connect").getOrCreate()
    register(spark)
    print("ready", flush=True)
    while not stopped.wait(5.0):
        spark.conf.get("spark.app.id")  # fails when the JVM has ended; systemd or Docker then starts both again
    spark.stop()


if __name__ == "__main__":
    main()
