"""Compare what a rewrite wrote with what it read, before anything is committed.

The written files are read back from the store, where they are durable by then. Rows in order must have the same digest
on both sides (see `sequences`). Clustered rows must have the same hashes (see `digests`) as the rows that the row map
says they are, and it must name each live row and each written row once: with a wrong address, a later change would hit
the wrong row. Readers skip files by their statistics, so these must hold for the rows of each file (see
`written_statistics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.compaction_daemon.planning.history import scope_of
from tidelog.compaction_daemon.rewriting.digests import Digest, Sums
from tidelog.compaction_daemon.rewriting.inputs import HASHED_BYTES, HashedRows, Inputs, hashed
from tidelog.compaction_daemon.rewriting.numbers import NarrowArray, narrowest
from tidelog.compaction_daemon.rewriting.sequences import SequenceDigest, differing_columns
from tidelog.compaction_daemon.rewriting.written_statistics import RowsRead, WrittenStatistics
from tidelog.log.arrays import Int64Array, UInt64Array
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import DataFile, read_coded_batches, read_footer
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS
from tidelog.log.errors import DataError
from tidelog.log.format.actions import AddFile
from tidelog.log.read.read_ahead import read_ahead
from tidelog.log.storage import Store

_T = TypeVar("_T")
# Addresses of so many rows are compared at a time, because there are tens of millions.
_BLOCK_ROWS = 2**18


@dataclass(slots=True)
class Findings:
    """What was read, what was read back, the rows of each written file, and where both sides differ, in words."""

    read: Sums
    written: Sums
    counts: list[int] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


class RowsInOrder:
    """Rows that keep their order, with the digest of those that were read."""

    def __init__(self, read: SequenceDigest) -> None:
        self.read = read
        self.found = SequenceDigest()

    def differences(self, outputs: Outputs, inputs: Inputs) -> Iterator[str]:
        """Read the outputs, and name the columns that differ."""
        del inputs
        for batch in outputs.batches():
            self.found.add(batch)
        columns = ", ".join(repr(name) for name in differing_columns(self.read, self.found))
        if columns and self.found.rows == self.read.rows:
            yield f"other values were written than were read, or in another order, in the columns {columns}"


class ClusteredRows:
    """Rows in a new order, with the digest of those that were read, their hashes in that order, and their row map."""

    def __init__(self, read: Digest, hashes: UInt64Array, row_map: pa.Table) -> None:
        self.read = read
        self.found = Digest()
        self._hashes = hashes
        self._row_map = row_map

    def differences(self, outputs: Outputs, inputs: Inputs) -> Iterator[str]:
        """Read the outputs, and say whether the rows are where the row map says."""
        places = _inverse(self._row_map, inputs, outputs.counts)
        if places is None:
            yield "the row map does not map each live row to a row of its own"
        moved = 0
        for rows in outputs.rows():
            if places is not None:
                here = places[self.found.rows : self.found.rows + len(rows.hashes)]
                moved += int(np.count_nonzero(self._hashes[here] != rows.hashes))
            self.found.add(rows.hashes)
        if moved:
            yield f"{moved} rows are not where the row map says"
        if self.found.rows == self.read.rows and self.found.sums != self.read.sums:
            yield "the rows that were written are not those that were read"


def verify(inputs: Inputs, written: Sequence[AddFile], rows: RowsInOrder | ClusteredRows) -> Findings:
    """Read the written files back and compare them with the rows that were read, and their statistics with the values.

    The files may have any content.
    """
    done = Findings(rows.read.sums, rows.found.sums)
    if rows.read.rows != inputs.live_rows:
        done.differences.append(f"{rows.read.rows} rows were read, but {inputs.live_rows} are live")
    if len({scope_of(add.partition_values) for add in (*inputs.adds, *written)}) > 1:
        done.differences.append("the files that were read or written are of several partitions")
    try:
        outputs = Outputs(inputs, written)
        done.counts = outputs.counts
        done.differences += rows.differences(outputs, inputs)
        done.differences += outputs.statistics.differences()
    except DataError as error:
        done.differences.append(f"a written file cannot be read back: {error.message}")
        return done
    done.written = rows.found.sums
    if rows.found.rows != rows.read.rows:
        done.differences.append(f"{rows.found.rows} rows were written, but {rows.read.rows} were read")
    return done


class Outputs:
    """The written files, which are read row group by row group where that lets threads share the work."""

    def __init__(self, inputs: Inputs, written: Sequence[AddFile]) -> None:
        self._store = inputs.store
        self._schema = inputs.schema
        self._files = [DataFile(add.path, {}, None, add.size) for add in written]
        self._footers: list[pq.FileMetaData] = [read_footer(self._store, file) for file in self._files]
        self.statistics = WrittenStatistics(written, self._footers, inputs.schema)

    @property
    def counts(self) -> list[int]:
        """The rows of each file."""
        return [int(footer.num_rows) for footer in self._footers]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order. Text may have codes."""
        yield from read_ahead(self._readings(self._read), self._store.reads_at_once)

    def rows(self) -> Iterator[HashedRows]:
        """All rows with their hashes, in order."""
        yield from read_ahead(self._readings(self._hashed), self._store.reads_at_once, queued_bytes=HASHED_BYTES)

    def _readings(
        self, read: Callable[[DataFile, list[int], RowsRead], Iterator[_T]]
    ) -> list[Callable[[], Iterator[_T]]]:
        readings: list[Callable[[], Iterator[_T]]] = []
        for number, (file, footer) in enumerate(zip(self._files, self._footers, strict=True)):
            groups = [*range(footer.num_row_groups)]
            # In an object store each part of a file costs requests of its own.
            parts = [groups] if self._store.small_reads_at_once > 1 else [[group] for group in groups]
            readings += [partial(read, file, part, self.statistics.part(number)) for part in parts if part]
        return readings

    def _read(self, file: DataFile, groups: list[int], found: RowsRead) -> Iterator[pa.RecordBatch]:
        for batch in read_coded_batches(self._store, file, self._schema, groups=groups):
            found.add(batch)
            yield batch

    def _hashed(self, file: DataFile, groups: list[int], found: RowsRead) -> Iterator[HashedRows]:
        return map(hashed, self._read(file, groups, found))


def _inverse(row_map: pa.Table, inputs: Inputs, counts: Sequence[int]) -> NarrowArray | None:
    """Which row, in the order of reading, is at each place of the outputs; None if the map is not one to one.

    The deletion vectors are read again.
    """
    number, position, output, output_position = (row_map[name].to_numpy() for name in ROW_MAP_COLUMNS)
    total = sum(counts)
    if len(number) != total or inputs.live_rows != total or not _names_live_rows(inputs, number, position):
        return None
    lengths = np.asarray(counts, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    found = np.full(total, -1, dtype=narrowest(total))
    for start in range(0, total, _BLOCK_ROWS):
        files, positions = output[start : start + _BLOCK_ROWS], output_position[start : start + _BLOCK_ROWS]
        if files.min() < 0 or files.max() >= len(lengths) or positions.min() < 0:
            return None
        if (positions >= lengths[files]).any():
            return None
        found[starts[files] + positions] = np.arange(start, start + len(files))
    return None if (found < 0).any() else found


def _names_live_rows(inputs: Inputs, number: Int64Array, position: Int64Array) -> bool:
    """Whether these are the addresses of all live rows, in order."""
    start = 0
    for index, (add, physical) in enumerate(zip(inputs.adds, inputs.physical_rows, strict=True)):
        live = live_positions(inputs.store, add, physical)
        end = start + len(live)
        if not ((number[start:end] == index).all() and np.array_equal(position[start:end], live)):
            return False
        start = end
    return start == len(number)


def live_positions(store: Store, add: AddFile, physical: int) -> Int64Array:
    """The positions of the live rows of a file with so many rows."""
    if add.deletion_vector is None:
        return np.arange(physical)
    live = np.ones(physical, dtype=bool)
    dead: BitMap64 = read_dead_rows(store, add.deletion_vector)
    live[np.fromiter(dead, dtype=np.int64, count=len(dead))] = False
    return np.flatnonzero(live)
