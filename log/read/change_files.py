"""A file whose rows are changes of one commit: a data file, the difference of two deletion vectors, or a `cdc` file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.arrays import Int64Array
from tidelog.log.data.blocks import Constant
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import DataFile, read_batches, read_numbered_batches
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


class ChangeFile(msgspec.Struct, frozen=True, gc=False):
    """A file whose rows are changes of one commit; picklable.

    The rows are the live rows of `file`, or the rows in the `difference` of two vectors. `change_type` is None if the
    file has that column itself. `rows` is an upper bound, and usually exact; None if it is unknown. `stats` are left
    out where nobody needs them: they are most of a file's size here.
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

    def batches(self, store: Store, schema: pa.Schema, *, only: BitMap64 | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, or those at the positions `only`, with the columns `schema` of the table."""
        wanted = self._wanted(store, only)
        return iter(()) if _is_nothing(wanted) else read_batches(store, self.file, schema, only=wanted)

    def numbered_batches(
        self, store: Store, schema: pa.Schema, *, only: BitMap64 | None = None
    ) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
        """Like `batches`, with the rows' positions."""
        wanted = self._wanted(store, only)
        return iter(()) if _is_nothing(wanted) else read_numbered_batches(store, self.file, schema, only=wanted)

    def _wanted(self, store: Store, only: BitMap64 | None) -> BitMap64 | None:
        return self.difference.positions(store) if only is None and self.difference is not None else only


def _is_nothing(positions: BitMap64 | None) -> bool:
    """Whether no row is wanted: then the file is not opened."""
    return positions is not None and not positions


def read_change_file(
    store: Store, change: ChangeFile, schema: pa.Schema, *, only: BitMap64 | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a change file, or those at the positions `only`, with exactly `schema`: columns of both kinds."""
    columns = ChangeColumns(schema, change)
    for batch in change.batches(store, columns.of_file, only=only):
        yield columns.complete(batch)


class ChangeColumns:
    """The columns `schema` of a change file's rows: those `of_file`, and those that are the same for all its rows."""

    def __init__(self, schema: pa.Schema, change: ChangeFile) -> None:
        own: dict[str, Any] = {COMMIT_VERSION: change.version, COMMIT_TIMESTAMP: change.timestamp_ms * 1000}
        if change.change_type:
            own[CHANGE_TYPE] = change.change_type
        self._schema = schema
        self._constants = {
            field.name: Constant(pa.scalar(own[field.name], field.type)) for field in schema if field.name in own
        }
        self.of_file = pa.schema([field for field in schema if field.name not in own])

    def complete(self, batch: pa.RecordBatch, change_types: pa.Array | None = None) -> pa.RecordBatch:
        """A batch of the columns `of_file` with all columns; the change types are by default the file's."""
        if not self._schema.names:
            return batch  # it has a row count, which a batch made of no arrays has not
        columns = []
        for name in self._schema.names:
            if name not in self._constants:
                columns.append(batch.column(name))
            elif name == CHANGE_TYPE and change_types is not None:
                columns.append(change_types)
            else:
                columns.append(self._constants[name].rows(batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
