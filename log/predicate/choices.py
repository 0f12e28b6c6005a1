"""Functions that choose among values: CASE, if, coalesce, greatest. A value that is not needed can be an error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate.casts import converted
from tidelog.log.predicate.logic import as_condition
from tidelog.log.predicate.rows import Bound, Datum, RowBlock, computed, folded, shared
from tidelog.log.predicate.types import BOOLEAN, TypeMismatch, common_type


def unified(values: Sequence[Bound]) -> list[Bound]:
    """The values in one type. Raises TypeMismatch if they have none in common."""
    kind = common_type(value.kind for value in values)
    if kind is None:
        raise TypeMismatch
    return [converted(value, kind) for value in values]


def choose(tests: Sequence[Bound], results: Sequence[Bound], otherwise: Bound) -> Bound:
    """The result of the first test that is true. Each part is computed only for the rows that get to it."""
    *results, otherwise = unified([*results, otherwise])
    kind = otherwise.kind

    def compute(rows: RowBlock) -> Datum:
        left = np.arange(rows.count)
        places, found = [], []
        for test, result in zip(tests, results, strict=True):
            hit = pc.fill_null(test.array(rows), False)  # noqa: FBT003 - a value
            if hit.true_count:
                places.append(left[np.asarray(hit)])
                found.append(result.array(rows.only(hit)))
                miss = pc.invert(hit)
                left, rows = left[np.asarray(miss)], rows.only(miss)
            if not rows.count:
                break
        places.append(left)
        found.append(otherwise.array(rows))
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_arrays(found).take(pa.array(order))

    parts = [*tests, *results, otherwise]
    bound = Bound(kind, compute, fallible=any(part.fallible for part in parts))
    return folded(bound) if all(part.constant for part in parts) else bound


def if_(arguments: Sequence[Bound]) -> Bound:
    """The second value if the first is true, else the third."""
    return choose([as_condition(arguments[0])], [arguments[1]], arguments[2])


def coalesce(arguments: Sequence[Bound]) -> Bound:
    """The first value that is not null."""
    values = unified(arguments)
    if not any(value.fallible for value in values[1:]):
        return computed(values[0].kind, pc.coalesce, values, strict=False)
    *first, last = [shared(value) for value in values]
    return choose([_is_valid(value) for value in first], first, last)


def nvl2(arguments: Sequence[Bound]) -> Bound:
    """The second value if the first is not null, else the third."""
    return choose([_is_valid(arguments[0])], [arguments[1]], arguments[2])


def greatest(arguments: Sequence[Bound]) -> Bound:
    """The greatest value that is not null. NaN is greater than all numbers."""
    return _extreme(arguments, greatest=True)


def least(arguments: Sequence[Bound]) -> Bound:
    """The least value that is not null."""
    return _extreme(arguments, greatest=False)


def _extreme(arguments: Sequence[Bound], *, greatest: bool) -> Bound:
    values = unified(arguments)
    kind = values[0].kind
    if pt.is_nested(kind):
        raise TypeMismatch
    if pt.is_null(kind):
        return values[0]

    def kernel(found: Datum, *others: Datum) -> Datum:
        for other in others:
            better = pc.greater(other, found) if greatest else pc.less(other, found)
            if pt.is_floating(kind):  # NaN is above all numbers
                above, below = (other, found) if greatest else (found, other)
                better = pc.or_(better, pc.and_not(pc.is_nan(above), pc.is_nan(below)))
            better = pc.coalesce(better, pc.is_null(found))
            found = pc.if_else(better, other, found)
        return found

    return computed(kind, kernel, values, strict=False)


def _is_valid(value: Bound) -> Bound:
    return computed(BOOLEAN, pc.is_valid, [value])
