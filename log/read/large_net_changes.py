"""The net changes of an interval of any size, within a memory bound.

A table with changes that reaches the bound is folded: of each key, only what later changes need is kept. If that does
not make it much smaller, there are many keys. They are split by a hash, in a temporary file, into parts that are
reduced on their own, and split again if they are still too large. The results are put in order in the same way: split
by their position in the interval, into parts that are sorted in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import Int64Array
from tidelog.log.data.reader import BATCH_ROWS
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.data.spill import Spill
from tidelog.log.read.net_changes import POSITION, fold_changes, net_changes

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
