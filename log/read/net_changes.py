"""The net effect of a run of changes: at most one row per key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.data.grouping import group_numbers
from tidelog.log.data.reader import BATCH_ROWS
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.data.row_values import differing, shown
from tidelog.log.data.spill import Spill
from tidelog.log.data.writer import CHANGE_TYPE
from tidelog.log.errors import DuplicateKeyError
from tidelog.log.read.change_files import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    INSERT,
    UPDATE_POSTIMAGE,
    UPDATE_PREIMAGE,
)

POSITION = "\0position"
"""A column that `net_changes` treats as a part of the version; no table can have a column of that name."""
_STAMPS = (COMMIT_VERSION, COMMIT_TIMESTAMP, POSITION)
_CHANGE_COLUMNS = frozenset({CHANGE_TYPE, *_STAMPS})


def net_changes(changes: pa.Table, keys: Sequence[str], path: str, *, pre_images: bool = False) -> pa.Table:
    """Reduce `changes` (mode `cdc`, in commit order) to the net effect on each key, ordered by commit version.

    - a key that is new: `insert` with its last row
    - a key that is gone: `delete` with its first row
    - a key that has a different row: `update_postimage` with its last row; with `pre_images`, before it
      `update_preimage` with its first row
    - a key that was neither there before nor after, or has an equal row again: nothing

    Version and time are those of the key's last change. As a key, null is equal to null.

    Raises DuplicateKeyError if the changes show that a key has several rows at a time, because then its net effect is
    not one row. A row that no commit of the interval touches is not in `changes`, so nothing is known of it.
    """
    if not changes.num_rows:
        return changes
    first, last, existed, exists = _ends(changes, keys, path)
    keep = (existed != exists) | (existed & exists & _differ(changes, first, last))
    # A deleted key shows the row that it had before the interval.
    shown_rows = np.where(exists, last, first)[keep]
    kinds = np.where(exists, np.where(existed, UPDATE_POSTIMAGE, INSERT), DELETE)[keep]
    stamped = last[keep]
    if pre_images:
        updated = keep & existed & exists
        shown_rows = np.concatenate([first[updated], shown_rows])
        kinds = np.concatenate([np.full(updated.sum(), UPDATE_PREIMAGE), kinds])
        stamped = np.concatenate([last[updated], stamped])
    by_version = np.argsort(stamped, kind="stable")
    return _assembled(changes, shown_rows[by_version], stamped[by_version], kinds[by_version])


def fold_changes(changes: pa.Table, keys: Sequence[str], path: str) -> pa.Table:
    """Changes with the same net effect as `changes`, also together with later ones, and at most two for each key.

    The rows between a key's first and last change do not matter. What does is whether the key was there before, with
    which row, and whether it is there now, with which row:

    - there before and now: the old row, then the new one
    - gone: the old row, as deleted by the last change
    - new: the new row
    - there neither before nor now: its last row, as inserted by the first change and deleted by the last one

    Raises DuplicateKeyError as `net_changes` does.
    """
    first, last, existed, exists = _ends(changes, keys, path)
    begins = existed == exists  # with a row of its own
    data = np.concatenate([np.where(existed, first, last)[begins], np.where(exists | ~existed, last, first)])
    stamps = np.concatenate([first[begins], last])
    kinds = np.concatenate([np.where(existed, DELETE, INSERT)[begins], np.where(exists, INSERT, DELETE)])
    return _assembled(changes, data, stamps, kinds)


def _ends(changes: pa.Table, keys: Sequence[str], path: str) -> tuple[Int64Array, Int64Array, BoolArray, BoolArray]:
    """For each key the places of its first and its last change, and whether it was there before and is there after.

    Raises DuplicateKeyError.
    """
    # Sort by key, then by version, and within a version old rows before new rows.
    is_old = pc.is_in(changes[CHANGE_TYPE], value_set=pa.array([DELETE, UPDATE_PREIMAGE]))
    is_new = np.array(pc.invert(is_old))
    groups = np.array(group_numbers(changes, list(keys)))
    order = np.lexsort((is_new, np.array(changes[COMMIT_VERSION]), groups))
    groups, is_new = groups[order], is_new[order]
    same_group = groups[1:] == groups[:-1]
    doubled = np.flatnonzero(same_group & (is_new[1:] == is_new[:-1]))
    if not len(doubled):
        # Old and new rows take turns. An old row that is not the new row before it was there beside that one.
        returned = np.flatnonzero(same_group & is_new[:-1])
        doubled = returned[_differ(changes, order[returned], order[returned + 1])]
    if len(doubled):
        row = changes.slice(int(order[doubled[0]]), 1)
        raise _duplicate(row, list(keys), path)
    first = np.concatenate([[True], ~same_group])
    last = np.concatenate([~same_group, [True]])
    return order[first], order[last], ~is_new[first], is_new[last]


def _assembled(changes: pa.Table, data: Int64Array, stamps: Int64Array, kinds: Any) -> pa.Table:
    """The data columns of the rows `data` with the commit version and time of the rows `stamps`."""
    shown_rows, stamped = changes.take(pa.array(data)), changes.take(pa.array(stamps))
    columns = []
    for field in changes.schema:
        if field.name == CHANGE_TYPE:
            columns.append(pa.chunked_array([pa.array(kinds, pa.string())]))
        else:
            columns.append((stamped if field.name in _STAMPS else shown_rows)[field.name])
    return pa.table(columns, schema=changes.schema)


def _differ(changes: pa.Table, left: Any, right: Any) -> BoolArray:
    """Whether each pair of rows differs in any column of the table."""
    result = np.zeros(len(left), dtype=bool)
    data = changes.select([name for name in changes.column_names if name not in _CHANGE_COLUMNS])
    apart = np.flatnonzero(left != right)
    result[apart] = differing(data.take(pa.array(left[apart])), data.take(pa.array(right[apart])))
    return result


def _duplicate(row: pa.Table, keys: list[str], path: str) -> DuplicateKeyError:
    key = shown(row.select(keys))
    version = row[COMMIT_VERSION][0].as_py()
    return DuplicateKeyError(
        f"the key {key} of {path} has several rows at a time in version {version}, so its net effect is not one row",
        advice="read with the change mode 'cdc', or make the keys unique",
        path=path,
        key=str(key),
    )


# --- the same for an interval of any size -----------------------------------------------------------------------------
#
# A table with changes that reaches the bound is folded: of each key, only what later changes need is kept. If that does
# not make it much smaller, there are many keys. They are split by a hash, in a temporary file, into parts that are
# reduced on their own, and split again if they are still too large. The results are put in order in the same way: split
# by their position in the interval, into parts that are sorted in memory.

NET_BYTES = 2**25
"""The size of the changes that are reduced at once. Reducing them takes a few times as much."""
PARTS = 64
# A hash has bits for so many splits, which are enough for 2**30 times NET_BYTES of keys.
_MAX_DEPTH = 5
_PART_BITS = 6
_MIX = np.uint64(0x9E3779B97F4A7C15)


def net_change_batches(
    changes: Iterable[pa.RecordBatch], schema: pa.Schema, keys: Sequence[str], path: str
) -> Iterator[pa.RecordBatch]:
    """The net effect of `changes` (mode `cdc`, in commit order), as `net_changes` defines it, in its order.

    Raises DuplicateKeyError before the first batch, and StoreUnavailableError if there is no space for temporary files.
    """
    numbered = _Numbered(changes, schema)
    results = _reduced(iter(numbered), keys, path, 0)
    first = next(results)
    if not numbered.is_large:
        yield from _batches(first)
        return
    with Spill(first.schema, len(numbered.bounds) + 1) as in_order:
        for result in chain([first], results):
            positions = result[POSITION].to_numpy()
            in_order.add(result, np.searchsorted(numbered.bounds, positions, side="right"))
        del first, result
        for part in in_order.parts():
            yield from _batches(pa.concat_tables(part).sort_by(POSITION))


class _Numbered:
    """The changes as tables with their positions in the interval."""

    def __init__(self, changes: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._changes = changes
        self._schema = schema.append(pa.field(POSITION, pa.int64()))
        self.is_large = False
        """Whether there are, so far, more changes than are reduced at once."""
        self.bounds: list[int] = []
        """The positions at which about NET_BYTES / 2 of changes have come since the last one."""

    def __iter__(self) -> Iterator[pa.Table]:
        position = total = 0
        for batch in self._changes:
            numbers = pa.array(np.arange(position, position + batch.num_rows))
            table = pa.Table.from_arrays([*batch.columns, numbers], schema=self._schema)
            position += batch.num_rows
            total += table.nbytes
            self.is_large = self.is_large or total > NET_BYTES
            if total > NET_BYTES / 2 * (len(self.bounds) + 1):
                self.bounds.append(position)
            yield table
        if not position:
            yield self._schema.empty_table()


def _reduced(tables: Iterator[pa.Table], keys: Sequence[str], path: str, depth: int) -> Iterator[pa.Table]:
    """The net changes of each of the parts into which the changes had to be split; their rows are in no order."""
    held: list[pa.Table] = []
    held_bytes = 0
    for table in tables:
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes > NET_BYTES:
            held = [fold_changes(pa.concat_tables(held), keys, path)]
            held_bytes = held[0].nbytes
            if held_bytes > NET_BYTES / 2 and depth < _MAX_DEPTH:
                break
    else:
        yield net_changes(pa.concat_tables(held), keys, path)
        return
    with Spill(held[0].schema, PARTS) as by_key:
        for table in chain(held, tables):
            by_key.add(table, _parts(table, keys, depth))
            held.clear()
        for part in by_key.parts():
            yield from _reduced(part, keys, path, depth + 1)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.drop_columns([POSITION]).to_batches(BATCH_ROWS)  # type: ignore[no-any-return]


def _parts(table: pa.Table, keys: Sequence[str], depth: int) -> Int64Array:
    """The part of each row, which is the same for equal keys, by bits of the hash that no smaller `depth` uses."""
    columns = [pa.concat_arrays(table[name].chunks) for name in keys]
    # -0.0 and 0.0 are equal, as in `group_numbers`; the hash takes null as equal to null, and NaN to NaN.
    plain = [pc.add(column, pa.scalar(0, column.type)) if pt.is_floating(column.type) else column for column in columns]
    (hashes,) = row_hashes(plain, table.num_rows, halves=1)
    shift = np.uint64(64 - _PART_BITS * (depth + 1))
    parts: Int64Array = ((hashes * _MIX >> shift) & np.uint64(PARTS - 1)).astype(np.int64)
    return parts
