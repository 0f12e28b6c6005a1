"""The reader behind `spark.read.format("tidelog")`: a snapshot, or the changes of an interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.log.errors import ConfigurationError
from tidelog.log.read.changes import only_these
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.table_reader import TableReader
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.datasource.errors_first import error_first
from tidelog.streaming.datasource.file_partitions import (
    FilesPartition,
    announced_columns,
    exactly,
    grouped_into_tasks,
    interval,
    snapshot_to_read,
    table_to_read,
)
from tidelog.streaming.datasource.read_options import ReadOptions, require_unchanged_zone
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.feed_units import SnapshotUnits
from tidelog.streaming.feed_planning.offsets import Offset


@dataclass
class NetPartition(InputPartition):
    """The input of the one task that reads net changes, because the rows of a key belong together."""

    path: str
    storage_options: Mapping[str, str] = field(repr=False)
    after: int
    until: int
    keys: Sequence[str]
    where: str | None
    out_schema: pa.Schema

    def read(self) -> Iterator[pa.RecordBatch]:
        """The selected rows, with exactly the columns and types that Spark expects."""
        from tidelog.log import Table  # noqa: PLC0415 - other reads need no table that writes

        table = Table.open(self.path, storage_options=dict(self.storage_options))
        changes = table.changes(
            after=self.after,
            until=self.until,
            mode="net",
            where=self.where,
            columns=only_these(self.out_schema.names),
            keys=self.keys,
        )
        for batch in changes.to_batches():
            yield exactly(batch, self.out_schema)


class BatchReader(DataSourceReader):
    """A snapshot, or the changes of an interval."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        require_one_kind(options)
        self._options = options
        self._schema = schema

    @error_first
    def partitions(self) -> Sequence[InputPartition]:
        """The files of the snapshot or of the interval, grouped into tasks."""
        options = self._options
        table = table_to_read(options)
        if not options.is_interval:
            snapshot = snapshot_to_read(table, options)
            units = SnapshotUnits(snapshot, options.query_columns.selection(snapshot.schema))
            return self._tasks(table, snapshot.schema, units.between(0, units.count))
        after, until = interval(table, options)
        if options.changes == "net":
            return [self._net(after, until)]
        planner = FeedPlanner(table, REAL_SYSTEM, options.query_columns)
        changes = planner.between(Offset(table.id, after), Offset(table.id, until))
        return self._tasks(table, table.schema, list(changes))

    @error_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        require_unchanged_zone(self._options.zone)
        # Spark makes up one empty partition if there are none.
        return partition.read() if isinstance(partition, FilesPartition | NetPartition) else iter(())

    def _tasks(self, table: TableReader, table_schema: pa.Schema, changes: Sequence[Change]) -> list[InputPartition]:
        return grouped_into_tasks(table.store, changes, self._options.query_columns, table_schema, self._schema)

    def _net(self, after: int, until: int) -> NetPartition:
        from tidelog.log import Table  # noqa: PLC0415 - as above

        options = self._options
        table = Table.open(options.path, storage_options=options.storage_options)
        columns = announced_columns(options.query_columns.all_columns(table.schema), self._schema)
        # Raises errors about the keys and the interval here, before any task runs.
        table.changes(after=after, until=until, mode="net", keys=options.keys)
        return NetPartition(options.path, options.storage_options, after, until, options.keys, options.where, columns)


def require_one_kind(options: ReadOptions) -> None:
    """Raise ConfigurationError if the options ask for a snapshot and for changes."""
    if options.is_interval and options.snapshot is not None:
        raise ConfigurationError(
            "a read cannot have both a version and an interval",
            advice="leave out versionAsOf and timestampAsOf, or the starting, ending and changes options",
        )
