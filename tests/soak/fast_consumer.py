"""A program that is killed: a stream of the table's changes, applied to a replica as they come.

python -m tests.soak.fast_consumer FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from examples.shared.small_spark import small_spark
from tests.soak.folder import Folder, read_whole
from tests.soak.replica import Change, Replica
from tests.soak.rows import SCHEMA, Row
from tests.soak.stream import STEADY_JVM
from tidelog.streaming import Feed

_LOOK_S = 0.2
NAME = "fast"


def main(root: str) -> None:
    folder = Folder(Path(root))
    settings = folder.settings
    spark = small_spark(folder.scratch / NAME, "soak fast consumer", STEADY_JVM)
    feed = Feed(spark, str(folder.table), changes="cdc", after=0, consumer=NAME)
    replica = Replica(folder.replica(NAME))

    def apply(changes: DataFrame, batch: int) -> None:
        found = [
            Change(row["_commit_version"], row["_change_type"], Row(*(row[name] for name in SCHEMA.names)))
            for row in changes.collect()
        ]
        assert feed.last is not None
        own = Replica(folder.replica(NAME))  # Spark calls this in a thread of its own
        try:
            own.apply(batch, feed.last.version or 0, found)
        finally:
            own.close()

    query = feed.foreachBatch(apply).option("checkpointLocation", str(folder.checkpoint(NAME)))
    running = query.trigger(processingTime=f"{settings.batch_s} seconds").start()
    while not running.awaitTermination(_LOOK_S):  # type: ignore[arg-type] # PySpark takes fractions
        wanted = read_whole(folder.request(NAME))
        if wanted is not None and replica.position.version >= wanted["version"]:
            running.stop()
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
