"""What a read consists of: its table, start and columns, and its files, grouped into Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.log import Snapshot, Table
from tidelog.log.errors import ConfigurationError, HistoryExpiredError, SchemaMismatchError
from tidelog.log.internals import Change, Selection, Store, change_schema, read_change_batches
from tidelog.streaming.datasource.read_options import EXCLUSIVE_START, ReadOptions

# A task's Python worker costs some tens of milliseconds, so small files share one task. A core reads this number of
# bytes in about a second.
_PARTITION_BYTES = 32 * 2**20
_PARTITION_FILES = 32


@dataclass
class FilesPartition(InputPartition):
    """The input of one task: change files, and the rows and columns to read from them."""

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
                    yield pa.RecordBatch.from_arrays(
                        [_exactly(piece.column(field.name), field.type) for field in self.out_schema],
                        schema=self.out_schema,
                    )


def table_to_read(options: ReadOptions) -> Table:
    """The table of a read. Raises ConfigurationError for a change mode that Spark's readers do not support."""
    if options.changes not in (None, "append"):
        raise ConfigurationError(
            f"format('tidelog') does not support the change mode {options.changes!r}",
            advice="use append, or call Table.changes(...)",
        )
    return Table.open(options.path, storage_options=options.storage_options)


def start_version(table: Table, options: ReadOptions) -> int:
    """The version that a read of changes starts after."""
    if options.latest:
        return table.version
    if options.start is None:
        return table.timeline.before_first
    try:
        return table.timeline.interval_end(options.start)
    except HistoryExpiredError as error:
        raise HistoryExpiredError(error.message, advice=f"{error.advice}; {EXCLUSIVE_START}", **error.fields) from None


def row_schema_of(snapshot: Snapshot, options: ReadOptions) -> pa.Schema:
    """All columns that a row can have."""
    return snapshot.schema if options.changes is None else change_schema(snapshot.schema)


def read_columns(snapshot: Snapshot, options: ReadOptions) -> pa.Schema:
    """The columns of the read, all nullable: a Python source cannot vouch for other writers' files."""
    chosen = Selection(row_schema_of(snapshot, options), options.where, options.columns).schema
    return pa.schema([field.with_nullable(True) for field in chosen])  # noqa: FBT003 - pyarrow's signature


def grouped_into_tasks(
    table: Table, changes: Sequence[Change], snapshot: Snapshot, options: ReadOptions, schema: StructType
) -> list[InputPartition]:
    """Group `changes`, in their order, into tasks of a bounded number of files and bytes."""
    row_schema = row_schema_of(snapshot, options)
    out_schema = to_arrow_schema(schema, timezone="UTC")
    _require_columns(row_schema, out_schema)
    groups: list[list[Change]] = []
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
