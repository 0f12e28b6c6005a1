"""What a read consists of: its table and start, and its files, grouped into Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tidelog.log.errors import SchemaMismatchError
from tidelog.log.read.commit_changes import read_change_batches
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.scan import Selection
from tidelog.log.read.snapshot import Snapshot
from tidelog.log.read.table_reader import TableReader
from tidelog.log.storage import Store
from tidelog.streaming import spark_versions
from tidelog.streaming.datasource.read_options import ReadOptions
from tidelog.streaming.executors.tasks import read_parts
from tidelog.streaming.feed_planning.query_columns import QueryColumns


@dataclass
class FilesPartition(InputPartition):
    """The input of one task: changes, and the rows and columns to read from them."""

    store: Store
    changes: Sequence[Change]
    row_schema: pa.Schema
    where: str | None
    out_schema: pa.Schema

    def read(self) -> Iterator[pa.RecordBatch]:
        """The selected rows, with exactly the columns and types that Spark expects."""
        selection = Selection(self.row_schema, self.where, self.out_schema.names)
        for change in self.changes:
            for batch in read_change_batches(self.store, change, selection.read_schema):
                for piece in selection.apply(batch):
                    yield exactly(piece, self.out_schema)


def exactly(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns and types of `schema`, which Spark has announced."""
    columns = [batch.column(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            values if values.type.equals(field.type) else values.cast(field.type)
            for values, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def table_to_read(options: ReadOptions) -> TableReader:
    """The table of a read."""
    return TableReader.open(options.path, storage_options=options.storage_options)


def snapshot_to_read(table: TableReader, options: ReadOptions) -> Snapshot:
    """The version that `versionAsOf` or `timestampAsOf` names, else the newest."""
    if isinstance(options.snapshot, int):
        return table.at(version=options.snapshot)
    return table.at(timestamp=options.snapshot) if options.snapshot is not None else table.at()


def start_version(table: TableReader, options: ReadOptions) -> int:
    """The version that a read of changes starts after."""
    after, _ = interval(table, options)
    return after


def interval(table: TableReader, options: ReadOptions) -> tuple[int, int]:
    """The versions (after, until] that a read of changes covers.

    Raises ConfigurationError if the end lies before the start, HistoryExpiredError for an end outside the history.
    """
    timeline, start = table.timeline, options.start
    if options.latest:
        start = table.version
    elif start is not None and options.is_start_included:
        if not isinstance(start, int):
            timeline.interval(start, options.end)  # raises for an end before the start
        start = timeline.start_before(start)
    found = timeline.interval(start, options.end)
    return found.after, found.until


def read_columns(table_schema: pa.Schema, columns: QueryColumns) -> pa.Schema:
    """The columns of the read, all nullable: a Python source cannot vouch for other writers' files."""
    chosen = columns.selection(table_schema).schema
    return pa.schema([field.with_nullable(True) for field in chosen])  # noqa: FBT003 - pyarrow's signature


def grouped_into_tasks(
    store: Store, changes: Iterable[Change], columns: QueryColumns, table_schema: pa.Schema, schema: StructType
) -> list[InputPartition]:
    """Group `changes`, in their order, into tasks of a bounded number of files and bytes."""
    row_schema = columns.all_columns(table_schema)
    out_schema = announced_columns(row_schema, schema)
    parts = read_parts(list(changes))
    return [FilesPartition(store, part, row_schema, columns.where, out_schema) for part in parts]


def announced_columns(row_schema: pa.Schema, schema: StructType) -> pa.Schema:
    """The columns that Spark expects.

    Raises SchemaMismatchError for a column of the reader's `.schema(...)` that the table does not have.
    """
    asked = spark_versions.columns_to_arrow(schema)
    for field in asked:
        if field.name not in row_schema.names:
            raise SchemaMismatchError(
                f".schema(...) has a column {field.name!r} that the table does not have",
                advice=f"leave .schema(...) out, or choose from {', '.join(row_schema.names)}",
                column=field.name,
            )
    return asked
