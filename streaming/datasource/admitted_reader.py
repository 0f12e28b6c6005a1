"""The feed for a Spark that says where a micro-batch begins and how much it may read: 4.2 and later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.feed_reader import FeedReader
from tidelog.streaming.feed_planning.limits import DEFAULT_FILES


class AdmittedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A feed with the methods that Spark calls."""

    def __init__(self, feed: FeedReader) -> None:
        self._feed = feed

    @error_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins."""
        return self._feed.first_offset()

    @error_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself if there are no new rows, so that Spark runs none."""
        limits = self._feed.batch_limits(reads_all=isinstance(limit, ReadAllAvailable))
        return self._feed.next_offset(start, limits)

    @error_first
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """One of the limits that the options set; `latestOffset` applies all of them."""
        limits = self._feed.limits
        if limits.files is not None:
            return ReadMaxFiles(limits.files)
        if limits.size_bytes is not None:
            return ReadMaxBytes(limits.size_bytes)
        return ReadMaxFiles(DEFAULT_FILES) if limits.rows is None else ReadMaxRows(limits.rows)

    @error_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The newest version seen and its time, for the query's progress."""
        return self._feed.newest()

    @error_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the version at which this run ends."""
        self._feed.end_at_newest()

    @error_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes between two offsets, grouped into tasks."""
        return self._feed.partitions(start, end)

    @error_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        return self._feed.read(partition)
