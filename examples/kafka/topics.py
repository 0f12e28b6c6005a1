"""Create the two topics, and read them to their end, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

EVENTS, CHANGES = "events", "changes"
PARTITIONS = 3
_POLL_MS = 200
_END_S = 60


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


def create(address: str, names: Sequence[str], partitions: int = PARTITIONS) -> None:
    """Create topics, which must not exist."""
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        client.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names])
    finally:
        client.close()


class Reader:
    """Reads a topic from its beginning, each record once, also across restarts of the broker."""

    def __init__(self, address: str, topic: str, partitions: int = PARTITIONS) -> None:
        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
        )
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer.assign(self._partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the broker."""
        self._consumer.close()

    def news(self) -> Iterator[Record]:
        """Some of the records that have arrived since the last call."""
        for records in self._consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                yield Record(record.partition, record.offset, record.key, record.value)

    def rest(self) -> Iterator[Record]:
        """All records up to the topic's current end. Raises TimeoutError."""
        deadline_s = time.monotonic() + _END_S
        ends = self._consumer.end_offsets(self._partitions)
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"could not read the topic to its end within {_END_S} seconds")
            yield from self.news()


def read(address: str, topic: str, partitions: int = PARTITIONS) -> list[Record]:
    """All records of a topic."""
    with Reader(address, topic, partitions) as reader:
        return list(reader.rest())
