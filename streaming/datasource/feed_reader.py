"""The reader behind `spark.readStream.format("tidelog")`: the change feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from pyspark.sql.types import StructType

from tidelog.log.reading import REAL_SYSTEM, Change, to_datetime, utc_text
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.file_partitions import (
    FilesPartition,
    grouped_into_tasks,
    start_version,
    table_to_read,
)
from tidelog.streaming.datasource.read_options import ReadOptions, parse_read
from tidelog.streaming.datasource.session_zone import require_unchanged
from tidelog.streaming.feed_planning.limits import DEFAULT_FILES, NO_LIMITS, ReadLimits
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.planner import FeedPlanner
from tidelog.streaming.feed_planning.query_columns import LoadedColumns
from tidelog.streaming.feed_planning.stream_consumer import StreamConsumer


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The change feed of a stream. It runs in a separate process, without a Spark session.

    `loaded` has the columns of the query; None if it gave its own with `.schema(...)`.
    """

    def __init__(
        self,
        raw_options: Mapping[str, str],
        schema: StructType,
        session_zone: str | None = None,
        loaded: LoadedColumns | None = None,
    ) -> None:
        self._raw = dict(raw_options)
        self._schema = schema
        self._session_zone = session_zone
        self._loaded = loaded
        self._opened: tuple[ReadOptions, FeedPlanner] | None = None
        self._target_version: int | None = None
        self._consumer: StreamConsumer | None = None

    @error_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins: as its options say, else at the first version."""
        options, planner = self._open()
        table = planner.table
        if options.initial_snapshot:
            offset = planner.snapshot_start()
        else:
            offset = Offset(table.id, start_version(table, options))
        return replace(self._consumer.named(offset) if self._consumer else offset, is_initial=True).to_json()

    @error_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself if there are no new rows, so that Spark runs none."""
        options, planner = self._open()
        begin = self._offset(start)
        if self._target_version is None:
            planner.refresh_if_due()
        planner.require_reached(begin)
        if self._consumer:
            self._consumer.completed(begin, planner)
        until = planner.table.version if self._target_version is None else self._target_version
        end = planner.advance(begin, until, _limits(options, limit))
        if end == begin:
            # As it was given: Spark compares the text of offsets, and an older tidelog may have written this one.
            return start
        began = replace(planner.resumed(begin), is_initial=False, began=None)
        is_known = began == replace(begin, began=None)
        end = replace(end, is_initial=False, began=None if is_known else began)
        return (self._consumer.named(end) if self._consumer else end).to_json()

    @error_first
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """One of the limits that the options set; `latestOffset` applies all of them."""
        options, _ = self._open()
        limits = options.limits
        if limits.files is not None:
            return ReadMaxFiles(limits.files)
        if limits.size_bytes is not None:
            return ReadMaxBytes(limits.size_bytes)
        return ReadMaxFiles(DEFAULT_FILES) if limits.rows is None else ReadMaxRows(limits.rows)

    @error_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The newest version seen and its time, for the query's progress. It is not an offset: no field is shared."""
        _, planner = self._open()
        table = planner.table
        return {"newestVersion": table.version, "newestTime": utc_text(to_datetime(table.timeline.timestamp_ms))}

    @error_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the version at which this run ends."""
        _, planner = self._open()
        self._target_version = planner.table.refresh().version

    @error_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes between two offsets, grouped into tasks."""
        options, planner = self._open()
        changes = self.changes_between(start, end)
        store = planner.table.store
        return grouped_into_tasks(store, changes, options.query_columns, planner.table_schema, self._schema)

    @error_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        require_unchanged(parse_read(self._raw, streaming=True, session_zone=self._session_zone).zone)
        return partition.read() if isinstance(partition, FilesPartition) else iter(())

    def changes_between(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Change]:
        """The changes of a micro-batch, in commit order."""
        _, planner = self._open()
        first, last = self._offset(start), self._offset(end)
        planner.require_reached(last)
        if self._consumer:
            self._consumer.begins()
        if last.began:
            # The first start was asked for again, and the table may have changed; or `start` is far behind.
            first = last.began
        elif first.is_initial and last.is_initial:
            first = last
        return planner.between(first, last)

    def _open(self) -> tuple[ReadOptions, FeedPlanner]:
        if self._opened is None:
            options = parse_read(self._raw, streaming=True, session_zone=self._session_zone)
            planner = FeedPlanner(
                table_to_read(options),
                REAL_SYSTEM,
                options.query_columns,
                skips_changes=options.skip_change_commits,
                counts_rows=options.limits.rows is not None,
                loaded=self._loaded,
            )
            self._opened = options, planner
            if options.consumer is not None:
                self._consumer = StreamConsumer(planner.table, options.consumer, REAL_SYSTEM)
        return self._opened

    def _offset(self, raw: Mapping[str, Any]) -> Offset:
        _, planner = self._open()
        offset = Offset.from_json(raw)
        offset.require_table(planner.table.id, planner.table.path)
        return offset


def _limits(options: ReadOptions, limit: ReadLimit) -> ReadLimits:
    if isinstance(limit, ReadAllAvailable):
        return NO_LIMITS
    return options.limits if options.limits != NO_LIMITS else replace(NO_LIMITS, files=DEFAULT_FILES)
