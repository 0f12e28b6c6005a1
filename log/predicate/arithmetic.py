"""Arithmetic with the types, the overflow errors and the rounding of Spark's ANSI mode."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.format.schema import TIMESTAMP
from tidelog.log.predicate.casts import converted
from tidelog.log.predicate.rows import Bound, Datum, Kernel, as_array, computed, null_of, per_value
from tidelog.log.predicate.text_casts import NUMBERS
from tidelog.log.predicate.tree import Interval
from tidelog.log.predicate.types import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    MAX_DIGITS,
    TypeMismatch,
    arithmetic_type,
    as_decimal,
    is_number,
)

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


# --- dates and timestamps --------------------------------------------------------------------------------------------


def shifted(symbol: str, moment: Bound, interval: Interval) -> Bound:
    """A date or timestamp plus an interval. Raises TypeMismatch."""
    if symbol not in ("+", "-") or not (pt.is_date(moment.kind) or pt.is_timestamp(moment.kind)):
        raise TypeMismatch("an interval can only be added to a date or timestamp, or subtracted from one")
    if interval.months:
        return add_months(moment, interval.months)
    if pt.is_date(moment.kind):
        if interval.microseconds is None:
            return computed(DATE, lambda days: _moved(days, interval.days, INT), [moment], fallible=True)
        moment = converted(moment, TIMESTAMP)
    step = interval.total_microseconds
    return computed(moment.kind, lambda values: _moved(values, step, LONG), [moment], fallible=True)


def add_days(date: Bound, days: Bound, *, subtract: bool = False) -> Bound:
    """A date some days later, or earlier. Raises TypeMismatch."""
    if days.kind.equals(LONG):
        raise TypeMismatch("the days are an INT: CAST them")
    kernel = pc.subtract_checked if subtract else pc.add_checked
    return computed(
        DATE, lambda first, step: kernel(first.cast(INT), step).cast(DATE), [date, converted(days, INT)], fallible=True
    )


def add_months(moment: Bound, months: int) -> Bound:
    """A date or timestamp some months later; a day that the month lacks becomes its last day."""
    return computed(moment.kind, lambda values: months_later(values, months), [moment], fallible=True)


def months_later(values: Datum, months: Datum | int) -> Datum:
    """The kernel of `add_months`."""
    scalar = isinstance(values, pa.Scalar) and not isinstance(months, pa.Array)
    count = next((len(each) for each in (values, months) if isinstance(each, pa.Array)), 1)
    column = as_array(values, count)
    kind = column.type
    steps = months if isinstance(months, int) else as_array(months, count)
    valid = pc.is_valid(column) if isinstance(steps, int) else pc.and_(pc.is_valid(column), pc.is_valid(steps))
    step = steps if isinstance(steps, int) else np.asarray(pc.fill_null(steps, 0)).astype(np.int64)
    days = np.asarray(pc.fill_null(column.cast(DATE, safe=False).cast(INT), 0)).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    first = month + step
    lengths = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    day = np.minimum((days - month.astype("datetime64[D]")).astype(np.int64), lengths - 1)
    moved = first.astype("datetime64[D]").astype(np.int64) + day
    mask = ~np.asarray(valid)
    if pt.is_date(kind):
        found = pa.array(moved, LONG, mask=mask).cast(INT).cast(DATE)
    else:
        distance = pa.array(moved - days.astype(np.int64), LONG, mask=mask)
        micros = pc.multiply_checked(distance, 86_400_000_000)
        found = pc.add_checked(column.cast(LONG), micros).cast(kind)
    return found[0] if scalar else found


def _moved(values: Datum, step: int, kind: pa.DataType) -> Datum:
    return pc.add_checked(values.cast(kind), pa.scalar(step, kind)).cast(values.type)
