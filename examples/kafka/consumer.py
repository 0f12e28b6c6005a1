"""A program that the demo kills and restarts: it writes the table's changes back to a topic until it is ended.

python -m examples.kafka.consumer FOLDER ADDRESS
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.kafka.folder import Folder
from examples.kafka.pipeline import back_into_topic
from examples.kafka.session import spark_session
from examples.kafka.topics import CHANGES

_INTERVAL = "1 second"


def main(root: str, address: str) -> None:
    folder = Folder(Path(root))
    spark = spark_session(folder, "consumer")
    query = back_into_topic(spark, folder.table, address, CHANGES).option(
        "checkpointLocation", str(folder.checkpoints / "consumer")
    )
    query.trigger(processingTime=_INTERVAL).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
