"""Clustering: the rows of a group in sorted order, and the row map that lists their old and new addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidelog.log.errors import CompactionVerificationError
from tidelog.log.internals import (
    BATCH_ROWS,
    BLOCK_BYTES,
    ROW_MAP_COLUMNS,
    AddFile,
    DataFile,
    Int64Array,
    Store,
    blocks,
    read_dead_rows,
    read_numbered_batches,
    row_map_schema,
)

# Rows are taken out of the blocks in parts of about this share of a block.
_PARTS = 8


@dataclass(frozen=True, slots=True)
class Clustered:
    """The rows of a group as they were read, and how they are written.

    `blocks` hold the rows as read, `order` their numbers in sorted order, and `length` is the number of rows per output
    file.
    """

    blocks: tuple[pa.Table, ...]
    order: Int64Array
    length: int
    row_map: pa.Table

    def pieces(self) -> Iterator[pa.Table]:
        """The rows of each output file."""
        size = sum(block.nbytes for block in self.blocks)
        # Few rows if they are large, because each part is in memory twice while it is put in order.
        rows = max(1, min(BATCH_ROWS, BLOCK_BYTES // _PARTS * len(self.order) // max(1, size)))
        for start in range(0, len(self.order), self.length):
            wanted = self.order[start : start + self.length]
            parts = (wanted[first : first + rows] for first in range(0, len(wanted), rows))
            yield pa.concat_tables([self._take(part) for part in parts])

    def _take(self, wanted: Int64Array) -> pa.Table:
        """The rows with these numbers, in this order. Each chunk holds at most about BLOCK_BYTES."""
        starts = np.cumsum([0, *(block.num_rows for block in self.blocks)])
        owners = np.searchsorted(starts, wanted, side="right") - 1
        parts = [
            self.blocks[owner].take(pa.array(wanted[owners == owner] - starts[owner])) for owner in np.unique(owners)
        ]
        if sum(part.nbytes for part in parts) > BLOCK_BYTES and len(wanted) > 1:
            middle = len(wanted) // 2
            return pa.concat_tables([self._take(wanted[:middle]), self._take(wanted[middle:])])
        # The parts are ordered by block: their row k belongs at the position by_block[k].
        by_block = np.argsort(owners, kind="stable")
        return pa.concat_tables(parts).take(pa.array(np.argsort(by_block)))


def cluster(
    store: Store, inputs: Sequence[AddFile], schema: pa.Schema, columns: Sequence[str], length: int
) -> Clustered:
    """Sort the live rows of `inputs` by `columns`: ascending, NaN after all numbers, nulls last.

    Rows with equal values keep their order. All rows are held in memory.
    """
    files: list[Int64Array] = []
    positions: list[Int64Array] = []
    blocks = tuple(_blocks(_read(store, inputs, schema, files, positions), schema))
    order = _order(pa.concat_tables([pa.Table.from_batches([], schema=schema), *blocks]), columns)
    # Output row k is the row order[k] as read, so the row r as read is the output row place[r].
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    row_map = pa.table([_joined(files), _joined(positions), place // length, place % length], schema=row_map_schema())
    return Clustered(blocks, order, length, row_map)


def require_bijection(
    store: Store, inputs: Sequence[AddFile], physical: Sequence[int], outputs: Sequence[int], row_map: pa.Table
) -> None:
    """Raise CompactionVerificationError unless `row_map` maps the live rows of `inputs` one to one to the output rows.

    `physical` and `outputs` are row counts from the footers; the deletion vectors are read again. With a wrong address
    a later change would hit the wrong row.
    """
    live = [_live_positions(store, add, count) for add, count in zip(inputs, physical, strict=True)]
    number, position, output, output_position = (row_map[name].to_numpy() for name in ROW_MAP_COLUMNS)
    by_output = np.lexsort((output_position, output))
    sides = [
        (number, position, live),
        (output[by_output], output_position[by_output], [np.arange(count) for count in outputs]),
    ]
    for files, positions, expected in sides:
        counts = [len(part) for part in expected]
        if not (
            np.array_equal(files, np.repeat(np.arange(len(counts)), counts))
            and np.array_equal(positions, _joined(expected))
        ):
            raise CompactionVerificationError(
                f"the row map of a compaction of {len(inputs)} files of {store.url} does not map each live row once",
                advice="nothing was committed and no row is lost; keep the written files and report this as a bug",
                path=store.url,
            )


def _read(
    store: Store, inputs: Sequence[AddFile], schema: pa.Schema, files: list[Int64Array], positions: list[Int64Array]
) -> Iterator[pa.RecordBatch]:
    """The live rows; the file number and the position of each row are appended to `files` and `positions`."""
    for number, add in enumerate(inputs):
        for found, batch in read_numbered_batches(store, DataFile.of(add), schema):
            files.append(np.full(len(found), number, dtype=np.int64))
            positions.append(found)
            yield batch


def _blocks(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows in tables of about BLOCK_BYTES, each with one chunk per column."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if size + batch.nbytes > BLOCK_BYTES:
            yield from _joined_blocks(held, schema)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    yield from _joined_blocks(held, schema)


def _joined_blocks(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    rows = pa.Table.from_batches(batches, schema=schema)
    return (block.combine_chunks() for block in blocks(rows) if block.num_rows)


def _order(rows: pa.Table, columns: Sequence[str]) -> Int64Array:
    """The stable sort order; nulls are last, which is Arrow's default."""
    indices = pc.sort_indices(rows.select(list(columns)), sort_keys=[(name, "ascending") for name in columns])
    order: Int64Array = indices.to_numpy().astype(np.int64)
    return order


def _live_positions(store: Store, add: AddFile, physical: int) -> Int64Array:
    live = np.ones(physical, dtype=bool)
    if add.deletion_vector is not None:
        dead: BitMap64 = read_dead_rows(store, add.deletion_vector)
        live[np.fromiter(dead, dtype=np.int64, count=len(dead))] = False
    return np.flatnonzero(live)


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
