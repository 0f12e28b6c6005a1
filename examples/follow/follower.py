"""A program that the demo kills at any moment: it keeps a second table as the first one is. Copy it into yours.

python -m examples.follow.follower FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from examples.follow.folder import Folder
from examples.shared.departures import KEY
from examples.shared.small_spark import small_spark
from tidelog.log import Table
from tidelog.streaming import Sink

_INTERVAL = "200 milliseconds"
# Spark deletes older offsets otherwise, and the demo looks at all of them in the end.
_KEPT_OFFSETS = 100_000


class Apply:
    """A batch function that applies a micro-batch of changes to a table, exactly once.

    A micro-batch can hold several changes of a key. The last one counts: that of the newest commit, and within a commit
    the row that lives after it. Such a commit deletes a key and inserts it again, as an update does on a table without
    change files, or an update of the key itself. So the image before an update is a row that is gone, like a deleted
    one. The keys of the first table must be unique.
    """

    def __init__(self, path: str, keys: Sequence[str]) -> None:
        self.sink = Sink(
            path, mode="upsert", keys=keys, order_by=["_commit_version", "_lives"], delete_where="NOT _lives"
        )

    def __call__(self, changes: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch; Spark calls this. One that it replays after a crash is skipped."""
        lives = F.col("_change_type").isin("insert", "update_postimage")
        self.sink(changes.withColumn("_lives", lives).drop("_change_type", "_commit_timestamp"), batch_id)


def changes_of(spark: SparkSession, path: str) -> DataFrame:
    """The table as it is when the query first starts, then each change of it."""
    return (
        spark.readStream.format("tidelog").option("changes", "cdc").option("initialSnapshot", "true").load(path)
    )  # fmt: skip - an option a line


def main(root: str) -> None:
    folder = Folder(Path(root))
    table, copy = str(folder.table), str(folder.copy)
    Table.create(copy, Table.open(table).schema, properties={"tidelog.primaryKey": KEY}, exist_ok=True)
    settings = {"spark.sql.streaming.minBatchesToRetain": str(_KEPT_OFFSETS)}
    spark = small_spark(folder.scratch / "follower", "follower", settings)
    apply = Apply(copy, [KEY])

    def apply_and_note(changes: DataFrame, batch_id: int) -> None:
        apply(changes, batch_id)
        report = apply.sink.last
        assert report is not None
        # Nothing else writes the copy, so its newest version is that of the batch, also if Spark replayed it.
        version = Table.open(copy).version
        note = {"batch": batch_id, "copy_version": version, "keys": report.rows, "skipped": report.skipped}
        with folder.batches.open("a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")

    query = changes_of(spark, table).writeStream.foreachBatch(apply_and_note)
    query = query.option("checkpointLocation", str(folder.follower)).trigger(processingTime=_INTERVAL)
    query.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
