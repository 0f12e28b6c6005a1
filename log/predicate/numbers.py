"""Functions of numbers, with the types and the rounding of Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate import arithmetic
from tidelog.log.predicate.casts import converted
from tidelog.log.predicate.logic import as_condition
from tidelog.log.predicate.rows import Bound, Datum, computed, constant_value, null_of, per_value
from tidelog.log.predicate.text_casts import NUMBERS
from tidelog.log.predicate.types import BOOLEAN, DOUBLE, INT, LONG, MAX_DIGITS, TypeMismatch, is_number

_MAX_ROUNDED_DIGITS = 400


def positive(value: Bound) -> Bound:
    """`+value`. Raises TypeMismatch."""
    return _number(value)


def magnitude(value: Bound) -> Bound:
    """The value without its sign; overflows for the least integer. Raises TypeMismatch."""
    value = _number(value)
    return computed(value.kind, pc.abs_checked, [value], fallible=pt.is_integer(value.kind))


def sign(value: Bound) -> Bound:
    """-1.0, 0.0 or 1.0. Raises TypeMismatch."""
    return computed(DOUBLE, pc.sign, [converted(_number(value), DOUBLE)])


def floor(value: Bound) -> Bound:
    """The greatest integer that is not greater. Raises TypeMismatch."""
    return _whole(_number(value), ROUND_FLOOR)


def ceil(value: Bound) -> Bound:
    """The least integer that is not less. Raises TypeMismatch."""
    return _whole(_number(value), ROUND_CEILING)


def _whole(value: Bound, rounding: str) -> Bound:
    if pt.is_decimal(value.kind):
        digits = value.kind.precision - value.kind.scale + (1 if value.kind.scale else 0)
        kind = pa.decimal128(min(max(digits, 1), MAX_DIGITS), 0)
        return computed(kind, per_value(kind, lambda number: number.quantize(Decimal(1), rounding, NUMBERS)), [value])
    if pt.is_integer(value.kind):
        return converted(value, LONG)
    kernel = pc.floor if rounding == ROUND_FLOOR else pc.ceil
    return computed(LONG, lambda numbers: kernel(numbers).cast(LONG), [value], fallible=True)


def rounded(arguments: Sequence[Bound]) -> Bound:
    """round(value, digits): half away from zero. Raises TypeMismatch."""
    value = _number(arguments[0])
    digits = 0
    if len(arguments) > 1:
        if pt.is_null(arguments[1].kind):
            return null_of(value.kind)
        if not arguments[1].constant or not pt.is_integer(arguments[1].kind):
            raise TypeMismatch("the digits are a constant integer")
        given = constant_value(arguments[1])
        if given is None:
            return null_of(value.kind)
        digits = max(min(given, _MAX_ROUNDED_DIGITS), -_MAX_ROUNDED_DIGITS)
    kind = _rounded_type(value.kind, digits)
    if pt.is_integer(kind) and digits >= 0:
        return value
    unit = Decimal(1).scaleb(-digits)

    def function(number: float | Decimal) -> float | int | Decimal:
        if isinstance(number, float) and not math.isfinite(number):
            return number
        exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
        result = exact.quantize(unit, ROUND_HALF_UP, NUMBERS)
        if pt.is_decimal(kind):
            return result.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, NUMBERS)
        return int(result) if pt.is_integer(kind) else float(result)

    return computed(kind, per_value(kind, function), [value], fallible=True)


def _rounded_type(kind: pa.DataType, digits: int) -> pa.DataType:
    if not pt.is_decimal(kind):
        return kind
    whole = kind.precision - kind.scale + 1
    if digits < 0:
        return pa.decimal128(min(max(whole, -digits + 1), MAX_DIGITS), 0)
    scale = min(kind.scale, digits)
    return pa.decimal128(min(whole + scale, MAX_DIGITS), scale)


def positive_remainder(arguments: Sequence[Bound]) -> Bound:
    """pmod(left, right). Raises TypeMismatch."""
    left, right = arguments
    rest = arithmetic.arithmetic("%", left, None, right, None)
    if not pt.is_integer(rest.kind):
        raise TypeMismatch("pmod takes integers")
    right = converted(right, rest.kind)

    def kernel(remainder: Datum, divisor: Datum) -> Datum:
        zero = pa.scalar(0, rest.kind)
        moved = arithmetic.remainder(pc.add(remainder, divisor), divisor)
        return pc.if_else(pc.less(remainder, zero), moved, remainder)

    return computed(rest.kind, kernel, [rest, right], fallible=True)


def is_nan(value: Bound) -> Bound:
    """Whether it is NaN; false for null. Raises TypeMismatch."""
    value = converted(_number(value), DOUBLE)
    return computed(BOOLEAN, lambda numbers: pc.coalesce(pc.is_nan(numbers), pa.scalar(False)), [value])  # noqa: FBT003


def is_boolean(value: Bound, *, wanted: bool) -> Bound:
    """IS TRUE and IS FALSE, which are false for null. Raises TypeMismatch."""
    return computed(
        BOOLEAN,
        lambda values: pc.coalesce(pc.equal(values, wanted), pa.scalar(False)),  # noqa: FBT003 - a value
        [as_condition(value)],
    )


def _number(value: Bound) -> Bound:
    if pt.is_null(value.kind):
        return null_of(INT)
    if not is_number(value.kind):
        raise TypeMismatch
    return value
