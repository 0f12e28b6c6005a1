"""Conditions, AND and OR. The right side is computed only for the rows that the left one leaves undecided."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate.casts import converted
from tidelog.log.predicate.rows import Bound, Datum, RowBlock, computed
from tidelog.log.predicate.types import BOOLEAN, TypeMismatch


def as_condition(bound: Bound) -> Bound:
    """The value as a condition. Raises TypeMismatch if it is neither true nor false."""
    if not pt.is_boolean(bound.kind) and not pt.is_null(bound.kind):
        raise TypeMismatch
    return converted(bound, BOOLEAN)


def junction(left: Bound, right: Bound, *, stop: bool) -> Bound:
    """AND, which `stop`s at false, or OR, which stops at true."""
    left, right = as_condition(left), as_condition(right)
    kernel = pc.or_kleene if stop else pc.and_kleene
    if not right.fallible:
        return computed(BOOLEAN, kernel, [left, right], strict=False)

    def compute(rows: RowBlock) -> Datum:
        first = left.array(rows)
        undecided = pc.fill_null(pc.not_equal(first, stop), True)  # noqa: FBT003 - a value
        second = pc.replace_with_mask(pa.nulls(rows.count, BOOLEAN), undecided, right.array(rows.only(undecided)))
        return kernel(first, second)

    return Bound(BOOLEAN, compute, fallible=True)
