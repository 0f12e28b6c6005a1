"""Helpers of the Kafka tests: a topic to send to, and the tables that a stream writes it to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from examples.kafka.events import POISONS, REQUIRED, SCHEMA, event, payload
from examples.kafka.pipeline import Split, read_topic
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError
from tidelog.streaming import Sink


@dataclass(frozen=True, slots=True)
class Place:
    """A record that was sent, and its position."""

    key: bytes
    value: bytes | None
    partition: int
    offset: int


class Topic:
    """A topic with two partitions, and a producer."""

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name
        self.count = 0
        self._producer: Any = KafkaProducer(bootstrap_servers=address, linger_ms=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._producer.close()

    def good(self, count: int = 10) -> list[str]:
        """Send `count` valid events; returns their ids."""
        ids = []
        for _ in range(count):
            made = event(0, self.count)
            self._send(made["id"], payload(made))
            ids.append(str(made["id"]))
        self._producer.flush()
        return ids

    def poison(self, kind: str) -> Place:
        """Send a record that is not a valid event."""
        made = event(0, self.count)
        value = POISONS[kind].payload(made)
        place = self._send(made["id"], value).get(timeout=60)
        return Place(made["id"].encode(), value, place.partition, place.offset)

    def stream(self, spark: SparkSession, per_batch: int | None = None) -> DataFrame:
        return read_topic(spark, self.address, self.name, per_batch)

    def _send(self, key: str, value: bytes | None) -> Any:
        self.count += 1
        return self._producer.send(self.name, key=key.encode(), value=value, partition=self.count % 2)


def into(folder: Path) -> Split:
    """The batch function with two sinks, whose tables are in `folder`."""
    return Split(
        Sink(str(folder / "table")),
        Sink(str(folder / "dead-letters"), name="dead-letter"),
        from_arrow_schema(SCHEMA),
        REQUIRED,
    )


def ids_in(folder: Path) -> list[str]:
    """The ids of the events in the table, sorted, with repetitions."""
    return sorted(row["id"] for row in _rows_of(folder / "table"))


def dead_letters_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of the dead-letter table, in the order of the topic."""
    return sorted(_rows_of(folder / "dead-letters"), key=lambda row: (row["partition"], row["offset"]))


def _rows_of(path: Path) -> list[dict[str, Any]]:
    """The table's rows; none if there is no table yet, even if its folder exists."""
    try:
        return list(Table.open(str(path)).scan().to_arrow().to_pylist())
    except TableNotFoundError:
        return []
