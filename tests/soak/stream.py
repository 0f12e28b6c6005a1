"""A program that is killed: a stream of numbered rows into the table, by tidelog's sink. When asked to, it finishes.

python -m tests.soak.stream FOLDER NAME
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.shared.small_spark import small_spark
from tests.soak.folder import Folder
from tests.soak.rows import stream_columns
from tests.soak.settings import STREAMS, Settings
from tidelog.streaming import Sink

# The heap is as large at the start as it can become, so that growth of the process is growth of something else.
STEADY_JVM = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms512m -XX:+AlwaysPreTouch",
    # Spark keeps little for its web page, so that this memory is full early in a long run.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
}
# One stream writes in the driver, the other by Spark's own writer.
_WRITERS = dict(zip(STREAMS, ("driver", "spark"), strict=True))
_LOOK_S = 0.1


def main(root: str, name: str) -> None:
    folder = Folder(Path(root))
    settings = folder.settings
    spark = small_spark(folder.scratch / name, f"soak {name}", STEADY_JVM)
    writer = _writer(spark, folder, name, settings)
    query = writer.trigger(processingTime=f"{settings.batch_s} seconds").start()
    while not folder.request(name).exists():
        if query.awaitTermination(_LOOK_S):  # type: ignore[arg-type] # PySpark takes fractions
            raise AssertionError("the query ended without a request")
    while query.status["isTriggerActive"]:
        time.sleep(_LOOK_S)
    query.stop()
    # A batch that had begun is completed here.
    writer.trigger(availableNow=True).start().awaitTermination()


def _writer(spark: SparkSession, folder: Folder, name: str, settings: Settings) -> DataStreamWriter:
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", settings.batch_rows)
        .option("numPartitions", 1)
        .option("startTimestamp", 0)
        .load()
    )
    rows = source.selectExpr(*stream_columns(name, settings.part_rows))
    sink = Sink(str(folder.table), name=name, writer=_WRITERS[name])
    return rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder.checkpoint(name)))


def newest_batch(folder: Folder, name: str) -> int:
    """The newest micro-batch that a query has completed, as Spark's checkpoint says; -1 before the first."""
    commits = folder.checkpoint(name) / "commits"
    return max((int(file.name) for file in commits.glob("[0-9]*")), default=-1)


def streamed_rows(folder: Folder, name: str) -> int:
    """How many rows the batches had that the stream has completed, as Spark's checkpoint says."""
    newest = newest_batch(folder, name)
    if newest < 0:
        return 0
    offset = (folder.checkpoint(name) / "offsets" / str(newest)).read_text(encoding="utf-8").splitlines()[-1]
    return int(json.loads(offset)["offset"])


if __name__ == "__main__":
    main(*sys.argv[1:])
