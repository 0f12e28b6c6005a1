"""Constants compared with columns: which value of the column's type a constant stands for."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.text_casts import to_date, to_moment
from tidelog.log.predicate.tree import Literal, Value, to_sql


def coerce(value: Value, kind: pa.DataType) -> Value:
    """Read a string as a date or timestamp if the column has that type, and a date as midnight, as Spark does.

    Raises PredicateError if the string is not a date or timestamp.
    """
    if isinstance(value, date) and not isinstance(value, datetime) and pt.is_timestamp(kind):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if kind.tz else None)
    if not isinstance(value, str) or not (pt.is_date(kind) or pt.is_timestamp(kind)):
        return value
    try:
        return to_date(value) if pt.is_date(kind) else to_moment(value, zoned=kind.tz is not None)
    except ValueError as error:
        name, example = ("date", "2026-01-31") if pt.is_date(kind) else ("timestamp", "2026-01-31T12:00:00")
        raise PredicateError(f"{value!r} is not a {name}", advice=f"write it like {example}", token=value) from error


def constant_of(value: Value, kind: pa.DataType) -> pa.Scalar:
    """The constant in a type as close to the column's as possible without rounding; `cast` checks the rest."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if pt.is_floating(kind):
            return pa.scalar(float(value), kind)
        if pt.is_decimal(kind) and isinstance(value, int):
            return pa.scalar(Decimal(value))
    return pa.scalar(value)


def members(value: Value, kind: pa.DataType) -> list[Value]:
    """The constant as a value of the type, in a list; an empty list if no value of the type equals it."""
    coerced = coerce(value, kind)
    if coerced is None:
        return []
    if isinstance(coerced, (int, float, Decimal)) and not isinstance(coerced, bool):
        if pt.is_floating(kind):
            return [float(coerced)]
        if not math.isfinite(coerced) or (pt.is_integer(kind) and coerced != int(coerced)):
            return []
        coerced = int(coerced) if pt.is_integer(kind) else Decimal(coerced)
    try:
        return [pa.scalar(coerced, kind).as_py()]
    except (pa.ArrowInvalid, OverflowError) as error:
        if pt.is_integer(kind) or pt.is_decimal(kind):  # too large, or more digits than the column has
            return []
        raise _not_comparable(value, kind) from error
    except pa.ArrowTypeError as error:
        raise _not_comparable(value, kind) from error


def _not_comparable(value: Value, kind: pa.DataType) -> PredicateError:
    text = to_sql(Literal(value))
    message = f"{text} cannot be compared with a column of type {kind}"
    return PredicateError(message, advice="use a value of that type", token=text)
