"""The types of expressions, by the rules of Spark's ANSI mode."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ


class TypeMismatch(Exception):  # noqa: N818 - becomes a PredicateError that names the part
    """Types that do not fit. Its text is an advice, or empty."""


TEXT = pa.string()
INT = pa.int32()
LONG = pa.int64()
DOUBLE = pa.float64()
BOOLEAN = pa.bool_()
DATE = pa.date32()
NULL = pa.null()

# The digits of Spark's widest decimal, and the digits after the point that it keeps when there are too many.
MAX_DIGITS = 38
_KEPT_SCALE = 6
# The digits of the widest decimal that Arrow has.
MOST_DIGITS = 76
_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def is_number(kind: pa.DataType) -> bool:
    """Whether it is a type of numbers."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def is_moment(kind: pa.DataType) -> bool:
    """Whether it is a date or a timestamp."""
    return bool(pt.is_date(kind) or pt.is_timestamp(kind))


def decimal_type(digits: int, scale: int) -> pa.DataType:
    """A decimal type of at most 76 digits, which is wider than Spark's."""
    return pa.decimal128(digits, scale) if digits <= MAX_DIGITS else pa.decimal256(min(digits, MOST_DIGITS), scale)


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """The decimal type that holds each value of an integer or decimal type."""
    return kind if pt.is_decimal(kind) else pa.decimal128(_INTEGER_DIGITS[kind], 0)


def common_type(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type to which values of these types are converted where one type is needed; None if there is none."""
    found: pa.DataType = NULL
    for kind in kinds:
        joined = _common(found, kind)
        if joined is None:
            return None
        found = joined
    return found


def text_as(other: pa.DataType) -> pa.DataType | None:
    """The type as which Spark reads a text next to a value of another type; None if it does not."""
    if pt.is_integer(other):
        return LONG
    if is_number(other):
        return DOUBLE
    return other if pt.is_boolean(other) or is_moment(other) else None


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left.equals(right) or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if pt.is_string(left) or pt.is_string(right):
        return text_as(right if pt.is_string(left) else left)
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_moment(left) and is_moment(right):
        if TIMESTAMP in (left, right):
            return TIMESTAMP
        return TIMESTAMP_NTZ
    return None


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pt.is_floating(left) or pt.is_floating(right):
        return DOUBLE
    if pt.is_integer(left) and pt.is_integer(right):
        return left if left.bit_width > right.bit_width else right
    left, right = as_decimal(left), as_decimal(right)
    scale = max(left.scale, right.scale)
    return decimal_type(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def arithmetic_type(symbol: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of `left symbol right` for two types of numbers."""
    if pt.is_floating(left) or pt.is_floating(right):
        both_floats = pt.is_float32(left) and pt.is_float32(right)
        return left if both_floats and symbol != "/" else DOUBLE
    if pt.is_integer(left) and pt.is_integer(right):
        return DOUBLE if symbol == "/" else _common_number(left, right)
    left, right = as_decimal(left), as_decimal(right)
    (p1, s1), (p2, s2) = (left.precision, left.scale), (right.precision, right.scale)
    match symbol:
        case "+" | "-":
            scale = max(s1, s2)
            return _adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return _adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_KEPT_SCALE, s1 + p2 + 1)
            return _adjusted(p1 - s1 + s2 + scale, scale)
        case _:
            return _adjusted(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))


def _adjusted(digits: int, scale: int) -> pa.DataType:
    """A decimal type that keeps the digits before the point if there are too many."""
    if digits <= MAX_DIGITS:
        return pa.decimal128(max(digits, 1), scale)
    kept = min(scale, _KEPT_SCALE)
    return pa.decimal128(MAX_DIGITS, max(MAX_DIGITS - (digits - scale), kept))
