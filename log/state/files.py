"""The live files and tombstones of a version, as Arrow columns with the names that a checkpoint uses.

A logical file is a path with the id of its deletion vector; its newest add or remove wins.

Rows are in log order: those of the checkpoint first, in the checkpoint's order, then by commit and, within a commit, by
the order of its actions. A live file that is added again, for example with another deletion vector, keeps its place.
Its rows are as old as before. A path that was removed and comes back in a later commit gets a new place at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import partition_values, statistics_reader
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.statistics_reader import Bounds, Path

# --- what the log knows of many files ---------------------------------------------------------------------------------

Leaf: TypeAlias = tuple[Path, pa.DataType]


class FileValues:
    """Partition values and statistics of `files`, a table with the columns `partitionValues` and `stats`.

    They are decoded column by column, on first use. Columns are named by their physical names. Safe to share between
    threads: at worst, two decode the same column.
    """

    def __init__(self, files: pa.Table) -> None:
        self.files = files
        self._partitions: dict[tuple[str, pa.DataType], tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}
        self._bounds: dict[Leaf, Bounds] = {}
        self._rows: pa.ChunkedArray | None = None

    def partition(self, name: str, kind: pa.DataType) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """A partition column's value in each file, and whether it is known."""
        key = (name, kind)
        if key not in self._partitions:
            self._partitions[key] = partition_values.decode_column(self.files["partitionValues"], name, kind)
        return self._partitions[key]

    def rows(self) -> pa.ChunkedArray:
        """The physical row count of each file, including dead rows; null if its statistics lack it."""
        if self._rows is None:
            self._rows = statistics_reader.read_row_counts(self.files["stats"])
        return self._rows

    def live_rows(self) -> pa.ChunkedArray:
        """The number of live rows in each file; null if its statistics lack the row count."""
        dead = pc.fill_null(pc.struct_field(self.files["deletionVector"], "cardinality"), 0)
        live = pc.subtract(self.rows(), dead)
        return pc.if_else(pc.greater_equal(live, 0), live, pa.scalar(None, pa.int64()))

    def bounds(self, leaf: Leaf) -> Bounds:
        """The bounds of a leaf column in each file."""
        self.load([leaf])
        return self._bounds[leaf]

    def load(self, leaves: Iterable[Leaf]) -> None:
        """Decode the bounds of several leaf columns in one pass over the statistics."""
        missing = {path: kind for path, kind in leaves if (path, kind) not in self._bounds}
        if missing:
            self._rows, found = statistics_reader.read_bounds(self.files["stats"], missing)
            self._bounds |= {(path, missing[path]): bounds for path, bounds in found.items()}

    def has(self, leaves: Iterable[Leaf]) -> bool:
        """Whether the bounds of all these leaf columns are already decoded."""
        return all(leaf in self._bounds for leaf in leaves)


# --- the order of live files ------------------------------------------------------------------------------------------

# Up to this many rows are dropped or moved by slicing, which copies nothing; more would create too many chunks.
_MAX_SLICED_ROWS = 64


@dataclass(frozen=True)
class Mentions:
    """Adds or removes, one entry per row: number of the path, number of the logical file, number of the commit."""

    paths: Int64Array
    files: Int64Array
    orders: Int64Array


def places_taken(adds: Mentions, removes: Mentions, live: BoolArray) -> tuple[Int64Array, Int64Array]:
    """The live rows of `adds` that take the place of an earlier row, and those places.

    `adds` are in commit order, `live` marks those that remain. A row continues the previous row of its path unless that
    one's logical file was removed by a commit in between.
    """
    if not len(adds.paths) or np.bincount(adds.paths).max() == 1:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    span = 1 + max(adds.orders.max(), removes.orders.max(initial=0))
    by_path = np.argsort(adds.paths, kind="stable")
    before, after = by_path[:-1], by_path[1:]
    added = adds.files[before] * span + adds.orders[before]
    removals = np.append(np.sort(removes.files * span + removes.orders), np.iinfo(np.int64).max)
    next_removal = removals[np.searchsorted(removals, added, side="right")]
    removed_between = next_removal < adds.files[before] * span + adds.orders[after]
    continues = (adds.paths[before] == adds.paths[after]) & ~removed_between
    # The first row of each chain of rows that continue one another.
    starts = np.append(0, np.where(continues, 0, np.arange(1, len(by_path))))
    place = np.empty(len(by_path), dtype=np.int64)
    place[by_path] = by_path[np.maximum.accumulate(starts)]
    rows = np.flatnonzero(live & ~live[place])
    # Two live files with the same path break the protocol; only the first of them gets the place.
    places, first = np.unique(place[rows], return_index=True)
    return rows[first], places


def without_rows(table: pa.Table, rows: Int64Array) -> pa.Table:
    """The table without `rows`, which are ascending."""
    if len(rows) > _MAX_SLICED_ROWS:
        keep = np.ones(table.num_rows, dtype=bool)
        keep[rows] = False
        return table.filter(pa.array(keep))
    edges = [-1, *rows.tolist(), table.num_rows]
    runs = [(before + 1, after) for before, after in itertools.pairwise(edges) if after > before + 1]
    return pa.concat_tables([table.slice(first, end - first) for first, end in runs] or [table.slice(0, 0)])


def rearranged(table: pa.Table, rows: Int64Array, pool: pa.MemoryPool) -> pa.Table:
    """The given rows of the table, in the given order."""
    if not len(rows):
        return table.slice(0, 0)
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(breaks) <= 2 * _MAX_SLICED_ROWS:
        return _sliced(table, rows, breaks)
    try:
        return pc.take(table, pa.array(rows), boundscheck=False, memory_pool=pool)
    except pa.ArrowInvalid:  # a string column is larger than 2 GiB
        return _taken_in_parts(table, rows)


# So few rows that their text is far below 2 GiB.
_PART_ROWS = 2**14


def _taken_in_parts(table: pa.Table, rows: Int64Array) -> pa.Table:
    """The given rows, of a table with more text than one array can hold."""
    large = [field.with_type(pa.large_string()) if field.type == pa.string() else field for field in table.schema]
    whole = table.cast(pa.schema(large)).combine_chunks()
    parts = (rows[start : start + _PART_ROWS] for start in range(0, len(rows), _PART_ROWS))
    return pa.concat_tables([whole.take(pa.array(part)).cast(table.schema) for part in parts])


def _sliced(table: pa.Table, rows: Int64Array, breaks: Int64Array) -> pa.Table:
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(rows)]
    return pa.concat_tables([table.slice(rows[start], end - start) for start, end in zip(starts, ends, strict=True)])


# --- hashes of paths --------------------------------------------------------------------------------------------------
#
# They find which of a million files a commit can refer to. Equal hashes mean only "maybe the same path"; the caller
# compares the paths themselves. A hash uses two 8-byte words from near the end of the path, where common file names
# have a UUID, and reads them from Arrow's buffers without creating a Python object per file.

Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

# Within the UUID of both `part-00000-<uuid>-c000.snappy.parquet` and `part-<uuid>.parquet`.
_FROM_END = (40, 28)
_WORD = 8
# Up to this many values, comparing with each one is faster than a binary search.
_FEW = 16
_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def path_hashes(paths: pa.ChunkedArray) -> Hashes:
    """One hash per path. Different spellings of the same absolute path have the same hash."""
    if len(paths) and pc.any(pc.starts_with(paths, "file:")).as_py():
        paths = pa.chunked_array([pa.array([canonical(path) for path in paths.to_pylist()], pa.string())])
    chunks = [_chunk_hashes(chunk) for chunk in paths.chunks if len(chunk)]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.uint64)


def is_among(hashes: Hashes, ascending: Hashes) -> BoolArray:
    """For each hash, whether it is one of the `ascending` values, which may repeat.

    NumPy's `isin` and `unique` hash or sort the larger side, which takes seconds for a million values.
    """
    found = np.zeros(len(hashes), dtype=bool)
    if len(ascending) <= _FEW:
        for value in ascending:
            found |= hashes == value
        return found
    places = np.searchsorted(ascending, hashes)
    inside = places < len(ascending)
    found[inside] = ascending[places[inside]] == hashes[inside]
    return found


def _chunk_hashes(paths: pa.StringArray) -> Hashes:
    _, offset_buffer, data_buffer = paths.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[paths.offset : paths.offset + len(paths) + 1]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    if len(data) < _WORD or ends[-1] > len(data) - _WORD:
        # The last words can extend past the buffer's end; the excess bytes are masked out below.
        data = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    words: Hashes = np.ndarray((len(data) - _WORD + 1,), dtype="<u8", buffer=data, strides=(1,))
    result = np.zeros(len(paths), dtype=np.uint64)
    for distance, multiplier in zip(_FROM_END, _MULTIPLIERS, strict=True):
        positions = np.maximum(ends - distance, starts)
        word = words[positions]
        short = ends - positions < _WORD
        if short.any():
            word[short] &= _low_bytes((ends - positions)[short])
        result ^= (word ^ (word >> np.uint64(29))) * multiplier
    return result


def _low_bytes(count: Int64Array) -> Hashes:
    """Masks that keep `count` (0 to 7) low bytes of a little-endian word."""
    return (np.uint64(1) << (count.astype(np.uint64) * np.uint64(8))) - np.uint64(1)


# --- the state --------------------------------------------------------------------------------------------------------

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
        added, removed = commit.adds, commit.removes
        adds.extend(number, added)
        removes.extend(number, removed)
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
                table = without_rows(table, np.flatnonzero(~self._keep))
                self.hashes = self.hashes[self._keep]
            else:
                rows = self._rows(self._keep, *self._moves)
                table = rearranged(table, rows, POOL)
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
    adds.move(*places_taken(additions, removals, newest[count:]))


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


def bare_add_table(actions: Sequence[AddFile]) -> pa.Table:
    """The paths, partition values, sizes and row ids of add actions, as columns of ADD.

    Columns without a value, and all others, have the type null, which takes no memory.
    """
    known = {
        "path": _texts([action.path for action in actions]),
        "partitionValues": _text_maps([action.partition_values for action in actions]),
        "size": _numbers([action.size for action in actions]),
        "baseRowId": _numbers([action.base_row_id for action in actions]),
        "defaultRowCommitVersion": _numbers([action.default_row_commit_version for action in actions]),
    }
    none = pa.nulls(len(actions))
    columns = {name: none if column.null_count == len(actions) else column for name, column in known.items()}
    return pa.table({field.name: columns.get(field.name, none) for field in ADD})


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
    """Convert the rows of a table with the schema ADD to actions: a million take a second and 600 MB.

    Files of one partition share their partition values.
    """
    try:
        columns = [_python_values(table[field.name]) for field in ADD]
    except UnicodeDecodeError as error:
        raise CorruptLogError(
            f"a checkpoint has statistics that are not valid UTF-8: {error}",
            advice="delete that checkpoint if the commits before it still exist, or restore it from a backup",
        ) from error
    return [AddFile(path, partition or {}, *others) for path, partition, *others in zip(*columns, strict=True)]


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


def _python_values(column: pa.ChunkedArray) -> Iterable[Any]:
    """The values of a column of ADD, as an action has them."""
    if column.type == _TEXT_MAP:
        return list(itertools.chain.from_iterable(map(_dictionaries, column.chunks)))
    if column.null_count == len(column):
        return itertools.repeat(None, len(column))
    if column.type == DELETION_VECTOR:
        return (None if row is None else _vector(row) for row in column.to_pylist())
    return column.to_pylist()  # type: ignore[no-any-return]


def _dictionaries(maps: pa.MapArray) -> Iterator[dict[str, str | None] | None]:
    bounds = maps.offsets.to_pylist()
    first, count = bounds[0], bounds[-1] - bounds[0]
    keys, items = (child.slice(first, count).to_pylist() for child in (maps.keys, maps.items))
    bounds = [bound - first for bound in bounds]
    known: dict[tuple[str | None, ...], dict[str, str | None]] = {}
    for start, end, is_valid in zip(bounds[:-1], bounds[1:], maps.is_valid().to_pylist(), strict=True):
        if not is_valid:
            yield None
            continue
        found = (*keys[start:end], *items[start:end])
        if found not in known:
            known[found] = dict(zip(keys[start:end], items[start:end], strict=True))
        yield known[found]


def _vector(row: Mapping[str, Any]) -> DeletionVectorDescriptor:
    return msgspec.convert({name: value for name, value in row.items() if value is not None}, DeletionVectorDescriptor)


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
