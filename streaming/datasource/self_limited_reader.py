"""The feed for a Spark that does not say where a micro-batch begins or how much it may read: below 4.2.

The reader keeps count itself. It knows where the next micro-batch begins, because Spark runs every batch whose end it
was given, and never asks for the next end before that:

- a new stream begins at the first offset;
- at a restart Spark first plans an empty interval at the newest offset that it has stored, whether the batch that ends
  there was completed or has to run again;
- after that, each micro-batch begins where the one before ended.

Spark does not say which trigger runs, either. `Trigger.AvailableNow` and `Trigger.Once` both run one micro-batch, which
has everything if no limit is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidelog.log.errors import ConfigurationError
from tidelog.log.system import logger
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.feed_reader import FeedReader
from tidelog.streaming.feed_planning.limits import NO_LIMITS

_LOGGER = logger("tidelog.streaming")


class SelfLimitedReader(DataSourceStreamReader):
    """A feed with the methods that Spark calls, which bounds each micro-batch by its own limits."""

    def __init__(self, feed: FeedReader) -> None:
        self._feed = feed
        self._first: dict[str, Any] | None = None
        # Where the next micro-batch begins; None until Spark has asked, or has said it.
        self._next: dict[str, Any] | None = None
        # Whether an end was given before Spark said that the stream is a restarted one.
        self._assumed_new = False
        self._is_first_end = True

    @error_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins. Spark asks for it only after the end of the first micro-batch."""
        if self._first is None:
            self._first = self._feed.first_offset()
        return self._first

    @error_first
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - as Spark below 4.2 calls it
        """The end of the next micro-batch; its start if there are no new rows, so that Spark runs none."""
        if self._next is None:
            self._next = self.initialOffset()
            self._assumed_new = True
        limits = self._feed.limits
        self._next = self._feed.next_offset(self._next, limits)
        if self._is_first_end and limits != NO_LIMITS and self._feed.has_more(self._next):
            _LOGGER.warning(
                "a limit ends the first micro-batch before the newest version of the table; if this query runs with "
                "Trigger.AvailableNow, it ends after this batch, because Spark below 4.2 does not tell a source of it; "
                "leave the limit out, use a processing-time trigger, or read with tidelog.streaming.changes"
            )
        self._is_first_end = False
        return self._next

    @error_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes between two offsets, grouped into tasks."""
        if start == end and end != self._next:
            # Where a restarted stream goes on. Only a first micro-batch without rows is such an interval otherwise.
            if self._assumed_new:
                raise ConfigurationError(
                    "with spark.sql.streaming.triggerAvailableNowWrapper.enabled, Spark asks where a run ends before "
                    "it says where it begins",
                    advice="set it to false; Trigger.AvailableNow then runs one micro-batch",
                )
            self._next = end
            return []
        self._next = end
        return self._feed.partitions(start, end)

    @error_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        return self._feed.read(partition)
