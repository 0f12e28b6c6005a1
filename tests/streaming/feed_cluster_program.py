"""Follow a table in a separate Spark, in each of two ways.

python feed_cluster_program.py MASTER FOLDER

Each run ends at the newest version. Rows are written to FOLDER/WAY-RUN.json, one in each line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.streaming.cluster_session import cluster_session
from tidelog.log import Table
from tidelog.streaming import Feed, register


def main(master: str, folder: str) -> None:
    spark = cluster_session(master, f"{folder}/spark")
    register(spark)
    table = Table.open(f"{folder}/table")
    for run in range(2):
        follow(spark, table.path, Path(folder), run)
        table.update("n < 5", {"n": "n + 100"})
        table.delete("n = 7")
        table.compact()
    spark.stop()


def follow(spark: SparkSession, path: str, folder: Path, run: int) -> None:
    """Read what is new as a stream of `format("tidelog")`, and with a `Feed`."""

    def keep(way: str, rows: DataFrame) -> None:
        with (folder / f"{way}-{run}.json").open("a") as file:
            file.writelines(f"{row}\n" for row in rows.drop("_commit_timestamp").toJSON().collect())

    stream = spark.readStream.format("tidelog").option("changes", "cdc").option("initialSnapshot", "true").load(path)
    feed = Feed(spark, path, changes="cdc", initial_snapshot=True)
    writers = {
        "format": stream.writeStream.foreachBatch(lambda rows, _: keep("format", rows)),
        "feed": feed.foreachBatch(lambda rows, _: keep("feed", rows)),
    }
    for way, writer in writers.items():
        query = writer.option("checkpointLocation", str(folder / f"{way}-cp")).trigger(availableNow=True).start()
        query.awaitTermination()
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
