"""Keep live files in commit order: a file that is added again takes the place of its earlier row.

A commit that gives a file another deletion vector removes its path and adds it again. Its rows are as old as before, so
the file keeps its place. A path that was removed and comes back in a later commit gets a new place at the end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray, Int64Array

# Up to this many rows are dropped or moved by slicing, which copies nothing; more would create too many chunks.
_MAX_SLICED_ROWS = 64


@dataclass(frozen=True)
class Mentions:
    """Adds or removes, one entry per row: number of the path, number of the logical file, number of the commit."""

    paths: Int64Array
    files: Int64Array
    orders: Int64Array


def moves(adds: Mentions, removes: Mentions, live: BoolArray) -> tuple[Int64Array, Int64Array]:
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


def without(table: pa.Table, rows: Int64Array) -> pa.Table:
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
        return _sliced(table, rows, breaks)


def _sliced(table: pa.Table, rows: Int64Array, breaks: Int64Array) -> pa.Table:
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(rows)]
    return pa.concat_tables([table.slice(rows[start], end - start) for start, end in zip(starts, ends, strict=True)])
