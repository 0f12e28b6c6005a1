"""The reader behind `spark.read.format("tidelog")`: a snapshot, or the changes of an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.log import Snapshot, Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import REAL_SYSTEM, Change, ChangeFile, DataFile, num_records, to_adds
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.feed_planner import FeedPlanner
from tidelog.streaming.datasource.file_partitions import (
    FilesPartition,
    grouped_into_tasks,
    start_version,
    table_to_read,
)
from tidelog.streaming.datasource.offsets import Offset
from tidelog.streaming.datasource.read_options import ReadOptions
from tidelog.streaming.datasource.session_zone import require_unchanged


class BatchReader(DataSourceReader):
    """A snapshot, or the changes of an interval."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.is_interval and options.snapshot is not None:
            raise ConfigurationError(
                "a read cannot have both a version and an interval",
                advice="leave out versionAsOf and timestampAsOf, or the starting, ending and changes options",
            )
        self._options = options
        self._schema = schema

    @error_first
    def partitions(self) -> Sequence[InputPartition]:
        """The files of the snapshot or of the interval, grouped into tasks."""
        table = table_to_read(self._options)
        if self._options.is_interval:
            return grouped_into_tasks(table, self._interval_files(table), table.at(), self._options, self._schema)
        snapshot = _snapshot(table, self._options)
        return grouped_into_tasks(table, _snapshot_files(snapshot), snapshot, self._options, self._schema)

    @error_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        require_unchanged(self._options.zone)
        # Spark makes up one empty partition if there are none.
        return partition.read() if isinstance(partition, FilesPartition) else iter(())

    def _interval_files(self, table: Table) -> list[Change]:
        start = Offset(table.id, start_version(table, self._options))
        end = table.version if self._options.end is None else table.timeline.interval_end(self._options.end)
        return list(FeedPlanner(table, REAL_SYSTEM).between(start, Offset(table.id, end)))


def _snapshot(table: Table, options: ReadOptions) -> Snapshot:
    if isinstance(options.snapshot, int):
        return table.at(version=options.snapshot)
    return table.at(timestamp=options.snapshot) if options.snapshot is not None else table.at()


def _snapshot_files(snapshot: Snapshot) -> list[Change]:
    stamp = int(snapshot.timestamp.timestamp() * 1000)
    return [
        ChangeFile(DataFile.of(add), snapshot.version, stamp, add.size, num_records(add.stats))
        for add in to_adds(snapshot.files())
    ]
