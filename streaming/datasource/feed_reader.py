"""The reader behind `spark.readStream.format("tidelog")`: the change feed.

How Spark asks a reader where the next micro-batch ends depends on its version. `source.stream_reader` gives a
`FeedReader` the methods that this Spark calls: those of `admitted_reader`, or of `self_limited_reader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tidelog.log.errors import TidelogError
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.table_reader import TableReader
from tidelog.log.system import REAL_SYSTEM, to_datetime, utc_text
from tidelog.streaming.datasource.file_partitions import (
    FilesPartition,
    grouped_into_tasks,
    start_version,
    table_to_read,
)
from tidelog.streaming.datasource.read_options import ReadOptions, parse_read, require_unchanged_zone
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.limits import DEFAULT_FILES, NO_LIMITS, ReadLimits
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.query_columns import LoadedColumns
from tidelog.streaming.feed_planning.stream_consumer import StreamConsumer

_ONE_FILE = ReadLimits(files=1)


class FeedReader:
    """The change feed of a stream. It runs in a separate process, without a Spark session.

    Offsets are in the form that Spark stores. `loaded` has the columns of the query; None if it gave its own with
    `.schema(...)`.
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

    @property
    def query(self) -> tuple[ReadOptions, TableReader, pa.Schema]:
        """The options, the table, and the columns that it has for this query."""
        options, planner = self._open()
        return options, planner.table, planner.table_schema

    @property
    def limits(self) -> ReadLimits:
        """The limits that the options set."""
        options, _ = self._open()
        return options.limits

    def batch_limits(self, *, reads_all: bool) -> ReadLimits:
        """The limits of a micro-batch, for a Spark that says when one reads all there is."""
        if reads_all:
            return NO_LIMITS
        return replace(NO_LIMITS, files=DEFAULT_FILES) if self.limits == NO_LIMITS else self.limits

    def first_offset(self) -> dict[str, Any]:
        """Where a new stream begins: as its options say, else at the first version."""
        options, planner = self._open()
        table = planner.table
        if options.initial_snapshot:
            offset = planner.snapshot_start()
        else:
            offset = Offset(table.id, start_version(table, options))
        return replace(self._consumer.named(offset) if self._consumer else offset, is_initial=True).to_json()

    def next_offset(self, start: dict[str, Any], limits: ReadLimits) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself if there are no new rows, so that Spark runs none."""
        _, planner = self._open()
        begin = self._offset(start)
        if self._target_version is None:
            planner.refresh_if_due()
        planner.require_reached(begin)
        if self._consumer:
            self._consumer.completed(begin, planner)
        until = planner.table.version if self._target_version is None else self._target_version
        end = planner.advance(begin, until, limits)
        if end == begin:
            # As it was given: Spark compares the text of offsets, and an older tidelog may have written this one.
            return start
        began = replace(planner.resumed(begin), is_initial=False, began=None)
        is_known = began == replace(begin, began=None)
        end = replace(end, is_initial=False, began=None if is_known else began)
        return (self._consumer.named(end) if self._consumer else end).to_json()

    def has_more(self, end: dict[str, Any]) -> bool:
        """Whether there are rows after `end` by now, or an error that the next micro-batch will raise."""
        _, planner = self._open()
        offset = self._offset(end)
        try:
            return planner.advance(offset, planner.table.version, _ONE_FILE) != offset
        except TidelogError:
            return True

    def newest(self) -> dict[str, Any]:
        """The newest version seen and its time, for the query's progress. It is not an offset: no field is shared."""
        _, planner = self._open()
        table = planner.table
        return {"newestVersion": table.version, "newestTime": utc_text(to_datetime(table.timeline.timestamp_ms))}

    def end_at_newest(self) -> None:
        """Fix the version at which this run ends."""
        _, planner = self._open()
        self._target_version = planner.table.refresh().version

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes between two offsets, grouped into tasks."""
        options, planner = self._open()
        changes = self.changes_between(start, end)
        store = planner.table.store
        return grouped_into_tasks(store, changes, options.query_columns, planner.table_schema, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        require_unchanged_zone(parse_read(self._raw, streaming=True, session_zone=self._session_zone).zone)
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
