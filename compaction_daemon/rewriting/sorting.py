"""Sort the rows of a group, however many they are: in memory, or in parts that wait in a temporary file.

If there are more rows than are held, a first pass reads the columns that decide and takes a sample. From the sample
come splitters, rows that divide all rows into parts of about the same size. Each row goes to the file of its part, and
then one part after the other is sorted in memory. A part that is still too large, because its rows are larger than
most, is divided once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.rewriting.digests import Digest
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.compaction_daemon.rewriting.numbers import RowHashes
from tidelog.compaction_daemon.rewriting.orders import Order
from tidelog.log.arrays import BoolArray, Int64Array, UInt64Array
from tidelog.log.data.spill import Spill, divided
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
