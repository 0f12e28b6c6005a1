"""The orders in which clustered rows are written.

An order adds columns to the rows, by which they can be sorted, compared with splitters, and told apart: rows that are
equal in the columns asked for keep the order in which they were read.

A Hilbert curve goes through ranks: a column's values as numbers from 0 to 2**bits - 1, such that each number has about
as many rows. So it does not matter how values are distributed, of which type they are, or how many digits they have.
The ranks come from a sample: larger values never have smaller ranks, and values between two neighbours of the sample
have the same one. A value that many rows have takes the middle of the range that its rows would fill. NaN comes after
all numbers, and null last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.compaction_daemon.rewriting.hilbert import UInt32Array, hilbert_numbers
from tidelog.log.arrays import Int64Array

# Bits of a place on the curve. The remaining bits keep rows with the same place in the order of reading.
_CURVE_BITS = 40
_NUMBER_BITS = 32
# Ranks beyond this number are hardly finer than the row groups of the largest group.
_MAX_RANK_BITS = 12


class Order(ABC):
    """How rows are ordered. `columns` are the columns that decide."""

    def __init__(self, columns: Sequence[str], names: Sequence[str], rows: int) -> None:
        """`names` are those of all columns of the rows, and `rows` is about the number of all rows."""
        self.columns = tuple(columns)
        # The number of a row in the order of reading, and its place in the order of writing.
        self.row = _free_name("row", names)
        self.key = _free_name("key", names)
        # What tells two rows apart, and which of them comes first.
        self.decisive = self._decisive()
        self._rows = max(1, rows)

    @abstractmethod
    def _decisive(self) -> list[str]: ...

    def learn(self, sample: pa.Table) -> None:  # noqa: B027 - an order by the values themselves has nothing to learn
        """Take in a sample of the columns that decide, before anything else. It has at least one row."""

    @abstractmethod
    def keyed(self, rows: pa.Table) -> pa.Table:
        """Rows that have their numbers with what else the order needs. Keyed rows stay as they are."""

    @abstractmethod
    def splitters(self, sample: pa.Table, count: int) -> pa.Table:
        """Up to `count` rows of a keyed sample that divide it into parts of about the same size."""

    @abstractmethod
    def parts(self, rows: pa.Table, splitters: pa.Table) -> Int64Array:
        """The number of the part that each keyed row belongs to: the number of splitters that it does not precede."""

    @abstractmethod
    def sorted_indices(self, rows: pa.Table) -> Int64Array:
        """The indices of keyed rows in order."""


class ColumnOrder(Order):
    """By the first column, then by the second, and so on: ascending, NaN after all numbers, nulls last."""

    def _decisive(self) -> list[str]:
        return [*self.columns, self.row]

    def keyed(self, rows: pa.Table) -> pa.Table:
        """See Order. The columns and the number suffice."""
        return rows

    def splitters(self, sample: pa.Table, count: int) -> pa.Table:
        """See Order."""
        order = self.sorted_indices(sample)
        return sample.select(self.decisive).take(pa.array(order[_evenly(len(order), count)]))

    def parts(self, rows: pa.Table, splitters: pa.Table) -> Int64Array:
        """See Order."""
        count = splitters.num_rows
        # The sort is stable: a splitter comes before a row that is equal to it.
        order = self.sorted_indices(pa.concat_tables([splitters, rows.select(splitters.column_names)]))
        is_splitter = order < count
        found = np.empty(rows.num_rows, dtype=np.int64)
        found[order[~is_splitter] - count] = np.cumsum(is_splitter)[~is_splitter]
        return found

    def sorted_indices(self, rows: pa.Table) -> Int64Array:
        """See Order."""
        keys = [(name, "ascending") for name in self.decisive]
        found: Int64Array = pc.sort_indices(rows, sort_keys=keys).to_numpy().astype(np.int64)
        return found


class HilbertOrder(Order):
    """Along a Hilbert curve through the ranks of the columns."""

    def __init__(self, columns: Sequence[str], names: Sequence[str], rows: int) -> None:
        super().__init__(columns[:_CURVE_BITS], names, rows)
        self._bits = min(_MAX_RANK_BITS, _CURVE_BITS // len(self.columns))
        self._ranks: list[Ranks] = []

    def _decisive(self) -> list[str]:
        return [self.key]

    def learn(self, sample: pa.Table) -> None:
        """See Order."""
        self._ranks = [Ranks(_joined(sample[name]), self._bits) for name in self.columns]

    def keyed(self, rows: pa.Table) -> pa.Table:
        """See Order."""
        if self.key in rows.column_names:
            return rows
        ranks = [own.of(_joined(rows[name])) for own, name in zip(self._ranks, self.columns, strict=True)]
        keys = hilbert_numbers(ranks, self._bits)
        rest = 64 - self._bits * len(self.columns)
        keys <<= np.uint64(rest)
        # The row's number, scaled to the bits that are left. Few rows have the same one.
        spread = min(rest, _NUMBER_BITS)
        scaled = rows[self.row].to_numpy() * 2**spread // self._rows
        keys |= np.minimum(scaled, 2**spread - 1).astype(np.uint64)
        return rows.append_column(self.key, pa.array(keys))

    def splitters(self, sample: pa.Table, count: int) -> pa.Table:
        """See Order."""
        keys = np.sort(sample[self.key].to_numpy())
        return pa.table({self.key: np.unique(keys[_evenly(len(keys), count)])})

    def parts(self, rows: pa.Table, splitters: pa.Table) -> Int64Array:
        """See Order."""
        found: Int64Array = np.searchsorted(splitters[self.key].to_numpy(), rows[self.key].to_numpy(), side="right")
        return found

    def sorted_indices(self, rows: pa.Table) -> Int64Array:
        """See Order."""
        found: Int64Array = np.argsort(rows[self.key].to_numpy(), kind="stable")
        return found


def _evenly(length: int, count: int) -> Int64Array:
    """Up to `count` indices that divide `length` things into one part more."""
    return np.unique(np.arange(1, count + 1) * length // (count + 1))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


class Ranks:
    """The ranks of one column; `sample` has some of its values, at least one; all can be null."""

    def __init__(self, sample: pa.Array, bits: int) -> None:
        present = sample.drop_null()
        # Neighbours in the sample that are equal make one step, so there are at most as many steps as ranks.
        self._steps = _Steps(present, 2**bits)
        counts = np.bincount(self._steps.places(present), minlength=self._steps.count + 1)
        counts = np.append(counts, len(sample) - len(present))
        ends = np.cumsum(counts)
        middles = (ends - counts / 2) / len(sample) * 2**bits
        self._by_place: UInt32Array = np.minimum(middles.astype(np.uint32), np.uint32(2**bits - 1))

    def of(self, values: pa.Array) -> UInt32Array:
        """The rank of each value."""
        if not values.null_count:
            return self._by_place[self._steps.places(values)]
        found = np.full(len(values), self._by_place[-1])
        valid = np.asarray(values.is_valid())
        found[valid] = self._by_place[self._steps.places(values.drop_null())]
        return found


class _Steps:
    """Some values in order: the place of a value is the number of steps that it is not less than."""

    def __init__(self, values: pa.Array, most: int) -> None:
        self._numeric = _is_numeric(values.type)
        if self._numeric:
            ordered = np.sort(_numbers(values))
            if len(ordered):
                ordered = ordered[np.linspace(0, len(ordered), most, endpoint=False).astype(np.int64)]
            self._numbers = np.unique(ordered)
            self.count = len(self._numbers)
            return
        distinct = values.unique()
        ordered = distinct.take(pc.sort_indices(distinct))
        chosen = np.unique(np.linspace(0, len(ordered), most, endpoint=False).astype(np.int64))
        self._texts = ordered.take(pa.array(chosen[: len(ordered)]))
        self.count = len(self._texts)

    def places(self, values: pa.Array) -> Int64Array:
        if self._numeric:
            return np.searchsorted(self._numbers, _numbers(values), side="right")
        # The sort is stable: a step comes before the values that are equal to it.
        order = pc.sort_indices(pa.concat_arrays([self._texts, values])).to_numpy()
        is_step = order < self.count
        found = np.empty(len(values), dtype=np.int64)
        found[order[~is_step] - self.count] = np.cumsum(is_step)[~is_step]
        return found


def _is_numeric(kind: pa.DataType) -> bool:
    numbers = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind) or pt.is_boolean(kind)
    return bool(numbers or pt.is_temporal(kind))


def _numbers(values: pa.Array) -> np.ndarray:
    """The values as numbers in the same order; decimals are rounded. There are no nulls."""
    kind = values.type
    if pt.is_decimal(kind):
        values = values.cast(pa.float64())
    elif pt.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pt.is_temporal(kind):
        values = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())  # noqa: PLR2004
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
    return numbers
