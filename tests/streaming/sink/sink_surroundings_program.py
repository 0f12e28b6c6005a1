"""Write a stream in a Spark with a small `maxResultSize` and without settings for the workers' interpreter.

python sink_surroundings_program.py INPUT TABLE CHECKPOINT WRITER
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession

from examples.shared.small_spark import SETTINGS
from tidelog.streaming import Sink


def main(folder: str, table: str, checkpoint: str, writer: str) -> None:
    os.environ.pop("PYSPARK_PYTHON", None)
    os.environ.pop("PYSPARK_DRIVER_PYTHON", None)
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map={**SETTINGS})
        .config("spark.driver.memory", "512m")
        .config("spark.driver.maxResultSize", "1m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sink = Sink(table, mode="upsert", keys=["n"], writer=writer)

    def function(batch: DataFrame, number: int) -> None:
        try:
            sink(batch, number)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            raise
        if sink.last is not None:
            print(sink.last.writer, sink.last.rows, flush=True)

    stream = spark.readStream.schema("n long, text string").option("maxFilesPerTrigger", 1).parquet(folder)
    writing = stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
    writing.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
