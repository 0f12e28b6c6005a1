"""Tombstones: keys that were deleted, and the order of the record, or of the row, with which each went.

A record that comes later, and is older, must not bring such a row back. Nothing else in the table knows of a row that
is gone, so a tombstone is no hint: the files are named by commits, and a damaged one is an error.

A record of an equal order replaces the tombstone that a deleting record left. It has no effect where a DELETE removed
the row, because the record that made the row may come again: then the tombstone wins ties.

A file is parquet below `_tidelog/tombstones/`, with rows for keys: the key columns, the columns of the order, when the
row was written, and whether it wins ties. Files of older versions lack the last column: their rows do not. The rows are
in the order of the keys, so that a reader of few keys reads few row groups.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.ordering import ranks
from tidelog.log.data.tombstone_cache import MOST_CACHED_BYTES, cache_tombstones, cached_tombstones
from tidelog.log.errors import CorruptLogError, TidelogError
from tidelog.log.format.actions import Metadata
from tidelog.log.format.schema import columns_of, physical_name
from tidelog.log.format.tombstone_list import TombstoneFile
from tidelog.log.storage import Store
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

TOMBSTONE_FOLDER = "_tidelog/tombstones"
# Names of columns in memory, which no column of a table has: when a row was written, whether it wins ties, and those of
# an order begin so.
WRITTEN_MS, WINS_TIES = "\x1f", "\x1f\x1f"
_KEY, _ORDER, _WRITTEN_MS, _WINS_TIES, _TABLE = "key.", "order.", "written_ms", "wins_ties", b"tidelog.table"
_GROUP_ROWS = 2**12
# So many row groups are read at a time.
_GROUPS_AT_ONCE = 32
# A file is read whole, and stays in memory, if it has few rows, or more than this share of its row groups is asked for.
_FEW_ROWS, _FEW_GROUPS = 2**16, 1 / 8


@dataclass(frozen=True, slots=True)
class TombstoneColumns:
    """The columns of a table's tombstones, as the table has them: those of its key, and those of an order."""

    table_id: str
    keys: pa.Schema
    order: pa.Schema

    def fit(self, file: TombstoneFile) -> bool:
        """Whether the rows of a file have this key, and were compared by this order."""
        return set(file.keys) == set(_physical(self.keys)) and list(file.order) == _physical(self.order)

    @property
    def names(self) -> list[str]:
        """The names of the columns of tombstones in memory. A column can be in the key and in the order."""
        return [*self.keys.names, *order_names(self.order.names), WRITTEN_MS, WINS_TIES]

    @property
    def stored(self) -> list[str]:
        """The names of the same columns in a file."""
        keys, order = _physical(self.keys), _physical(self.order)
        return [*(f"{_KEY}{name}" for name in keys), *(f"{_ORDER}{name}" for name in order), _WRITTEN_MS, _WINS_TIES]

    @property
    def types(self) -> list[pa.DataType]:
        """Their types."""
        return [*self.keys.types, *self.order.types, pa.int64(), pa.bool_()]


def tombstone_columns(metadata: Metadata, path: str, keys: Sequence[str], order: Sequence[str]) -> TombstoneColumns:
    """The columns of a table's tombstones by these columns of its key and of an order; `path` is for errors."""
    schema = columns_of(metadata, path)
    of_keys, of_order = (pa.schema([schema.field(name) for name in names]) for names in (keys, order))
    return TombstoneColumns(metadata.id, of_keys, of_order)


def order_names(names: Sequence[str]) -> list[str]:
    """The names of the columns of an order beside those of a key."""
    return [f"{WRITTEN_MS}{name}" for name in names]


def _physical(schema: pa.Schema) -> list[str]:
    return [physical_name(field) for field in schema]


def write_tombstones(store: Store, system: System, columns: TombstoneColumns, rows: pa.Table) -> TombstoneFile:
    """Write tombstones, with the columns `columns.names`, to a new file, durable on return."""
    rows = rows.select(columns.names)
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns.keys.names]))
    stored = rows.rename_columns(columns.stored).replace_schema_metadata({_TABLE: columns.table_id.encode()})
    path = f"{TOMBSTONE_FOLDER}/{system.uuid()}.parquet"
    with store.create(path) as file:
        pq.write_table(stored, file, row_group_size=_GROUP_ROWS, write_page_checksum=True, compression="zstd")
    keys, order = tuple(_physical(columns.keys)), tuple(_physical(columns.order))
    return TombstoneFile(path, rows.num_rows, pc.max(rows[WRITTEN_MS]).as_py(), keys, order)


def read_tombstones(
    store: Store, file: TombstoneFile, columns: TombstoneColumns, keys: pa.Table | None = None
) -> Iterator[pa.Table]:
    """The tombstones of a file that fits, with the columns `columns.names`; with `keys`, at least those of these keys.

    A file that is gone has none, as another engine's clean-up can have deleted it: that is said in the log. Raises
    CorruptLogError for a file that is damaged.
    """
    if keys is not None and any(keys.schema.field(field.name).type != field.type for field in columns.keys):
        keys = None
    kept = cached_tombstones(store, file.path, pa.schema(zip(columns.names, columns.types, strict=True)))
    if kept is not None:
        yield kept.rows if keys is None else kept.of(keys)
        return
    try:
        with pq.ParquetFile(store.open_input(file.path), page_checksum_verification=True) as parquet:
            _require_whole(parquet, file, columns)
            groups = _groups(parquet, columns, keys)
            # Who asks for no keys reads the file once, to merge it.
            room = MOST_CACHED_BYTES if keys is not None and len(groups) == parquet.num_row_groups else 0
            held: list[pa.Table] = []
            for start in range(0, len(groups), _GROUPS_AT_ONCE):
                held += _typed(parquet.read_row_groups(groups[start : start + _GROUPS_AT_ONCE]), columns)
                if sum(rows.nbytes for rows in held) > room:
                    yield from held
                    held, room = [], 0
            if held and keys is not None and sum(rows.num_rows for rows in held) == file.rows:
                kept = cache_tombstones(store, file.path, pa.concat_tables(held), columns.keys.names)
            yield from held if kept is None or keys is None else [kept.of(keys)]
    except FileNotFoundError:
        _LOGGER.warning("the tombstones in %s of %s are lost: the file is gone", file.path, store.url)
    except TidelogError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptLogError(
            f"the tombstones in {file.path} of {store.url} cannot be read: {error}",
            advice="restore the file from a backup, or delete it: then late records can bring deleted rows back",
            path=store.url,
        ) from error


def _require_whole(parquet: pq.ParquetFile, file: TombstoneFile, columns: TombstoneColumns) -> None:
    """Raise ValueError if the file is not the one that the commit names."""
    table = (parquet.schema_arrow.metadata or {}).get(_TABLE, b"").decode(errors="replace")
    if parquet.metadata.num_rows != file.rows or table != columns.table_id:
        raise ValueError(f"it has {parquet.metadata.num_rows} rows of the table {table!r}")


def _typed(stored: pa.Table, columns: TombstoneColumns) -> Iterator[pa.Table]:
    """The rows of a file in the types and names that the table has now.

    Nothing if they have other types, because another engine has given the table new columns of the same names. That is
    said in the log.
    """
    if _WINS_TIES not in stored.column_names:
        stored = stored.append_column(_WINS_TIES, pa.array(np.zeros(stored.num_rows, dtype=bool)))
    fields = list(zip(columns.names, columns.stored, columns.types, strict=True))
    try:
        yield pa.table({name: stored[own].cast(kind) for name, own, kind in fields})
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        _LOGGER.warning("tombstones of the table %s have other types and do not count: %s", columns.table_id, error)


def _groups(parquet: pq.ParquetFile, columns: TombstoneColumns, keys: pa.Table | None) -> list[int]:
    """The row groups that can have one of the keys, by the statistics of the first column; all if they are many."""
    metadata = parquet.metadata
    groups = list(range(metadata.num_row_groups))
    name = columns.stored[0]
    kind = columns.keys.types[0]
    is_known = pt.is_integer(kind) or pt.is_string(kind) or pt.is_date32(kind)
    if keys is None or metadata.num_rows <= _FEW_ROWS or not is_known or parquet.schema_arrow.field(name).type != kind:
        return groups
    wanted: list[Any] = sorted(keys[columns.keys.names[0]].unique().to_pylist())
    place = [metadata.schema.column(number).name for number in range(metadata.num_columns)].index(name)
    chosen = []
    for group in groups:
        bounds = metadata.row_group(group).column(place).statistics
        if bounds is None or not bounds.has_min_max:
            chosen.append(group)
            continue
        at = bisect.bisect_left(wanted, bounds.min)
        if at < len(wanted) and wanted[at] <= bounds.max:
            chosen.append(group)
    return chosen if len(chosen) <= _FEW_GROUPS * len(groups) else groups


# --- merging ----------------------------------------------------------------------------------------------------------

# So many files of about the same size are merged into one. Larger ones stay until all of their rows are too old.
_FAN_OUT = 8
MERGED_ROWS = 2**19


def files_to_merge(files: Sequence[TombstoneFile], columns: TombstoneColumns) -> list[TombstoneFile]:
    """The files that are worth merging now: those of a size and below, if there are many of that size.

    Merging holds their rows in memory, so there are no more than _FAN_OUT of the largest would have. A commit can leave
    hundreds of files.
    """
    small = [file for file in files if columns.fit(file) and file.rows <= MERGED_ROWS]
    levels = [int(np.log(max(file.rows, 1)) / np.log(_FAN_OUT)) for file in small]
    for level in sorted(set(levels)):
        if levels.count(level) >= _FAN_OUT:
            chosen = [file for file, own in zip(small, levels, strict=True) if own <= level]
            rows_until = np.cumsum([file.rows for file in chosen])
            return chosen[: int(np.searchsorted(rows_until, _FAN_OUT * MERGED_ROWS, side="right"))]
    return []


def merge_tombstones(
    store: Store, system: System, columns: TombstoneColumns, files: Sequence[TombstoneFile], expired_ms: int
) -> TombstoneFile | None:
    """Write the tombstones of some files to one, without those from before `expired_ms`; None if none is left.

    Of each key it has the greatest order, and what is less but newer, which counts longer. Raises CorruptLogError.
    """
    found = [table for file in files for table in read_tombstones(store, file, columns)]
    rows = pa.concat_tables(found) if found else None
    rows = None if rows is None else rows.filter(pc.greater_equal(rows[WRITTEN_MS], expired_ms))
    if rows is None or not rows.num_rows:
        return None
    return write_tombstones(store, system, columns, rows.filter(pa.array(_that_count(rows, columns))))


def _that_count(rows: pa.Table, columns: TombstoneColumns) -> BoolArray:
    """Which tombstones say something that no other one of their key says for as long."""
    codes = np.asarray(group_numbers(rows, columns.keys.names), dtype=np.int64)
    order = ranks(rows, [*order_names(columns.order.names), WINS_TIES])
    times, written = np.unique(np.asarray(rows[WRITTEN_MS]), return_inverse=True)
    # Of each key the greatest first, and then only what is newer than all before it.
    by_key = np.lexsort((-written, -order, codes))
    ages = codes[by_key] * len(times) + written[by_key]
    is_newer = np.ones(len(ages), dtype=bool)
    is_newer[1:] = ages[1:] > np.maximum.accumulate(ages)[:-1]
    found = np.zeros(len(ages), dtype=bool)
    found[by_key] = is_newer
    return found
