"""Arithmetic and functions of numbers, with the types, the overflow errors and the rounding of Spark's ANSI mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.predicate.casts import NUMBERS, converted
from tidelog.log.predicate.conditions import as_condition
from tidelog.log.predicate.dates import add_days
from tidelog.log.predicate.rows import Bound, Datum, Kernel, as_array, computed, constant_value, null_of, per_value
from tidelog.log.predicate.types import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    MAX_DIGITS,
    TypeMismatch,
    arithmetic_type,
    as_decimal,
    is_number,
    text_as,
)

_MAX_ROUNDED_DIGITS = 400
_BEYOND_LONG = 2.0**63


def positive(value: Bound) -> Bound:
    """`+value`. Raises TypeMismatch."""
    return _number(value)


def magnitude(value: Bound) -> Bound:
    """The value without its sign; overflows for the least integer. Raises TypeMismatch."""
    value = _number(value)
    return computed(value.kind, pc.abs_checked, [value], fallible=pt.is_integer(value.kind))


def sign(value: Bound) -> Bound:
    """-1.0, 1.0 or, with its sign, zero. Raises TypeMismatch."""

    def kernel(numbers: Datum) -> Datum:
        return pc.if_else(pc.equal(numbers, 0.0), numbers, pc.sign(numbers))

    return computed(DOUBLE, kernel, [converted(_number(value), DOUBLE)])


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
    return computed(LONG, lambda numbers: _saturated(kernel(numbers)), [converted(value, DOUBLE)])


def _saturated(numbers: Datum) -> Datum:
    """Whole numbers as 64-bit integers: the least or the greatest for one beyond them, and 0 for NaN, as in Java."""
    above, below = pc.greater_equal(numbers, _BEYOND_LONG), pc.less(numbers, -_BEYOND_LONG)
    inside = pc.if_else(pc.or_(pc.is_nan(numbers), pc.or_(above, below)), 0.0, numbers).cast(LONG)
    limits = pa.scalar(2**63 - 1, LONG), pa.scalar(-(2**63), LONG)
    return pc.if_else(above, limits[0], pc.if_else(below, limits[1], inside))


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
        return int(result) if pt.is_integer(kind) else float(result) + 0.0  # a negative zero becomes zero

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
    rest = arithmetic("%", left, None, right, None)
    if not pt.is_integer(rest.kind):
        raise TypeMismatch("pmod takes integers")
    right = converted(right, rest.kind)

    def kernel(found: Datum, divisor: Datum) -> Datum:
        zero = pa.scalar(0, rest.kind)
        moved = remainder(pc.add(found, divisor), divisor)
        return pc.if_else(pc.less(found, zero), moved, found)

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


# --- arithmetic -------------------------------------------------------------------------------------------------------


_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked, "/": pc.divide_checked}


def arithmetic(
    symbol: str, left: Bound, left_digits: pa.DataType | None, right: Bound, right_digits: pa.DataType | None
) -> Bound:
    """`left symbol right`; the digits are the decimal types of constant integers. Raises TypeMismatch."""
    if symbol in ("+", "-") and pt.is_date(left.kind) and pt.is_integer(right.kind):
        return add_days(left, right, subtract=symbol == "-")
    if symbol == "+" and pt.is_integer(left.kind) and pt.is_date(right.kind):
        return add_days(right, left)
    if pt.is_null(left.kind) or pt.is_null(right.kind):
        other = right.kind if pt.is_null(left.kind) else left.kind
        if not (is_number(other) or pt.is_null(other)):
            raise TypeMismatch
        return null_of(DOUBLE if symbol == "/" or pt.is_null(other) else other)
    left, right = _number_of_text(left, right.kind), _number_of_text(right, left.kind)
    if not (is_number(left.kind) and is_number(right.kind)):
        raise TypeMismatch
    if symbol == "DIV":
        if not (pt.is_integer(left.kind) and pt.is_integer(right.kind)):
            raise TypeMismatch("DIV takes integers")
        return computed(LONG, pc.divide_checked, [converted(left, LONG), converted(right, LONG)], fallible=True)
    if pt.is_decimal(left.kind) and right_digits is not None:
        return _decimal(symbol, left, converted(right, right_digits))
    if pt.is_decimal(right.kind) and left_digits is not None:
        return _decimal(symbol, converted(left, left_digits), right)
    kind = arithmetic_type(symbol, left.kind, right.kind)
    if pt.is_decimal(kind):
        return _decimal(symbol, converted(left, as_decimal(left.kind)), converted(right, as_decimal(right.kind)))
    kernel = remainder if symbol == "%" else _CHECKED[symbol]
    return computed(kind, kernel, [converted(left, kind), converted(right, kind)], fallible=True)


def _number_of_text(side: Bound, other: pa.DataType) -> Bound:
    """A text next to a number, as a number."""
    kind = text_as(other) if pt.is_string(side.kind) and is_number(other) else None
    return side if kind is None else converted(side, kind)


def negative(value: Bound) -> Bound:
    """`-value`. Raises TypeMismatch."""
    if not is_number(value.kind) and not pt.is_null(value.kind):
        raise TypeMismatch
    return value if pt.is_null(value.kind) else computed(value.kind, pc.negate_checked, [value], fallible=True)


def remainder(left: Datum, right: Datum) -> Datum:
    """`left % right` of two numbers of one type, which has the sign of `left`."""
    scalar = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    count = next((len(side) for side in (left, right) if isinstance(side, pa.Array)), 1)
    left, right = as_array(left, count), as_array(right, count)
    valid = pc.and_(pc.is_valid(left), pc.is_valid(right))
    if pc.any(pc.and_(valid, pc.fill_null(pc.equal(right, pa.scalar(0, pa.int8())), False))).as_py():  # noqa: FBT003
        raise pa.ArrowInvalid("divide by zero")
    one = pa.scalar(1, right.type)
    numbers = np.fmod(np.asarray(pc.fill_null(left, one)), np.asarray(pc.if_else(valid, right, one)))
    found = pa.array(numbers, left.type, mask=~np.asarray(valid))
    return found[0] if scalar else found


def _decimal(symbol: str, left: Bound, right: Bound) -> Bound:
    kind = arithmetic_type(symbol, left.kind, right.kind)
    exact = symbol in "+-*" and (
        left.kind.precision + right.kind.precision + 1 if symbol == "*" else _sum_digits(left.kind, right.kind)
    )
    if exact and exact <= MAX_DIGITS:
        return computed(kind, _CHECKED[symbol], [left, right], fallible=True)
    return computed(kind, _decimal_kernel(symbol, kind), [left, right], fallible=True)


def _sum_digits(left: pa.DataType, right: pa.DataType) -> int:
    return int(max(left.precision - left.scale, right.precision - right.scale) + max(left.scale, right.scale) + 1)


def _decimal_kernel(symbol: str, kind: pa.DataType) -> Kernel:
    operations: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
        "+": NUMBERS.add,
        "-": NUMBERS.subtract,
        "*": NUMBERS.multiply,
        "/": NUMBERS.divide,
        "%": NUMBERS.remainder,
    }
    operation, unit = operations[symbol], Decimal(1).scaleb(-kind.scale)

    def compute(left: Decimal, right: Decimal) -> Decimal:
        if not right and symbol in "/%":
            raise ValueError("divide by zero")
        try:
            return operation(left, right).quantize(unit, ROUND_HALF_UP, NUMBERS)
        except InvalidOperation as error:
            raise ValueError("overflow") from error

    return per_value(kind, compute)
