"""Write a stream from a folder of files, or the changes of a table, to a table until they are used up; the test kills
this program.

It reports its progress on stdout: `streaming`, then `batch` and `committed` around each call of the sink, and finally
`drained`.

python stream_writer.py INPUT TABLE CHECKPOINT SEED
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples.shared.small_spark import SETTINGS
from tidelog.streaming import Sink, register


def main(folder: str, table: str, checkpoint: str, seed: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config(map={**SETTINGS})
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sink = Sink(table, properties={"delta.checkpointInterval": 10})
    chance = random.Random(seed)

    def function(batch: DataFrame, number: int) -> None:
        print("batch", flush=True)
        sink(batch, number)
        print("committed", flush=True)
        # The commit is durable, but Spark has not recorded it: many kills should happen here.
        time.sleep(chance.uniform(0, 0.4))

    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    if Path(folder, "_delta_log").exists():
        register(spark)
        stream = reader.changes(f"tidelog.`{folder}`").select("n")
    else:
        stream = reader.schema("n long").parquet(folder)
    writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    print("streaming", flush=True)
    query.awaitTermination()
    print("drained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
