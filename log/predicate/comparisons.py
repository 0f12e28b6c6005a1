"""Comparisons, by the rules of Spark for two types.

NaN equals nothing and is neither above nor below a number, unless a comparison asks for Spark's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate.casts import converted
from tidelog.log.predicate.constants import coerce
from tidelog.log.predicate.logic import junction
from tidelog.log.predicate.rows import Bound, Datum, Kernel, computed, constant, constant_value, null_of, shared
from tidelog.log.predicate.types import BOOLEAN, TypeMismatch, as_decimal, common_type, is_moment, is_number

_KERNELS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(symbol: str, left: Bound, right: Bound, *, nan_is_greatest: bool = False) -> Bound:
    """`left symbol right`. Raises TypeMismatch, and pa.ArrowException for decimals with too many digits."""
    left, right = _comparable(left, right)
    if pt.is_null(left.kind) or pt.is_null(right.kind):
        return null_of(BOOLEAN)
    kernel = _KERNELS[symbol]
    kernel(pa.nulls(0, left.kind), pa.nulls(0, right.kind))  # fails for decimals with too many digits
    if nan_is_greatest and pt.is_floating(left.kind):
        kernel = _with_nan_greatest(symbol)
    return computed(BOOLEAN, kernel, [left, right])


def _with_nan_greatest(symbol: str) -> Kernel:
    def kernel(left: Datum, right: Datum) -> Datum:
        left_is_nan, right_is_nan = pc.is_nan(left), pc.is_nan(right)
        if symbol in ("=", "!="):
            equal = pc.or_(pc.equal(left, right), pc.and_(left_is_nan, right_is_nan))
            return equal if symbol == "=" else pc.invert(equal)
        # NaN on the upper side is enough; for < and > the other side must not be NaN, too.
        greater, other = (right_is_nan, left_is_nan) if symbol in ("<", "<=") else (left_is_nan, right_is_nan)
        if symbol in ("<", ">"):
            greater = pc.and_not(greater, other)
        return pc.or_(_KERNELS[symbol](left, right), greater)

    return kernel


def between(arguments: Sequence[Bound]) -> Bound:
    """`value BETWEEN low AND high`."""
    value, low, high = shared(arguments[0]), *arguments[1:]
    return junction(compare(">=", value, low), compare("<=", value, high), stop=False)


def among(arguments: Sequence[Bound]) -> Bound:
    """`value IN (...)`, where the list has more than constants."""
    value = shared(arguments[0])
    return any_of([compare("=", value, other) for other in arguments[1:]])


def any_of(tests: Sequence[Bound]) -> Bound:
    """Whether one of the conditions is true."""
    return reduce(lambda left, right: junction(left, right, stop=True), tests)


def same_or_both_null(arguments: Sequence[Bound]) -> Bound:
    """`left <=> right`."""
    left, right = map(shared, arguments)
    equal = compare("=", left, right)
    nulls = [computed(BOOLEAN, pc.is_null, [side]) for side in (left, right)]
    return computed(BOOLEAN, lambda same, *null: pc.coalesce(same, pc.and_(*null)), [equal, *nulls], strict=False)


def _comparable(left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Both sides in types that Arrow compares exactly. Raises TypeMismatch."""
    left, right = _moment_of_text(left, right.kind), _moment_of_text(right, left.kind)
    kinds = (left.kind, right.kind)
    if all(map(is_number, kinds)) and any(map(pt.is_decimal, kinds)) and not any(map(pt.is_floating, kinds)):
        return converted(left, as_decimal(left.kind)), converted(right, as_decimal(right.kind))
    kind = common_type(kinds)
    if kind is None or pt.is_nested(kind):
        raise TypeMismatch
    return (left, right) if pt.is_null(kind) else (converted(left, kind), converted(right, kind))


def _moment_of_text(side: Bound, other: pa.DataType) -> Bound:
    """A constant text next to a date or timestamp, in that type."""
    if not (side.constant and pt.is_string(side.kind) and is_moment(other)):
        return side
    return constant(pa.scalar(coerce(constant_value(side), other), other))
