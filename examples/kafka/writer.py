"""A program that the demo kills and restarts: it writes the topic's records to the tables until it is ended.

python -m examples.kafka.writer FOLDER ADDRESS RECORDS_PER_BATCH
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.kafka.folder import Folder
from examples.kafka.pipeline import into_tables, read_topic
from examples.kafka.session import spark_session
from examples.kafka.topics import EVENTS

_INTERVAL = "1 second"


def main(root: str, address: str, per_batch: str) -> None:
    folder = Folder(Path(root))
    spark = spark_session(folder, "writer")
    records = read_topic(spark, address, EVENTS, int(per_batch))
    query = into_tables(records, folder.table, folder.dead_letters).option(
        "checkpointLocation", str(folder.checkpoints / "writer")
    )
    query.trigger(processingTime=_INTERVAL).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
