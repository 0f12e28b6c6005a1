"""Follows a table into PostgreSQL and kills itself between PostgreSQL's commit and Spark's."""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import DataFrame, SparkSession

from tidelog.streaming import Feed, capture


def main(table: str, connect: str, checkpoint: str) -> None:
    """Apply one batch and die."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    sink = capture.PostgresSink(connect, "numbers", keys=["n"])

    def die_after(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        os.kill(os.getpid(), signal.SIGKILL)

    feed = Feed(spark, table, changes="cdc").foreachBatch(die_after)
    feed.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
