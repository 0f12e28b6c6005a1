"""A program that is killed: a stream from a folder of files into a sink, until the folder is used up.

It says on stdout how far it has come: `streaming`; `batch` and `committed` around the sink's work; `drained`.

python stream_writer.py INPUT TABLE CHECKPOINT SEED
"""

from __future__ import annotations

import os
import random
import sys
import time

from pyspark.sql import DataFrame, SparkSession

from tidelog.streaming import Sink


def main(folder: str, table: str, checkpoint: str, seed: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        # A short life: compiling well would cost more than it gives.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sink = Sink(table, properties={"delta.checkpointInterval": 10})
    chance = random.Random(seed)

    def function(batch: DataFrame, number: int) -> None:
        print("batch", flush=True)
        sink(batch, number)
        print("committed", flush=True)
        # The commit is durable and Spark has not noted it yet: many kills shall come here.
        time.sleep(chance.uniform(0, 0.4))

    stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).parquet(folder)
    writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    print("streaming", flush=True)
    query.awaitTermination()
    print("drained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
