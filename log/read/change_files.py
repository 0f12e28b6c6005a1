"""A file whose rows are changes of one commit: a data file, the difference of two deletion vectors, or a `cdc` file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.storage import Store

COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
INSERT, DELETE = "insert", "delete"
UPDATE_PREIMAGE, UPDATE_POSTIMAGE = "update_preimage", "update_postimage"


@dataclass(frozen=True, slots=True)
class VectorDifference:
    """The rows that are dead with the vector `dead` and live with the vector `live` (None: no vector)."""

    dead: DeletionVectorDescriptor
    live: DeletionVectorDescriptor | None

    def positions(self, store: Store) -> BitMap64:
        """The rows' positions in the file."""
        return read_dead_rows(store, self.dead) - (read_dead_rows(store, self.live) if self.live else BitMap64())


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file whose rows are changes of one commit; picklable.

    The rows are the live rows of `file`, or the rows in the `difference` of two vectors. `change_type` is None if the
    file has that column itself. `rows` is an upper bound, and usually exact; None if there are no statistics.
    """

    file: DataFile
    version: int
    timestamp_ms: int
    size_bytes: int
    rows: int | None
    change_type: str | None = INSERT
    difference: VectorDifference | None = None
    stats: str | None = None

    @property
    def partition_values(self) -> Mapping[str, str | None]:
        """The file's partition values."""
        return self.file.partition_values

    @property
    def files(self) -> tuple[ChangeFile]:
        """The file itself."""
        return (self,)

    @property
    def num_files(self) -> int:
        """1: a change file is one file."""
        return 1

    def numbered_batches(
        self, store: Store, schema: pa.Schema, *, only: BitMap64 | None = None
    ) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
        """The rows, or those at the positions `only`, with their positions and the columns `schema` of the table."""
        if only is None and self.difference is not None:
            only = self.difference.positions(store)
        # Nothing is opened for no rows.
        return iter(()) if only is not None and not only else read_numbered_batches(store, self.file, schema, only=only)


def read_change_file(
    store: Store, change: ChangeFile, schema: pa.Schema, *, only: BitMap64 | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a change file, or those at the positions `only`, with exactly `schema`: columns of both kinds."""
    for _, batch in change.numbered_batches(store, data_columns(schema, change), only=only):
        yield with_change_columns(batch, schema, change)


def data_columns(schema: pa.Schema, change: ChangeFile) -> pa.Schema:
    """The columns of `schema` that are read from the file."""
    own = {COMMIT_VERSION, COMMIT_TIMESTAMP} | ({CHANGE_TYPE} if change.change_type else set())
    return pa.schema([field for field in schema if field.name not in own])


def with_change_columns(
    batch: pa.RecordBatch, schema: pa.Schema, change: ChangeFile, change_types: pa.Array | None = None
) -> pa.RecordBatch:
    """A batch of `data_columns` with all columns of `schema`; the change types are by default the file's."""
    if not schema.names:
        return batch  # it has a row count, which a batch made of no arrays has not
    constants = {
        COMMIT_VERSION: change.version,
        COMMIT_TIMESTAMP: change.timestamp_ms * 1000,
        CHANGE_TYPE: change.change_type,
    }
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            columns.append(batch.column(field.name))
        elif field.name == CHANGE_TYPE and change_types is not None:
            columns.append(change_types)
        else:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
