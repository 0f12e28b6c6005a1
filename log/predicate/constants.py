"""Constants beside columns: which value of the column's type a constant stands for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.tree import Value


def coerce(value: Value, kind: pa.DataType) -> Value:
    """A text beside a date or time column is read as one, and a date beside a time as its midnight, as Spark does.

    Raises PredicateError.
    """
    if isinstance(value, date) and not isinstance(value, datetime) and pt.is_timestamp(kind):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if kind.tz else None)
    if not isinstance(value, str) or not (pt.is_date(kind) or pt.is_timestamp(kind)):
        return value
    try:
        if pt.is_date(kind):
            return date.fromisoformat(value)
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise PredicateError(f"{value!r} is not a {kind}", advice="write it as ISO-8601", token=value) from error
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def fitting_scalar(value: Value, kind: pa.DataType) -> pa.Scalar:
    """The constant as an Arrow scalar that compares with `kind` without losing anything of it."""
    coerced = coerce(value, kind)
    if pt.is_decimal(kind) and isinstance(coerced, int) and not isinstance(coerced, bool):
        return pa.scalar(Decimal(coerced))
    if isinstance(coerced, Decimal) and not pt.is_decimal(kind):
        return pa.scalar(float(coerced))
    if isinstance(coerced, bool) or not isinstance(coerced, (int, float)):
        exact = pt.is_date(kind) or pt.is_timestamp(kind)
        return pa.scalar(coerced, kind) if exact else pa.scalar(coerced)
    return pa.scalar(coerced)


def constant_of(value: Value, kind: pa.DataType) -> pa.Scalar:
    """A constant as near to the type of a column as its meaning allows; `cast` judges the rest."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if pt.is_floating(kind):
            return pa.scalar(float(value), kind)
        if pt.is_decimal(kind) and isinstance(value, int):
            return pa.scalar(Decimal(value))
    return pa.scalar(value)


def members(value: Value, kind: pa.DataType) -> list[Value]:
    """The constant as a value of the type, or nothing where no value of it is its equal."""
    coerced = coerce(value, kind)
    if coerced is None:
        return []
    if isinstance(coerced, (int, float, Decimal)) and not isinstance(coerced, bool):
        if pt.is_floating(kind):
            return [float(coerced)]
        if pt.is_integer(kind) and coerced != int(coerced):
            return []
        coerced = int(coerced) if pt.is_integer(kind) else Decimal(coerced)
    try:
        return [pa.scalar(coerced, kind).as_py()]
    except pa.ArrowInvalid as error:
        if pt.is_integer(kind) or pt.is_decimal(kind):  # too large, or with digits that the column lacks
            return []
        raise PredicateError(f"{value!r} does not compare with a column of type {kind}", token=str(value)) from error
    except pa.ArrowTypeError as error:
        raise PredicateError(f"{value!r} does not compare with a column of type {kind}", token=str(value)) from error
