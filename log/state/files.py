"""The live files and tombstones of a version, as Arrow columns with the names that a checkpoint uses.

A logical file is a path with the id of its deletion vector; its newest add or remove wins.

Rows are in log order: those of the checkpoint first, in the checkpoint's order, then by commit and, within a commit, by
the order of its actions. A live file that is added again, for example with another deletion vector, keeps its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.state import file_order
from tidelog.log.state.file_order import Mentions
from tidelog.log.state.file_values import FileValues
from tidelog.log.state.path_hashes import Hashes, is_among, path_hashes

_TEXT_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXT_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXT_MAP),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)
# A checkpoint's remove has neither stats nor tags (protocol, "Checkpoint Schema").
REMOVE = pa.schema(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXT_MAP),
        ("size", pa.int64()),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)

_T = TypeVar("_T", AddFile, RemoveFile)

# Arrow's default allocator returns memory to the system and faults it in again; a replay of a million files took twice
# as long with it as with the C library's.
POOL = pa.system_memory_pool()
# Each chunk makes every scan slower, so columns with more chunks are copied into one.
_MAX_CHUNKS = 256
# Creating an Arrow table has a fixed cost, so small commits share one table of at least this many rows.
_TABLE_ROWS = 4096


@dataclass(frozen=True)
class FileState:
    """The live files `adds` (schema ADD) and the tombstones `removes` (schema REMOVE), both in log order."""

    adds: pa.Table
    removes: pa.Table

    @cached_property
    def values(self) -> FileValues:
        """The live files' partition values and statistics, decoded on demand."""
        return FileValues(self.adds)

    @cached_property
    def add_hashes(self) -> Hashes:
        """A hash of each live file's path."""
        return path_hashes(self.adds["path"])

    @cached_property
    def remove_hashes(self) -> Hashes:
        """A hash of each tombstone's path."""
        return path_hashes(self.removes["path"])


# Built from no batches, because `empty_table` makes pyarrow import pandas, which is slow.
EMPTY = FileState(pa.Table.from_batches([], schema=ADD), pa.Table.from_batches([], schema=REMOVE))


def apply(state: FileState, commits: Iterable[Commit]) -> FileState:
    """The state after `commits`, oldest first: the newest reference to a logical file wins.

    Works on whole columns and compares keys only if a path may occur more than once. So the cost of a refresh depends
    on the size of the commits, and a replay builds no keys for files that are mentioned once.
    """
    adds, removes = _Side(state.adds, add_table), _Side(state.removes, remove_table)
    for number, commit in enumerate(commits, start=1):
        adds.extend(number, commit.adds)
        removes.extend(number, commit.removes)
    adds.flush()
    removes.flush()
    if len(adds.tables) == 1 and len(removes.tables) == 1:
        return state
    adds.hashes = np.concatenate([state.add_hashes, adds.appended_hashes()])
    removes.hashes = np.concatenate([state.remove_hashes, removes.appended_hashes()])
    _suspect_repeated(adds, removes)
    if adds.suspects.any() or removes.suspects.any():
        _drop_superseded(adds, removes)
    result = FileState(adds.result(), removes.result())
    result.__dict__["add_hashes"] = adds.hashes
    result.__dict__["remove_hashes"] = removes.hashes
    return result


class _Side:
    """The adds or the removes: a base and the rows that commits append, each with its commit's number (base: 0)."""

    def __init__(self, base: pa.Table, to_table: Callable[[Any], pa.Table]) -> None:
        self.tables = [base]
        self._to_table = to_table
        self._waiting: list[Any] = []
        self.hashes = np.zeros(0, dtype=np.uint64)
        self.suspects = np.zeros(0, dtype=bool)
        self._orders = [np.zeros(base.num_rows, dtype=np.int64)]
        self._waiting_orders: list[Int64Array] = []
        self._keep: BoolArray | None = None
        self._moves: tuple[Int64Array, Int64Array] | None = None

    def extend(self, number: int, actions: Sequence[Any]) -> None:
        """Append the actions of one commit. Those of small commits wait until there are enough for a table."""
        if not actions:
            return
        self._waiting += actions
        self._waiting_orders.append(np.full(len(actions), number, dtype=np.int64))
        if len(self._waiting) >= _TABLE_ROWS:
            self.flush()

    def flush(self) -> None:
        """Convert the waiting actions to a table."""
        if self._waiting:
            self.tables.append(self._to_table(self._waiting))
            self._orders += self._waiting_orders
            self._waiting, self._waiting_orders = [], []

    def appended_hashes(self) -> Hashes:
        """The path hashes of the rows that commits appended."""
        if len(self.tables) == 1:
            return np.zeros(0, dtype=np.uint64)
        return path_hashes(pa.concat_tables(self.tables[1:])["path"])

    def table(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables(self.tables)

    def orders(self) -> Int64Array:
        """The commit number of each row."""
        return np.concatenate(self._orders)

    def decide(self, newest: BoolArray) -> None:
        """Of the suspects, keep only those that are `newest`."""
        self._keep = np.ones(len(self.suspects), dtype=bool)
        self._keep[np.flatnonzero(self.suspects)] = newest

    def move(self, rows: Int64Array, places: Int64Array) -> None:
        """Put `rows` at `places`, whose rows are dropped. Both count only suspects."""
        if len(rows):
            positions = np.flatnonzero(self.suspects)
            self._moves = positions[rows], positions[places]

    def result(self) -> pa.Table:
        """The rows to keep; copied into one chunk if there are very many."""
        table = self.table()
        if self._keep is not None and not self._keep.all():
            if self._moves is None:
                table = file_order.without(table, np.flatnonzero(~self._keep))
                self.hashes = self.hashes[self._keep]
            else:
                rows = self._rows(self._keep, *self._moves)
                table = file_order.rearranged(table, rows, POOL)
                self.hashes = self.hashes[rows]
        return table.combine_chunks() if table["path"].num_chunks > _MAX_CHUNKS else table

    def _rows(self, keep: BoolArray, moved: Int64Array, places: Int64Array) -> Int64Array:
        """The rows to keep, in their final order."""
        rows = np.arange(len(keep))
        rows[places] = moved
        filled = keep.copy()
        filled[places], filled[moved] = True, False
        return rows[filled]


def _suspect_repeated(adds: _Side, removes: _Side) -> None:
    """Mark the rows whose path may occur both in a commit and before it, judging by hashes.

    The base has each logical file once, so a path that no commit mentions cannot be superseded.
    """
    sides = (adds, removes)
    base_sizes = [side.tables[0].num_rows for side in sides]
    bases = [side.hashes[:size] for side, size in zip(sides, base_sizes, strict=True)]
    appended = [side.hashes[size:] for side, size in zip(sides, base_sizes, strict=True)]
    named = np.sort(np.concatenate(appended))
    repeated = named[1:][named[1:] == named[:-1]]
    in_base = [is_among(base, named) for base in bases]
    hit = np.sort(np.concatenate([repeated, *(base[mask] for base, mask in zip(bases, in_base, strict=True))]))
    for side, mask, fresh in zip(sides, in_base, appended, strict=True):
        side.suspects = np.concatenate([mask, is_among(fresh, hit)])


def _drop_superseded(adds: _Side, removes: _Side) -> None:
    """Among the suspects, keep the newest row of each logical file.

    A commit should not both add and remove a logical file. If one does, the add counts.
    """
    removed, added = (side.table().filter(pa.array(side.suspects)) for side in (removes, adds))
    orders = np.concatenate([side.orders()[side.suspects] for side in (removes, adds)])
    logical_files = paths = _numbered(keys(removed), keys(added))
    if any(table["deletionVector"].null_count < len(table) for table in (removed, added)):
        paths = _numbered(_canonical_paths(removed), _canonical_paths(added))
    newest = _newest_rows(logical_files, orders)
    count = len(removed)
    removes.decide(newest[:count])
    adds.decide(newest[count:])
    removals = Mentions(paths[:count], logical_files[:count], orders[:count])
    additions = Mentions(paths[count:], logical_files[count:], orders[count:])
    adds.move(*file_order.moves(additions, removals, newest[count:]))


def _numbered(*columns: pa.ChunkedArray) -> Int64Array:
    """One number per value of these columns, together; equal values have equal numbers."""
    values = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    numbers: Int64Array = values.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def add_table(actions: Sequence[AddFile]) -> pa.Table:
    """Convert add actions to a table with the schema ADD."""
    columns = [
        _texts([action.path for action in actions]),
        _text_maps([action.partition_values for action in actions]),
        _numbers([action.size for action in actions]),
        _numbers([action.modification_time for action in actions]),
        pa.array([action.data_change for action in actions], pa.bool_()),
        _texts([action.stats for action in actions]),
        _text_maps([action.tags for action in actions]),
        _vectors([action.deletion_vector for action in actions]),
        _numbers([action.base_row_id for action in actions]),
        _numbers([action.default_row_commit_version for action in actions]),
        _texts([action.clustering_provider for action in actions]),
    ]
    return pa.table(columns, schema=ADD)


def remove_table(actions: Sequence[RemoveFile]) -> pa.Table:
    """Convert remove actions to a table with the schema REMOVE."""
    columns = [
        _texts([action.path for action in actions]),
        _numbers([action.deletion_timestamp for action in actions]),
        pa.array([action.data_change for action in actions], pa.bool_()),
        pa.array([action.extended_file_metadata for action in actions], pa.bool_()),
        _text_maps([action.partition_values for action in actions]),
        _numbers([action.size for action in actions]),
        _vectors([action.deletion_vector for action in actions]),
        _numbers([action.base_row_id for action in actions]),
        _numbers([action.default_row_commit_version for action in actions]),
    ]
    return pa.table(columns, schema=REMOVE)


def to_adds(table: pa.Table) -> list[AddFile]:
    """Convert the rows of a table with the schema ADD to actions. Slow, so meant for few files."""
    return [_from_row(row, AddFile) for row in _rows(table)]


def to_removes(table: pa.Table) -> list[RemoveFile]:
    """Convert the rows of a table with the schema REMOVE to actions. Slow, so meant for few files."""
    return [_from_row(row, RemoveFile) for row in _rows(table)]


def keys(table: pa.Table) -> pa.ChunkedArray:
    """Each row's logical file as one string: its canonical path, a null character and its deletion vector's id."""
    path = _canonical_paths(table)
    vector = table["deletionVector"]
    if vector.null_count == len(vector):
        return path
    base = pc.binary_join_element_wise(
        path, pc.struct_field(vector, "storageType"), pc.struct_field(vector, "pathOrInlineDv"), "\0"
    )
    offset = pc.struct_field(vector, "offset").cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(base, offset, "@"), base, path)


def _canonical_paths(table: pa.Table) -> pa.ChunkedArray:
    path = table["path"]
    if pc.any(pc.starts_with(path, "file:")).as_py():
        return pa.chunked_array([pa.array([canonical(text) for text in path.to_pylist()], pa.string())])
    return path


def _texts(values: Sequence[str | None]) -> pa.Array:
    return pa.array(values, pa.string(), memory_pool=POOL)


def _numbers(values: Sequence[int | None]) -> pa.Array:
    return pa.array(values, pa.int64(), memory_pool=POOL)


def _text_maps(values: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    if not any(values):
        empty = pa.MapArray.from_arrays(pa.array([0] * (len(values) + 1), pa.int32()), _texts([]), _texts([]))
        return empty if None not in values else pa.array(values, _TEXT_MAP)
    if None in values:
        return pa.array([None if value is None else list(value.items()) for value in values], _TEXT_MAP)
    present: Sequence[Mapping[str, str | None]] = [value for value in values if value is not None]
    offsets = list(itertools.accumulate(map(len, present), initial=0))
    keys = [key for value in present for key in value]
    items = [item for value in present for item in value.values()]
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), _texts(keys), _texts(items))


def _vectors(values: Sequence[DeletionVectorDescriptor | None]) -> pa.Array:
    if not any(values):
        return pa.nulls(len(values), DELETION_VECTOR)
    rows = [None if value is None else msgspec.to_builtins(value) for value in values]
    return pa.array(rows, DELETION_VECTOR)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    try:
        return table.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError as error:
        raise CorruptLogError(
            f"a checkpoint has statistics that are not valid UTF-8: {error}",
            advice="delete that checkpoint if the commits before it still exist, or restore it from a backup",
        ) from error


def _from_row(row: dict[str, Any], kind: type[_T]) -> _T:
    values = {name: value for name, value in row.items() if value is not None}
    for name in ("partitionValues", "tags"):
        if name in values:
            values[name] = dict(values[name])
    if "partitionValues" not in values and kind is AddFile:
        values["partitionValues"] = {}
    return msgspec.convert(values, kind)


def _newest_rows(logical_files: Int64Array, orders: Int64Array) -> BoolArray:
    """For each row, whether it has the highest order among the rows of its logical file.

    If several rows have the same logical file and order (a writer's duplicate), the last one counts.
    """
    ascending = np.argsort(orders, kind="stable")
    last = np.empty(logical_files.max() + 1, dtype=np.int64)
    # NumPy assigns repeated indices in order, so the newest row of each logical file remains.
    last[logical_files[ascending]] = ascending
    newest = np.zeros(len(orders), dtype=bool)
    newest[last] = True
    return newest


def drop_expired_tombstones(state: FileState, before_ms: int) -> FileState:
    """The state without the tombstones of files removed before `before_ms`."""
    age = pc.fill_null(state.removes["deletionTimestamp"], 0)
    return FileState(state.adds, state.removes.filter(pc.greater_equal(age, before_ms)))
