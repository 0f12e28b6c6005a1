"""The two streaming queries: one writes the table, the other one computes totals from its change feed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.folder import Folder
from examples.flights.source import SCHEMA
from tidelog.log import Table
from tidelog.streaming import Sink

# A day is in one month, so a micro-batch still writes one file; and a past month is never rewritten.
PARTITION_BY = ("month",)
WRITER, CONSUMER = "writer", "consumer"
# Each batch of the consumer takes about half a second of CPU time, however small, so it should read several days.
_CONSUMER_INTERVAL = "2 seconds"


@dataclass(frozen=True, slots=True)
class Total:
    """The total for one origin and month."""

    flights: int = 0
    miles: int = 0


Totals = Mapping[tuple[str, int], Total]


def create_table(folder: Folder) -> Table:
    """Create the table if it does not exist. A Sink would do so as well, but the consumer needs it when it starts."""
    return Table.create(str(folder.table), SCHEMA, partition_by=PARTITION_BY, exist_ok=True)


def start_writer(spark: SparkSession, folder: Folder) -> StreamingQuery:
    """Write one day's file per micro-batch, each exactly once; the query ends after the last file."""
    flights = (
        spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", 1).parquet(str(folder.source))
    )
    return (
        flights.writeStream.queryName(WRITER)
        .foreachBatch(Sink(str(folder.table), partition_by=PARTITION_BY))
        .option("checkpointLocation", str(folder.checkpoints / WRITER))
        .trigger(availableNow=True)
        .start()
    )


def start_consumer(spark: SparkSession, folder: Folder) -> StreamingQuery:
    """Compute flights and miles per origin and month from the change feed, into a file that is replaced atomically."""
    totals = (
        spark.readStream.format("tidelog")
        .option("columns", "origin,month,distance")
        .load(str(folder.table))
        .groupBy("origin", "month")
        .agg(F.count("*").alias("flights"), F.sum("distance").alias("miles"))
    )
    return (
        totals.writeStream.queryName(CONSUMER)
        .outputMode("complete")
        .foreachBatch(TotalsFile(folder.totals))
        .option("checkpointLocation", str(folder.checkpoints / CONSUMER))
        .trigger(processingTime=_CONSUMER_INTERVAL)
        .start()
    )


@dataclass(frozen=True, slots=True)
class TotalsFile:
    """The consumer's result. Spark's state gives batch n the same totals each time it runs, and the file is replaced
    atomically, so every flight counts once.
    """

    path: Path

    def __call__(self, totals: DataFrame, batch_id: int) -> None:
        """Replace the file with the totals after one batch. Spark calls this."""
        unfinished = self.path.with_suffix(".tmp")
        content = {"batch": batch_id, "totals": [row.asDict() for row in totals.collect()]}
        unfinished.write_text(json.dumps(content), encoding="utf-8")
        unfinished.replace(self.path)

    def read(self) -> tuple[int, Totals]:
        """The number of batches, and the totals."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0, {}
        return content["batch"] + 1, totals_of(content["totals"])


def totals_of(rows: Iterable[Mapping[str, Any]]) -> Totals:
    """Totals from rows with the columns origin, month, flights and miles."""
    return {(row["origin"], int(row["month"])): Total(int(row["flights"]), int(row["miles"])) for row in rows}


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The duration of the writer's micro-batches, from Spark's trigger to its commit, over all runs."""

    path: Path

    def keep(self, writer: StreamingQuery) -> None:
        """Add the times of a run's batches.

        A listener would report each batch at once, but in Python it takes more CPU time than the two queries.
        """
        with self.path.open("a", encoding="utf-8") as file:
            for progress in writer.recentProgress:
                if progress.numInputRows:
                    entry = {"batch": progress.batchId, "ms": progress.durationMs["triggerExecution"]}
                    file.write(json.dumps(entry) + "\n")

    def read_ms(self) -> list[int]:
        """The time of each batch, once per batch."""
        if not self.path.exists():
            return []
        entries = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return list({entry["batch"]: int(entry["ms"]) for entry in entries}.values())
