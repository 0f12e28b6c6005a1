"""Ranks: a column's values as numbers from 0 to 2**bits - 1, such that each number has about as many rows.

So it does not matter how values are distributed, of which type they are, or how many digits they have. The ranks come
from a sample: larger values never have smaller ranks, and values between two neighbours of the sample have the same
one. A value that many rows have takes the middle of the range that its rows would fill. NaN comes after all numbers,
and null last.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.compaction_daemon.rewriting.hilbert import UInt32Array
from tidelog.log.arrays import Int64Array


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
