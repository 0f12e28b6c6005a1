"""The two streaming queries: from a topic to a table and its dead letters, and the table's changes back to a topic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from examples.kafka.events import REQUIRED, SCHEMA
from examples.kafka.folder import Folder
from examples.kafka.split import DEAD_LETTERS, dead_letter_rows, event_rows, validated
from tidelog.log import Table
from tidelog.streaming import Sink


@dataclass(frozen=True, slots=True)
class Split:
    """A batch function with two sinks: valid events go to one table, all other records to a dead-letter table.

    These are two commits. A crash between them leaves only the first, and Spark's replay of the batch adds the second.
    So each record is in one of the tables once, but the two do not change at the same moment.
    """

    table: Sink
    dead_letters: Sink
    schema: StructType
    required: Collection[str]

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch; Spark calls this."""
        # Cached, since otherwise each sink would read and validate the records again.
        checked = validated(records, self.schema, self.required).persist()
        try:
            self.table(event_rows(checked), batch_id)
            self.dead_letters(dead_letter_rows(checked), batch_id)
        finally:
            checked.unpersist()


def create_tables(folder: Folder) -> None:
    """Create both tables. The sinks would do so as well, but the daemon and the consumer need them when they start."""
    Table.create(str(folder.table), SCHEMA, exist_ok=True)
    Table.create(str(folder.dead_letters), DEAD_LETTERS, exist_ok=True)


def read_topic(spark: SparkSession, address: str, topic: str, per_batch: int | None = None) -> DataFrame:
    """A stream of the topic from its beginning, with at most `per_batch` records in a micro-batch."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    return (reader if per_batch is None else reader.option("maxOffsetsPerTrigger", per_batch)).load()


def into_tables(records: DataFrame, table: Path, dead_letters: Path) -> DataStreamWriter:
    """A query that writes the topic's records to the two tables; the caller sets the checkpoint."""
    return records.writeStream.foreachBatch(
        Split(
            Sink(str(table)),
            Sink(str(dead_letters), name="dead-letter"),
            from_arrow_schema(SCHEMA),
            REQUIRED,
        )
    )


def back_into_topic(
    spark: SparkSession, table: Path, address: str, topic: str, max_files: int = 20
) -> DataStreamWriter:
    """A query that writes the table's new rows to a topic as JSON; the caller sets the checkpoint.

    Spark's Kafka writer is at-least-once: a batch that is replayed is written again. The key of a record is the event's
    unique `id`, which lets a reader drop repetitions.
    """
    changes = spark.readStream.format("tidelog").option("maxFilesPerTrigger", max_files).load(str(table))
    records = changes.select(F.col("id").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return records.writeStream.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic)
