"""A program that the demo kills and restarts: it follows all tables of the database until it is ended.

python -m examples.cdc.stream FOLDER ADDRESS
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from examples.cdc.folder import Folder
from examples.cdc.shop import KEYS, PREFIX
from examples.kafka.jars import connector_jars
from examples.shared.small_spark import small_spark
from tidelog.streaming import Sink, Sinks, capture

_INTERVAL = "1 second"
# Topics come with their tables; by default Spark looks for new ones every five minutes.
_LOOK_FOR_TOPICS = "2000"
_MOST_RECORDS = 20_000


def main(root: str, address: str) -> None:
    folder = Folder(Path(root))
    spark = small_spark(folder.scratch, "stream", {"spark.jars": ",".join(map(str, connector_jars()))})
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribePattern", rf"{PREFIX}\.public\..*")
        .option("startingOffsets", "earliest")
        .option("kafka.metadata.max.age.ms", _LOOK_FOR_TOPICS)
        .option("maxOffsetsPerTrigger", _MOST_RECORDS)
        .load()
    )
    query = records.writeStream.foreachBatch(fan_out(folder))
    query = query.option("checkpointLocation", str(folder.checkpoints / "stream"))
    query.trigger(processingTime=_INTERVAL).start().awaitTermination()


def fan_out(folder: Folder) -> Sinks:
    """A table for each topic, which is named after the table of the database."""

    def sink(topic: str) -> Sink:
        table = topic.rpartition(".")[2]
        found: Sink = capture.sink(
            str(folder.copy_of(table)),
            keys=KEYS[table],
            dead_letters=str(folder.dead_letters_of(table)),
            schema_evolution=True,
            properties={"delta.enableTypeWidening": "true"},
        )
        return found

    def rows(records: DataFrame, topic: str) -> DataFrame:
        changes: DataFrame = capture.debezium(records, keys=KEYS[topic.rpartition(".")[2]])
        return changes

    return Sinks(sink, rows=rows, parked=str(folder.parked))


if __name__ == "__main__":
    main(*sys.argv[1:])
