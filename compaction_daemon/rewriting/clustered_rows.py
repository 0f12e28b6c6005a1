"""Clustering: the rows of a group in another order, and the row map that lists their old and new addresses.

Rows are sorted in memory, or, however many they are, in parts that wait in a temporary file. If there are more rows
than are held, a first pass reads the columns that decide and takes a sample. From the sample come splitters, rows that
divide all rows into parts of about the same size. Each row goes to the file of its part, and then one part after the
other is sorted in memory. A part that is still too large, because its rows are larger than most, is divided once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.planning.plan import HILBERT, PlannedGroup
from tidelog.compaction_daemon.rewriting.digests import Digest
from tidelog.compaction_daemon.rewriting.inputs import Inputs, NarrowArray, live_positions, narrowest
from tidelog.compaction_daemon.rewriting.orders import ColumnOrder, HilbertOrder, Order
from tidelog.compaction_daemon.rewriting.outputs import delete_files, fits, size_of, usual_layouts, write_files
from tidelog.log.arrays import BoolArray, Int64Array, UInt64Array
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS
from tidelog.log.data.spill import Spill, divided
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddFile
from tidelog.log.read.read_ahead import read_ahead

# So many bytes of rows are sorted in memory, where they are twice for a moment.
HELD_BYTES = 2**27
# The size that parts should have. Several of them are in memory at once, each twice.
PART_BYTES = 2**24
# Sorted rows are handed on in pieces of about this size, and so many bytes of them wait to be written.
PIECE_BYTES = 2**23
WAITING_BYTES = 2**25
# Threads that divide the rows among the parts, and the bytes of rows that they are ahead.
_DIVIDERS = 4
DIVIDED_BYTES = 2**26
# Several for each rank and each part.
SAMPLE_ROWS = 2**15
# Which rows are in the sample must not depend on how values repeat: row numbers are multiplied by 2**64 divided by the
# golden ratio, which spreads any of their patterns.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_T = TypeVar("_T")
Tables = Callable[[], Iterator[pa.Table]]
# Hashes that an array has room for at first.
_FIRST_ROWS = 2**16


@dataclass(frozen=True, slots=True)
class Clustered:
    """What was written, and what is needed to verify it.

    `digest` is of the rows as they were read, and `hashes` has their hashes in that order.
    """

    written: list[AddFile]
    row_map: pa.Table
    digest: Digest
    hashes: UInt64Array


def write_clustered(writer: DataWriter, group: PlannedGroup, inputs: Inputs, length: int) -> Clustered:
    """Write the rows in the order that the group asks for, in the first layout that is small enough.

    If there is none, they are in the smallest one: sorting can part equal values, so it may cost space in any layout.
    """
    smallest: list[AddFile] = []
    places: NarrowArray | None = None
    with SortedGroup(inputs, _order(group, inputs)) as ordered:
        for layout in usual_layouts():
            places = np.empty(ordered.digest.rows, dtype=narrowest(ordered.digest.rows))
            try:
                rows = _placed(ordered, places)
                written = write_files(writer, dict(group.partition_values), rows, length, repeat(layout))
            except BaseException:
                delete_files(writer, smallest)
                raise
            larger = written
            if not smallest or size_of(written) < size_of(smallest):
                smallest, larger = written, smallest
            delete_files(writer, larger)
            if fits(group, smallest, writer, inputs):
                break
        digest, hashes = ordered.digest, ordered.hashes
    assert places is not None, "there is a layout"
    # Arrow keeps a few hundred MB of what it no longer uses, and what follows needs NumPy's arrays.
    pa.default_memory_pool().release_unused()
    return Clustered(smallest, row_map_of(inputs, places, length), digest, hashes)


def row_map_of(inputs: Inputs, places: NarrowArray, length: int) -> pa.Table:
    """The row map of files with `length` rows each. `places` has each row's place among the rows of all outputs.

    `places` is used up. The map is empty if not each live row has a place. Its columns have the narrowest type that
    holds them, because there are tens of millions of rows.
    """
    rows, physical = len(places), inputs.physical_rows
    number = np.empty(rows, dtype=narrowest(len(physical)))
    position = np.empty(rows, dtype=narrowest(max(physical, default=0)))
    end = 0
    for index, (add, count) in enumerate(zip(inputs.adds, physical, strict=True)):
        live = live_positions(inputs.store, add, count)
        start, end = end, end + len(live)
        if end > rows:
            break
        number[start:end], position[start:end] = index, live
    if end != rows:
        number, position, places = number[:0], position[:0], places[:0]
    length = min(length, max(1, rows))
    output = np.empty(len(places), dtype=narrowest(rows // length))
    np.floor_divide(places, length, out=output, casting="unsafe")
    np.remainder(places, length, out=places)
    return pa.table(dict(zip(ROW_MAP_COLUMNS, (number, position, output, places), strict=True)))


def _order(group: PlannedGroup, inputs: Inputs) -> Order:
    # Along one column, the curve is the order of its ranks.
    on_curve = group.cluster_order == HILBERT and len(group.cluster_by) > 1
    return (HilbertOrder if on_curve else ColumnOrder)(group.cluster_by, inputs.schema.names, inputs.expected_rows)


def _placed(ordered: SortedGroup, places: NarrowArray) -> Iterator[pa.RecordBatch]:
    """The rows in order; the place of each goes to `places`, at its number in the order of reading."""
    place = 0
    for rows in ordered.rows():
        end = place + len(rows.numbers)
        places[rows.numbers] = np.arange(place, end)
        place = end
        yield rows.batch


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Some rows in order, and their numbers in the order of reading."""

    batch: pa.RecordBatch
    numbers: Int64Array

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return int(self.batch.nbytes)


class SortedGroup:
    """All live rows of a group in order. They are read when the context is entered, and stay until it ends.

    `digest` is of the rows as they were read, and `hashes` has their hashes in that order.
    """

    digest: Digest
    hashes: UInt64Array

    def __init__(self, inputs: Inputs, order: Order) -> None:
        self._inputs = inputs
        self._order = order
        self._parts: list[tuple[Tables, int]] = []
        self._ended = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ended:
            self._read(ended)
            self._ended = ended.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts = []
        self._ended.close()

    def rows(self) -> Iterator[SortedRows]:
        """The rows in order; this can be called again."""
        readings = [partial(self._sorted, tables, size) for tables, size in self._parts]
        yield from read_ahead(readings, self._inputs.store.reads_at_once, queued_bytes=WAITING_BYTES)

    def _read(self, ended: ExitStack) -> None:
        self.digest = Digest()
        hashes = RowHashes()
        rows = self._numbered(hashes)
        held: list[pa.Table] = []
        size = 0
        for table in rows:
            held.append(table)
            size += table.nbytes
            if size > HELD_BYTES:
                break
        else:
            self._parts = [(partial(self._keyed_at_once, held), size)] if held else []
            self.hashes = hashes.joined()
            return
        sample = self._sampled(self._inputs.columns(self._order.columns))
        self._order.learn(sample)
        share = self._inputs.expected_rows / max(1, self.digest.rows)
        splitters = self._order.splitters(self._order.keyed(sample), int(size * share / PART_BYTES))
        spill = self._spill(_chained(held, rows), splitters, ended)
        self._parts = _parts_of(spill)
        self.hashes = hashes.joined()

    def _numbered(self, hashes: RowHashes) -> Iterator[pa.Table]:
        """The rows with their numbers; their hashes are added to `hashes`."""
        for read in self._inputs.rows():
            first = self.digest.rows
            self.digest.add(read.hashes)
            hashes.add(read.hashes)
            numbers = pa.array(np.arange(first, self.digest.rows))
            yield pa.Table.from_batches([read.batch]).append_column(self._order.row, numbers)

    def _sampled(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Some rows of all, with their numbers."""
        found = []
        first = 0
        for batch in batches:
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            chosen = np.flatnonzero(self._is_sampled(numbers))
            rows = pa.Table.from_batches([batch]).take(pa.array(chosen))
            found.append(rows.append_column(self._order.row, pa.array(numbers[chosen])))
        return pa.concat_tables(found)

    def _is_sampled(self, numbers: Int64Array) -> BoolArray:
        share = min(1.0, SAMPLE_ROWS / max(1, self._inputs.expected_rows))
        return numbers.astype(np.uint64) * _SPREAD <= np.uint64(int(share * (2**64 - 2**11)))

    def _keyed_at_once(self, held: list[pa.Table]) -> Iterator[pa.Table]:
        table = pa.concat_tables(held)
        decisive = table.select(self._order.columns)
        chosen = np.flatnonzero(self._is_sampled(np.arange(table.num_rows)))
        self._order.learn(decisive.take(pa.array(chosen if len(chosen) else [0])))
        yield self._order.keyed(table)

    def _spill(self, rows: Iterable[pa.Table], splitters: pa.Table, ended: ExitStack) -> Spill:
        def divide(table: pa.Table) -> tuple[pa.Schema, dict[int, pa.Table]]:
            keyed = self._order.keyed(table)
            return keyed.schema, divided(keyed, self._order.parts(keyed, splitters))

        spill: Spill | None = None
        for schema, parts in _mapped_ahead(divide, rows, self._inputs.store.reads_at_once):
            if spill is None:
                spill = ended.enter_context(Spill(schema, splitters.num_rows + 1))
            spill.add_divided(parts)
        assert spill is not None, "there are rows"
        return spill

    def _sorted(self, tables: Tables, size: int) -> Iterator[SortedRows]:
        """The rows of one part in order."""
        if size > HELD_BYTES:
            keys = pa.concat_tables([table.select(self._order.decisive) for table in tables()])
            if keys.num_rows > 1:
                splitters = self._order.splitters(keys, -(-size // PART_BYTES))
                yield from self._sorted_in_parts(tables(), splitters)
                return
        yield from self._sorted_at_once(pa.concat_tables(tables()))

    def _sorted_in_parts(self, rows: Iterator[pa.Table], splitters: pa.Table) -> Iterator[SortedRows]:
        with ExitStack() as ended:
            for part, size in _parts_of(self._spill(rows, splitters, ended)):
                yield from self._sorted(part, size)

    def _sorted_at_once(self, rows: pa.Table) -> Iterator[SortedRows]:
        table = rows.combine_chunks()
        order = self._order.sorted_indices(table)
        numbers = table[self._order.row].to_numpy()
        data = table.select(self._inputs.schema.names)
        length = max(1, PIECE_BYTES * len(order) // max(1, data.nbytes))
        for start in range(0, len(order), length):
            wanted = order[start : start + length]
            for batch in data.take(pa.array(wanted)).combine_chunks().to_batches():
                yield SortedRows(batch, numbers[wanted])


class RowHashes:
    """The hashes of rows that come one batch after the other, in one array that grows."""

    def __init__(self) -> None:
        self._grown: UInt64Array = np.empty(_FIRST_ROWS, dtype=np.uint64)
        self._rows = 0

    def add(self, hashes: UInt64Array) -> None:
        """Take in those of the next rows."""
        start, self._rows = self._rows, self._rows + len(hashes)
        if self._rows > len(self._grown):
            # The system moves a large array without a copy, so it can grow often, by little.
            self._grown.resize(max(self._rows, len(self._grown) * 9 // 8), refcheck=False)
        self._grown[start : self._rows] = hashes

    def joined(self) -> UInt64Array:
        """All of them, without what the array could still take."""
        self._grown.resize(self._rows, refcheck=False)
        return self._grown


def _mapped_ahead(do: Callable[[pa.Table], _T], tables: Iterable[pa.Table], at_once: int) -> Iterator[_T]:
    """The results of a function for each table, in order, from threads that are a few tables ahead."""
    if at_once == 1:
        yield from map(do, tables)
        return
    with ThreadPoolExecutor(min(at_once, _DIVIDERS), "tidelog-sort") as threads:
        results: deque[tuple[Future[_T], int]] = deque()
        ahead = 0
        for table in tables:
            results.append((threads.submit(do, table), table.nbytes))
            ahead += table.nbytes
            while ahead > DIVIDED_BYTES:
                future, size = results.popleft()
                ahead -= size
                yield future.result()
        while results:
            yield results.popleft()[0].result()


def _parts_of(spill: Spill) -> list[tuple[Tables, int]]:
    """The parts that have rows, and their sizes."""
    return [(partial(spill.part, number), size) for number, size in spill.sizes().items()]


def _chained(held: list[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """What is held, which is given up meanwhile, and the rest."""
    while held:
        yield held.pop(0)
    yield from rest
