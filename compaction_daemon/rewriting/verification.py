"""Compare what a rewrite wrote with what it read, before anything is committed.

The written files are read back from the store. Rows in order must have the same digest on both sides (see `digests`).
Clustered rows must have the same hashes as the rows that the row map says they are, and it must name each live row and
each written row once: with a wrong address, a later change would hit the wrong row.

Readers skip files by their statistics, so a bound that does not hold hides rows. The statistics of each file are
compared with the values that are read back. They are decoded as readers do it, which makes bounds a little wider where
writers round. The least and the greatest value come from the rows, with nothing of the code that collected the
statistics. For text and decimals, where that takes long, the bounds in the file's footer are enough if they confirm the
statistics: Arrow's writer found them by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.compaction_daemon.planning.history import scope_of
from tidelog.compaction_daemon.rewriting.digests import Digest, SequenceDigest, Sums, differing_columns
from tidelog.compaction_daemon.rewriting.inputs import (
    HASHED_BYTES,
    HashedRows,
    Inputs,
    NarrowArray,
    hashed,
    live_positions,
    narrowest,
)
from tidelog.log.arrays import Int64Array, UInt64Array
from tidelog.log.data.reader import DataFile, read_coded_batches, read_footer
from tidelog.log.data.row_maps import ROW_MAP_COLUMNS
from tidelog.log.errors import DataError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.footer_statistics import footer_bounds
from tidelog.log.format.schema import is_variant, leaf_columns, physical_name
from tidelog.log.format.statistics_reader import Bounds, read_bounds
from tidelog.log.read.read_ahead import read_ahead

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
        self._threads = inputs.threads
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
        yield from read_ahead(self._readings(self._read), self._threads)

    def rows(self) -> Iterator[HashedRows]:
        """All rows with their hashes, in order."""
        yield from read_ahead(self._readings(self._hashed), self._threads, queued_bytes=HASHED_BYTES)

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


# --- statistics


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, or a field of a struct, with what the statistics of each file say of it.

    `path` are its physical names, and `places` its numbers among its siblings.
    """

    path: tuple[str, ...]
    places: tuple[int, ...]
    kind: pa.DataType
    known: Bounds

    @property
    def is_known(self) -> bool:
        """Whether the statistics of any file say something."""
        parts = (self.known.low, self.known.high, self.known.nulls)
        return any(part.null_count < len(part) for part in parts)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The values in some rows. In a struct, they are null where the struct is."""
        first, *inner = self.places
        return pc.struct_field(batch.column(first), inner) if inner else batch.column(first)

    def has_bounds(self, file: int) -> bool:
        """Whether the statistics of a file have a bound."""
        return bool(self.known.low[file].is_valid or self.known.high[file].is_valid)

    def hold(self, file: int, lows: list[pa.Scalar], highs: list[pa.Scalar]) -> bool:
        """Whether the bounds of a file hold for values between any of `lows` and `highs`."""
        if not lows:
            return True
        low, high = self.known.low[file], self.known.high[file]
        least, greatest = pc.min(pa.array(lows, self.kind)), pc.max(pa.array(highs, self.kind))
        # A comparison with NaN is false, and one with an unknown bound is null.
        outside = pc.greater(low, least.cast(low.type)), pc.less(high, greatest.cast(high.type))
        return not any(each.as_py() for each in outside)


class _Values:
    """The values of a leaf: how many are null, and the least and the greatest of each batch if that is of interest."""

    def __init__(self) -> None:
        self.nulls = 0
        self.lows: list[pa.Scalar] = []
        self.highs: list[pa.Scalar] = []

    def add(self, values: pa.Array, *, bounded: bool) -> None:
        """Take in the values of a batch."""
        self.nulls += values.null_count
        if bounded and values.null_count < len(values):
            low, high = _bounds(values)
            self.lows.append(low)
            self.highs.append(high)

    def __iadd__(self, other: _Values) -> Self:
        """Take in those of another part."""
        self.nulls += other.nulls
        self.lows += other.lows
        self.highs += other.highs
        return self


class RowsRead:
    """The rows that are read back of a file, or of a part of it."""

    def __init__(self, leaves: Sequence[_Leaf], bounded: Sequence[bool]) -> None:
        self.rows = 0
        self.values = [_Values() for _ in leaves]
        self._leaves = leaves
        self._bounded = bounded

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows. Text may have codes."""
        self.rows += batch.num_rows
        for leaf, bounded, values in zip(self._leaves, self._bounded, self.values, strict=True):
            values.add(leaf.values(batch), bounded=bounded)


class WrittenStatistics:
    """The statistics of written files, and what is read back of each file."""

    def __init__(self, written: Sequence[AddFile], footers: Sequence[pq.FileMetaData], schema: pa.Schema) -> None:
        """`schema` has the columns of the files, under the table's names."""
        # The statistics of a variant are not of its parts.
        fields = [
            (path, places, leaf.type)
            for path, places, leaf in leaf_columns(schema, physical_name)
            if not is_variant(leaf)
        ]
        texts = pa.chunked_array([pa.array([add.stats for add in written], pa.string())])
        self._counts, bounds = read_bounds(texts, {path: kind for path, _, kind in fields}, as_written=True)
        known = [_Leaf(path, places, kind, bounds[path]) for path, places, kind in fields]
        self._leaves = [leaf for leaf in known if leaf.is_known]
        self._bounded = [[*self._unconfirmed(file, footer)] for file, footer in enumerate(footers)]
        self._paths = [add.path for add in written]
        self._parts: list[list[RowsRead]] = [[] for _ in written]

    def part(self, file: int) -> RowsRead:
        """A part of a file, which takes in the rows that are read of it. Each thread needs one of its own."""
        self._parts[file].append(RowsRead(self._leaves, self._bounded[file]))
        return self._parts[file][-1]

    def differences(self) -> Iterator[str]:
        """What is wrong with the statistics, once all rows of the files were read."""
        for file, path in enumerate(self._paths):
            rows, counted = sum(part.rows for part in self._parts[file]), self._counts[file].as_py()
            if rows != counted:
                yield f"the statistics of {path} count {counted} rows, but it has {rows}"
            nulls, bounds = [], []
            for number, leaf in enumerate(self._leaves):
                values = _Values()
                for part in self._parts[file]:
                    values += part.values[number]
                if leaf.known.nulls[file].as_py() not in {None, values.nulls}:
                    nulls.append(repr(".".join(leaf.path)))
                if not leaf.hold(file, values.lows, values.highs):
                    bounds.append(repr(".".join(leaf.path)))
            if nulls:
                yield f"the statistics of {path} count other nulls than it has in the columns {', '.join(nulls)}"
            if bounds:
                yield f"the statistics of {path} have wrong bounds for the columns {', '.join(bounds)}"

    def _unconfirmed(self, file: int, footer: pq.FileMetaData) -> Iterator[bool]:
        """Whether the bounds of each leaf are compared with its values: not if the footer confirms them."""
        slow = {leaf.path: leaf.kind for leaf in self._leaves if _is_slow(leaf.kind)}
        found = footer_bounds(footer, slow)
        for leaf in self._leaves:
            least, greatest = ([pa.scalar(bound, leaf.kind)] for bound in found.get(leaf.path, (None, None)))
            confirmed = leaf.path in found and leaf.hold(file, least, greatest)
            yield leaf.has_bounds(file) and not confirmed


def _is_slow(kind: pa.DataType) -> bool:
    """Whether the bounds of such values take ten times as long as those of integers, or longer."""
    return bool(pt.is_string(kind) or pt.is_decimal(kind))


def _bounds(values: pa.Array) -> tuple[pa.Scalar, pa.Scalar]:
    """The least and the greatest of values that are not all null; NaN if there is nothing else."""
    if pt.is_floating(values.type) and not values.null_count:
        numbers = values.to_numpy()
        # NaN if there is one. Arrow leaves it out, and takes ten times as long.
        low, high = numbers.min(), numbers.max()
        if not np.isnan(low):
            return pa.scalar(low, values.type), pa.scalar(high, values.type)
    # A dictionary can have values that no row has.
    both = pc.min_max(values.cast(values.type.value_type) if pt.is_dictionary(values.type) else values)
    return both["min"], both["max"]
