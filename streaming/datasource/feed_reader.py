"""The reader behind `spark.readStream.format("tidelog")`: the change feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.log.internals import REAL_SYSTEM, range_error
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.feed_planner import FeedPlanner
from tidelog.streaming.datasource.file_partitions import (
    FilesPartition,
    grouped_into_tasks,
    start_version,
    table_to_read,
)
from tidelog.streaming.datasource.offsets import Offset
from tidelog.streaming.datasource.read_options import ReadOptions, parse_read
from tidelog.streaming.datasource.session_zone import require_unchanged


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The change feed of a stream. It runs in a separate process, without a Spark session."""

    def __init__(self, raw_options: Mapping[str, str], schema: StructType, session_zone: str | None = None) -> None:
        self._raw = dict(raw_options)
        self._schema = schema
        self._session_zone = session_zone
        self._opened: tuple[ReadOptions, FeedPlanner] | None = None
        self._target_version: int | None = None

    @error_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins: after `startingVersion` or `startingTimestamp`, else at the first version."""
        options, planner = self._open()
        return Offset(planner.table.id, start_version(planner.table, options)).to_json()

    @error_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself if there are no new rows, so that Spark runs none."""
        _, planner = self._open()
        begin = self._offset(start)
        if self._target_version is None:
            planner.refresh_if_due()
        if begin.version > planner.table.version and begin.version > planner.table.refresh().version:
            raise range_error(
                planner.table.store,
                f"the stream has read version {begin.version} of {planner.table.path}, which no longer exists: the "
                "table was restored from an older copy, and the stream would miss the commits that reuse its versions",
                0,
                planner.table.version,
            )
        until = planner.table.version if self._target_version is None else self._target_version
        max_files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return planner.advance(begin, until, max_files).to_json()

    @error_first
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit set with `maxFilesPerTrigger`."""
        options, _ = self._open()
        return ReadAllAvailable() if options.max_files is None else ReadMaxFiles(options.max_files)

    @error_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The newest version seen, for the query's progress."""
        _, planner = self._open()
        return Offset(planner.table.id, planner.table.version).to_json()

    @error_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the version at which this run ends."""
        _, planner = self._open()
        self._target_version = planner.table.refresh().version

    @error_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The change files between two offsets, grouped into tasks."""
        options, planner = self._open()
        first, last = self._offset(start), self._offset(end)
        if planner.table.version < last.version:
            planner.table.refresh()
        changes = list(planner.between(first, last))
        return grouped_into_tasks(planner.table, changes, planner.table.at(), options, self._schema)

    @error_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        require_unchanged(parse_read(self._raw, streaming=True, session_zone=self._session_zone).zone)
        return partition.read() if isinstance(partition, FilesPartition) else iter(())

    def _open(self) -> tuple[ReadOptions, FeedPlanner]:
        if self._opened is None:
            options = parse_read(self._raw, streaming=True, session_zone=self._session_zone)
            self._opened = options, FeedPlanner(table_to_read(options), REAL_SYSTEM)
        return self._opened

    def _offset(self, raw: Mapping[str, Any]) -> Offset:
        _, planner = self._open()
        offset = Offset.from_json(raw)
        offset.require_table(planner.table.id, planner.table.path)
        return offset
