"""The files that hold the changes of a commit, and their rows.

If a version has `cdc` files, its changes are in them and nowhere else. Otherwise an added file means that its rows were
inserted, a removed file that they were deleted. A file removed and added again with another deletion vector changed the
rows in which the two vectors differ. A compaction (`dataChange=false`) changes no rows. Source: the Delta protocol,
"Change Data Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.paths import canonical
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

    @property
    def rows(self) -> int:
        """A lower bound for the number of rows."""
        return max(0, self.dead.cardinality - (self.live.cardinality if self.live else 0))

    def positions(self, store: Store) -> BitMap64:
        """The rows' positions in the file."""
        return read_dead_rows(store, self.dead) - (read_dead_rows(store, self.live) if self.live else BitMap64())


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file whose rows are changes of one commit; picklable.

    The rows are the live rows of `file`, or the rows in the `difference` of two vectors. `change_type` is None if the
    file has that column itself. `rows` is None if there are no statistics.
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
    def num_files(self) -> int:
        """1, as for every unit of the feed that is one file."""
        return 1

    @property
    def partition_values(self) -> Mapping[str, str | None]:
        """The file's partition values."""
        return self.file.partition_values


def appended_files(commit: Commit, timestamp_ms: int, path: str) -> list[ChangeFile]:
    """The files whose rows `commit` inserted, in its order; none for a compaction.

    Raises NotAppendOnlyError if the commit removed or changed rows.
    """
    for remove in commit.removes:
        if remove.data_change:
            raise NotAppendOnlyError(
                f"version {commit.version} of {path} removed or changed rows, which an append-only reader cannot show",
                advice=f"pass after={commit.version} (exclusive here, inclusive in Delta), or mode='cdc'",
                path=path,
                version=commit.version,
            )
    return [_inserted(commit, timestamp_ms, add) for add in commit.adds if add.data_change]


def changed_files(
    commit: Commit, timestamp_ms: int, partition_values_of: Callable[[int, RemoveFile], dict[str, str | None]]
) -> Iterator[ChangeFile]:
    """The files that hold the changes of `commit`: deletions first, then insertions.

    `partition_values_of` takes a version and a remove without partition values, and finds those that the file had at
    that version.
    """
    if commit.cdc:
        for cdc in commit.cdc:
            file = DataFile(cdc.path, cdc.partition_values, None)
            yield ChangeFile(file, commit.version, timestamp_ms, cdc.size, None, change_type=None)
        return
    adds = {canonical(add.path): add for add in commit.adds if add.data_change}
    removes = {canonical(remove.path): remove for remove in commit.removes if remove.data_change}
    for path, remove in removes.items():
        if path not in adds:
            values = remove.partition_values
            if values is None:
                values = partition_values_of(commit.version - 1, remove)
            file = DataFile(remove.path, values, remove.deletion_vector)
            rows = _live_rows(remove.stats, remove.deletion_vector)
            yield ChangeFile(file, commit.version, timestamp_ms, remove.size or 0, rows, DELETE, stats=remove.stats)
        else:
            # The new add's statistics need not cover the rows that died.
            add = msgspec.structs.replace(adds[path], stats=remove.stats)
            yield from _revised(commit, timestamp_ms, add, remove.deletion_vector, DELETE)
    for path, add in adds.items():
        if path not in removes:
            yield _inserted(commit, timestamp_ms, add)
        else:
            yield from _revised(commit, timestamp_ms, add, removes[path].deletion_vector, INSERT)


def read_change_batches(store: Store, change: ChangeFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one change file with exactly `schema`, including the change columns that `schema` has."""
    own = {COMMIT_VERSION: change.version, COMMIT_TIMESTAMP: change.timestamp_ms * 1000}
    constants = own if change.change_type is None else {**own, CHANGE_TYPE: change.change_type}
    data_schema = pa.schema([field for field in schema if field.name not in constants])
    only = None if change.difference is None else change.difference.positions(store)
    for _, batch in read_numbered_batches(store, change.file, data_schema, only=only):
        if not schema.names:
            yield batch  # it has a row count, which a batch made of no arrays has not
            continue
        columns = [
            pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
            if field.name in constants
            else batch.column(field.name)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _inserted(commit: Commit, timestamp_ms: int, add: AddFile) -> ChangeFile:
    rows = _live_rows(add.stats, add.deletion_vector)
    return ChangeFile(DataFile.of(add), commit.version, timestamp_ms, add.size, rows, stats=add.stats)


def _revised(
    commit: Commit, timestamp_ms: int, add: AddFile, before: DeletionVectorDescriptor | None, change_type: str
) -> Iterator[ChangeFile]:
    """The rows that died (DELETE) or came back (INSERT) when a file's vector changed from `before` to the add's."""
    dead, live = (add.deletion_vector, before) if change_type == DELETE else (before, add.deletion_vector)
    if dead is None or dead == live:
        return
    difference = VectorDifference(dead, live)
    file = DataFile(add.path, add.partition_values, None)
    rows = difference.rows
    yield ChangeFile(file, commit.version, timestamp_ms, add.size, rows, change_type, difference, stats=add.stats)


def _live_rows(stats: str | None, vector: DeletionVectorDescriptor | None) -> int | None:
    physical = statistics.num_records(stats)
    return None if physical is None else physical - (vector.cardinality if vector else 0)
