"""The Python data source behind `format("tidelog")`: snapshots and changes for `spark.read`, the feed for `readStream`,
the writer for `df.write`.

The columns are the table's; with the option `changes` each row also has `_commit_version` and `_commit_timestamp`.
Only options can decide this, because Spark asks a Python source for its columns before it says whether the read is a
stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.log import Snapshot, Table
from tidelog.log.errors import ConfigurationError, HistoryExpiredError, SchemaMismatchError
from tidelog.log.internals import (
    BEFORE_FIRST,
    REAL_SYSTEM,
    ChangeFile,
    DataFile,
    Selection,
    Store,
    change_schema,
    num_records,
    range_error,
    read_change_batches,
    to_adds,
)
from tidelog.streaming.datasource.batch_writer import BatchWriter
from tidelog.streaming.datasource.feed_planner import FeedPlanner
from tidelog.streaming.datasource.offsets import Offset
from tidelog.streaming.datasource.read_options import EXCLUSIVE_START, ReadOptions, parse_read, split_names
from tidelog.streaming.datasource.write_options import parse_write

# A task's Python worker costs some tens of milliseconds, so small files share one task. A core reads this number of
# bytes in about a second.
_PARTITION_BYTES = 32 * 2**20
_PARTITION_FILES = 32


class TidelogDataSource(DataSource):
    """`format("tidelog")` for `spark.read`, `spark.readStream` and `df.write`.

    `tidelog.streaming.register(spark)` registers it. Its columns are the table's. Spark 4.2 cannot use it for a table
    of its catalog (`CREATE TABLE ... USING tidelog`); in SQL use
    `CREATE TEMPORARY VIEW name USING tidelog OPTIONS (path '/path/to/table')`, which reads the version that is the
    newest when it is first queried, and takes `INSERT`.

    Args:
        options: The options below, by name; upper and lower case are the same.

    | option | read | readStream | meaning |
    |---|---|---|---|
    | `path` | yes | yes | the table |
    | `versionAsOf`, `timestampAsOf` | yes | | a snapshot |
    | `startingVersion`, `startingTimestamp` | yes | yes | the changes after this point, which Delta includes |
    | `endingVersion`, `endingTimestamp` | yes | | the changes up to and including this point |
    | `changes` | yes | yes | `append`: also the columns `_commit_version` and `_commit_timestamp` |
    | `maxFilesPerTrigger` | | yes | the most files in one micro-batch |
    | `columns`, `where` | yes | yes | comma-separated columns; an SQL predicate |
    | `storageOption.<name>` | yes | yes | credentials and endpoints of the store |

    `startingVersion` also takes `earliest`, the default of a stream, and `latest`. A timestamp is ISO-8601 with a time
    zone: Spark does not pass `spark.sql.session.timeZone` to a Python data source.

    `df.write` takes `path`, `partitionBy`, `where`, `partitionOverwriteMode`, `txnAppId`, `txnVersion` and
    `storageOption.<name>`.

    Example:
        register(spark)
        spark.read.format("tidelog").option("versionAsOf", 3).load("/data/events")
        spark.readStream.format("tidelog").option("startingVersion", "latest").load("/data/events")
        df.write.format("tidelog").mode("append").save("/data/events")
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._raw = dict(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format, `tidelog`."""
        return "tidelog"

    def schema(self) -> StructType:
        """The columns of the read.

        Raises:
            ConfigurationError: An option is unknown or malformed.
            TableNotFoundError: There is no table at the path.
            PredicateError: `columns` or `where` do not fit the table.
        """
        options = parse_read(self._raw)
        return from_arrow_schema(_columns(_table(options).at(), options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for `spark.read`.

        Raises:
            ConfigurationError: An option is unknown, malformed, or for streams only.
        """
        return BatchReader(parse_read(self._raw, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader for `spark.readStream`.

        It checks its options on its first call, since Spark hides an error raised here.
        """
        return FeedReader(self._raw, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """The writer for `df.write`. It checks the options and the frame's columns before any task runs.

        Raises:
            ConfigurationError: An option is unknown, malformed or misplaced.
            SchemaMismatchError: The frame's columns do not fit the table's.
            PredicateError: `where` does not describe whole partitions.
            AppendOnlyError: An overwrite of a table that only takes appends.
        """
        return BatchWriter(parse_write(self._raw, overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """Refuse: Spark gives a Python stream writer no query id, so a replayed batch could not be recognized.

        Raises:
            ConfigurationError: Always; it shows the line with a Sink to use instead.
        """
        options, _ = split_names(self._raw)
        path, checkpoint = options.get("path", "/path"), options.get("checkpointlocation", "/cp")
        line = f'df.writeStream.foreachBatch(Sink("{path}")).option("checkpointLocation", "{checkpoint}").start()'
        raise ConfigurationError(
            'writeStream.format("tidelog") is not supported: it could not write each batch exactly once',
            advice=f"use {line}",
        )


@dataclass
class FilesPartition(InputPartition):
    """The input of one task: change files, and the rows and columns to read from them."""

    store: Store
    changes: Sequence[ChangeFile]
    row_schema: pa.Schema
    where: str | None
    out_schema: pa.Schema

    def read(self) -> Iterator[pa.RecordBatch]:
        """The selected rows, with exactly the columns and types that Spark expects."""
        selection = Selection(self.row_schema, self.where, self.out_schema.names)
        for change in self.changes:
            for batch in read_change_batches(self.store, change, selection.read_schema):
                for piece in selection.apply(batch):
                    yield pa.RecordBatch.from_arrays(
                        [_exactly(piece.column(field.name), field.type) for field in self.out_schema],
                        schema=self.out_schema,
                    )


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

    def partitions(self) -> Sequence[InputPartition]:
        """The files of the snapshot or of the interval, grouped into tasks."""
        table = _table(self._options)
        if self._options.is_interval:
            return _partitions(table, self._interval_files(table), table.at(), self._options, self._schema)
        snapshot = _snapshot(table, self._options)
        return _partitions(table, _snapshot_files(snapshot), snapshot, self._options, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        # Spark makes up one empty partition if there are none.
        return partition.read() if isinstance(partition, FilesPartition) else iter(())

    def _interval_files(self, table: Table) -> list[ChangeFile]:
        start = Offset(table.id, _start_version(table, self._options))
        end = table.version if self._options.end is None else table.timeline.interval_end(self._options.end)
        return list(FeedPlanner(table, REAL_SYSTEM).between(start, Offset(table.id, end)))


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The change feed of a stream. It runs in a separate process, without a Spark session."""

    def __init__(self, raw_options: Mapping[str, str], schema: StructType) -> None:
        self._raw = dict(raw_options)
        self._schema = schema
        self._opened: tuple[ReadOptions, FeedPlanner] | None = None
        self._target_version: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins: after `startingVersion` or `startingTimestamp`, else at the first version."""
        options, planner = self._open()
        return Offset(planner.table.id, _start_version(planner.table, options)).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself if there are no new rows, so that Spark runs none."""
        _, planner = self._open()
        begin = self._offset(start)
        if self._target_version is None:
            planner.look()
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

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit set with `maxFilesPerTrigger`."""
        options, _ = self._open()
        return ReadAllAvailable() if options.max_files is None else ReadMaxFiles(options.max_files)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The newest version seen, for the query's progress."""
        _, planner = self._open()
        return Offset(planner.table.id, planner.table.version).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the version at which this run ends."""
        _, planner = self._open()
        self._target_version = planner.table.refresh().version

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The change files between two offsets, grouped into tasks."""
        options, planner = self._open()
        first, last = self._offset(start), self._offset(end)
        if planner.table.version < last.version:
            planner.table.refresh()
        changes = list(planner.between(first, last))
        return _partitions(planner.table, changes, planner.table.at(), options, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        return partition.read() if isinstance(partition, FilesPartition) else iter(())

    def _open(self) -> tuple[ReadOptions, FeedPlanner]:
        if self._opened is None:
            options = parse_read(self._raw, streaming=True)
            self._opened = options, FeedPlanner(_table(options), REAL_SYSTEM)
        return self._opened

    def _offset(self, raw: Mapping[str, Any]) -> Offset:
        _, planner = self._open()
        offset = Offset.from_json(raw)
        offset.require_table(planner.table.id, planner.table.path)
        return offset


def _table(options: ReadOptions) -> Table:
    if options.changes not in (None, "append"):
        raise ConfigurationError(
            f"format('tidelog') does not support the change mode {options.changes!r}",
            advice="use append, or call Table.changes(...)",
        )
    return Table.open(options.path, storage_options=options.storage_options)


def _snapshot(table: Table, options: ReadOptions) -> Snapshot:
    if isinstance(options.snapshot, int):
        return table.at(version=options.snapshot)
    return table.at(timestamp=options.snapshot) if options.snapshot is not None else table.at()


def _start_version(table: Table, options: ReadOptions) -> int:
    if options.latest:
        return table.version
    if options.start is None:
        return BEFORE_FIRST
    try:
        return table.timeline.interval_end(options.start)
    except HistoryExpiredError as error:
        raise HistoryExpiredError(error.message, advice=f"{error.advice}; {EXCLUSIVE_START}", **error.fields) from None


def _row_schema(snapshot: Snapshot, options: ReadOptions) -> pa.Schema:
    """All columns that a row can have."""
    return snapshot.schema if options.changes is None else change_schema(snapshot.schema)


def _columns(snapshot: Snapshot, options: ReadOptions) -> pa.Schema:
    """The columns of the read, all nullable: a Python source cannot vouch for other writers' files."""
    chosen = Selection(_row_schema(snapshot, options), options.where, options.columns).schema
    return pa.schema([field.with_nullable(True) for field in chosen])  # noqa: FBT003 - pyarrow's signature


def _snapshot_files(snapshot: Snapshot) -> list[ChangeFile]:
    stamp = int(snapshot.timestamp.timestamp() * 1000)
    return [
        ChangeFile(DataFile.of(add), snapshot.version, stamp, add.size, num_records(add.stats))
        for add in to_adds(snapshot.files())
    ]


def _partitions(
    table: Table, changes: Sequence[ChangeFile], snapshot: Snapshot, options: ReadOptions, schema: StructType
) -> list[InputPartition]:
    """Group `changes`, in their order, into tasks of a bounded number of files and bytes."""
    row_schema = _row_schema(snapshot, options)
    out_schema = to_arrow_schema(schema, timezone="UTC")
    _require_columns(row_schema, out_schema)
    groups: list[list[ChangeFile]] = []
    size = 0
    for change in changes:
        if not groups or size + change.size_bytes > _PARTITION_BYTES or len(groups[-1]) == _PARTITION_FILES:
            groups.append([])
            size = 0
        groups[-1].append(change)
        size += change.size_bytes
    return [FilesPartition(table.store, group, row_schema, options.where, out_schema) for group in groups]


def _require_columns(row_schema: pa.Schema, asked: pa.Schema) -> None:
    """Raise SchemaMismatchError for a column of the reader's `.schema(...)` that the table does not have."""
    for field in asked:
        if field.name not in row_schema.names:
            raise SchemaMismatchError(
                f".schema(...) has a column {field.name!r} that the table does not have",
                advice=f"leave .schema(...) out, or choose from {', '.join(row_schema.names)}",
                column=field.name,
            )


def _exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type.equals(kind) else values.cast(kind)
