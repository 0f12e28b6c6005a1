"""CAST, and the conversions that Spark makes by itself. A value that does not fit is an error, as in ANSI mode.

Text is read and written as Spark's CAST does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.rows import Bound, Datum, Kernel, computed, per_value
from tidelog.log.predicate.tree import Literal, Value, to_sql
from tidelog.log.predicate.types import LONG, TEXT, as_decimal, is_moment, is_number

_MICROS = 1_000_000
# The widest decimal of 128 bits. A 64-bit integer has up to 19 digits.
_WIDE = 38
_LONG_DIGITS = 19


def cast_to(inner: Bound, kind: pa.DataType) -> Bound | None:
    """The value in another type; None if Spark or tidelog has no such cast."""
    if inner.kind.equals(kind):
        return inner
    found = _kernel(inner.kind, kind)
    if found is None:
        return None
    kernel, fallible = found
    return computed(kind, kernel, [inner], fallible=fallible)


def converted(inner: Bound, kind: pa.DataType) -> Bound:
    """The value in a type that `common_type` found."""
    found = cast_to(inner, kind)
    if found is None:
        raise AssertionError(inner.kind, kind)
    return found


def _kernel(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool] | None:
    """How values are cast, and whether that can fail."""
    if pt.is_null(source):
        return _nulls(target), False
    if pt.is_string(source):
        read = reader(target)
        return None if read is None else (per_value(target, read), True)
    if pt.is_string(target):
        return (_decoded, True) if pt.is_binary(source) else _to_text(source)
    if pt.is_boolean(source) and is_number(target):
        return _from_boolean(target)
    if pt.is_boolean(target) and is_number(source):
        return (lambda values: pc.not_equal(values, pa.scalar(0, pa.int8()))), False
    if is_number(source) and is_number(target):
        return _number(source, target)
    if is_moment(source) and is_moment(target):
        return (lambda values: values.cast(target, safe=False)), False
    if pt.is_timestamp(source) and source.tz and pt.is_integer(target):
        return (lambda values: _seconds(values).cast(target)), True
    if pt.is_integer(source) and pt.is_timestamp(target) and target.tz:
        return (lambda values: pc.multiply_checked(values.cast(LONG), _MICROS).cast(target)), True
    return None


def _decoded(values: Datum) -> Datum:
    """Bytes as the text that they are in UTF-8. Raises pa.ArrowInvalid for others."""
    try:
        return values.cast(TEXT)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid("a value is not text in UTF-8") from error


def _nulls(target: pa.DataType) -> Kernel:
    def kernel(values: Datum) -> Datum:
        return pa.scalar(None, target) if isinstance(values, pa.Scalar) else pa.nulls(len(values), target)

    return kernel


def _to_text(source: pa.DataType) -> tuple[Kernel, bool] | None:
    if pt.is_integer(source) or pt.is_boolean(source):
        return (lambda values: values.cast(TEXT)), False
    if pt.is_decimal(source):
        return per_value(TEXT, from_decimal), False
    if pt.is_timestamp(source):
        write = per_value(TEXT, from_micros)
        return (lambda values: write(values.cast(LONG))), True
    if pt.is_date(source):
        write = per_value(TEXT, lambda days: from_micros(days * 86_400 * _MICROS)[:10])
        return (lambda values: write(values.cast(pa.int32()))), True
    return None


def _from_boolean(target: pa.DataType) -> tuple[Kernel, bool] | None:
    step = _number(pa.int8(), target)
    if step is None:
        return None
    kernel, fallible = step
    return (lambda values: kernel(values.cast(pa.int8()))), fallible


def _number(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool] | None:
    if source.equals(target):
        return (lambda values: values), False
    if pt.is_decimal(target):
        return _to_decimal(source, target)
    if pt.is_integer(target):
        if pt.is_integer(source):
            return (lambda values: values.cast(target)), target.bit_width < source.bit_width
        if pt.is_floating(source):
            return (lambda values: pc.trunc(values).cast(target)), True
        whole = pc.CastOptions(target, allow_decimal_truncate=True)
        return (lambda values: values.cast(options=whole)), True
    if pt.is_decimal(source):
        return partial(decimal_to_float, target), False
    return (lambda values: values.cast(target, safe=False)), False


def decimal_to_float(kind: pa.DataType, values: Datum) -> Datum:
    """Each decimal as the nearest number of a floating type. Arrow's own cast makes 0.30000000000000004 of 0.3."""
    return values.cast(pa.string()).cast(kind)


def _to_decimal(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool]:
    if pt.is_floating(source):
        return per_value(target, to_decimal(target)), True
    exact = as_decimal(source)
    fallible = exact.precision - exact.scale > target.precision - target.scale
    if pt.is_integer(source):
        if target.scale > _WIDE - _LONG_DIGITS:
            return per_value(target, to_decimal(target)), fallible
        wide = pa.decimal128(_WIDE, target.scale)
        return (lambda values: values.cast(wide).cast(target)), fallible
    if source.scale <= target.scale:
        return (lambda values: values.cast(target)), fallible
    return per_value(target, to_decimal(target)), True


def _seconds(values: Datum) -> Datum:
    """Whole seconds since 1970, rounded down."""
    return pc.divide(pc.floor_temporal(values, 1, "second").cast(LONG), _MICROS)


# --- text -------------------------------------------------------------------------------------------------------------


# Java's `trim` for numbers and moments: spaces and the control characters.
_BLANK = "".join(map(chr, range(33))) + "\x7f"
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_FRACTION = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"inf": "inf", "+inf": "inf", "-inf": "-inf", "nan": "nan"}
_SPECIAL |= {"infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T](?:([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?)?)?[ ]?(.*))?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
# Of an offset.
_MOST_MINUTES = 18 * 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Enough digits for each number that a type holds, and small enough to be fast.
NUMBERS = Context(prec=400, Emin=-999_999, Emax=999_999)


def to_integer(text: str) -> int:
    """Read an integer. Raises ValueError."""
    cut = text.strip(_BLANK)
    if not _INTEGER.fullmatch(cut):
        raise ValueError(f"{_quoted(text)} is not an integer")
    return int(cut)


def to_float(text: str) -> float:
    """Read a floating-point number. Raises ValueError."""
    cut = text.strip(_BLANK)
    if cut.lower() in _SPECIAL:
        return float(_SPECIAL[cut.lower()])
    plain = cut[:-1] if cut[-1:] in ("d", "D", "f", "F") else cut
    if not _FRACTION.fullmatch(plain):
        raise ValueError(f"{_quoted(text)} is not a number")
    return float(plain)


def to_boolean(text: str) -> bool:
    """Read a boolean. Raises ValueError."""
    cut = text.strip(_BLANK).lower()
    if cut not in _TRUE and cut not in _FALSE:
        raise ValueError(f"{_quoted(text)} is not a boolean")
    return cut in _TRUE


def to_decimal(kind: pa.DataType) -> Callable[[Any], Decimal]:
    """How a text or number becomes a decimal of a type: rounded half away from zero. Raises ValueError."""
    unit, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, str):
            cut = value.strip(_BLANK)
            if not _FRACTION.fullmatch(cut):
                raise ValueError(f"{_quoted(value)} is not a number")
            number = NUMBERS.create_decimal(cut)
        else:
            number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite() or number.adjusted() > kind.precision:
            raise ValueError(f"{_quoted(str(value))} does not fit decimal({kind.precision},{kind.scale})")
        try:
            rounded = number.quantize(unit, ROUND_HALF_UP, NUMBERS)
        except InvalidOperation as error:
            raise ValueError(str(error)) from error
        if abs(rounded) >= limit:
            raise ValueError(f"{value} does not fit decimal({kind.precision},{kind.scale})")
        return rounded

    return convert


def to_days(text: str) -> int:
    """Read a date, such as 2026-01-31 or 2026, as days since 1970. Raises ValueError."""
    found = _DATE.fullmatch(text.strip(_BLANK))
    if not found:
        raise ValueError(f"{_quoted(text)} is not a date")
    return _numpy_moment(text, _day(*found.groups()), "D", "date")


def to_micros(text: str, *, zoned: bool) -> int:
    """Read a timestamp as microseconds since 1970; without a zone it is in UTC. Raises ValueError."""
    found = _MOMENT.fullmatch(text.strip(_BLANK))
    if not found:
        raise ValueError(f"{_quoted(text)} is not a timestamp")
    hour, minute, second, fraction, zone = found.groups()[3:]
    clock = ":".join(f"{int(part or 0):02}" for part in (hour, minute, second))
    moment = f"{_day(*found.groups()[:3])}T{clock}.{(fraction or '')[:6].ljust(6, '0')}"
    micros = _numpy_moment(text, moment, "us", "timestamp")
    offset = _offset(zone or "") // timedelta(microseconds=1)
    return micros - offset if zoned else micros


def _day(year: str, month: str | None, day: str | None) -> str:
    return f"{year}-{int(month or 1):02}-{int(day or 1):02}"


def _numpy_moment(text: str, moment: str, unit: OneOf["D", "us"], what: str) -> int:
    """The number of a date or time; NumPy has the year 0, as Spark does."""
    try:
        return int(np.datetime64(moment, unit).astype(np.int64))
    except ValueError as error:
        reason = str(error).partition(" in datetime string")[0].lower()
        raise ValueError(f"{_quoted(text)} is not a {what}: {reason}") from error


def _offset(zone: str) -> timedelta:
    if zone in ("", "Z", "UTC", "GMT", "UT"):
        return timedelta()
    found = _OFFSET.fullmatch(zone)
    hours, minutes = (int(found[2]), int(found[3] or 0)) if found else (0, 0)
    if not found or minutes > 59 or hours * 60 + minutes > _MOST_MINUTES:  # noqa: PLR2004 - the minutes of an hour
        raise ValueError(f"unknown time zone {_quoted(zone)}: use Z or an offset such as +01:00")
    offset = timedelta(hours=hours, minutes=minutes)
    return offset if found[1] == "+" else -offset


def from_micros(micros: int) -> str:
    """The text of a timestamp. Raises OverflowError for a year before 0 or after 9999."""
    text = str(np.datetime64(micros, "us"))
    if len(text) != len("2026-01-31T12:34:56.123456") or text.startswith("-"):
        raise OverflowError(f"the timestamp {text} has no text of four digits for its year")
    found = f"{text[:10]} {text[11:]}"
    return found.removesuffix(".000000") if found.endswith(".000000") else found.rstrip("0")


def from_decimal(value: Decimal) -> str:
    """The text of a decimal, without an exponent."""
    return format(value, "f")


def reader(kind: pa.DataType) -> Callable[[str], Any] | None:
    """How a text becomes a value of a type; None for a type that text cannot be cast to."""
    if pt.is_decimal(kind):
        return to_decimal(kind)
    if pt.is_timestamp(kind):
        zoned = kind.tz is not None
        return lambda text: to_micros(text, zoned=zoned)
    if pt.is_integer(kind):
        return to_integer
    if pt.is_floating(kind):
        return to_float
    if pt.is_boolean(kind):
        return to_boolean
    return to_days if pt.is_date(kind) else None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 50 else f"{text[:50]}...")  # noqa: PLR2004 - short enough for an error


# --- constants compared with columns ----------------------------------------------------------------------------------


def coerce(value: Value, kind: pa.DataType) -> Value | pa.Scalar:
    """Read a string as a date or timestamp if the column has that type, and a date as midnight, as Spark does.

    A moment for which Python has no value is Arrow's. Raises PredicateError if the string is not a date or timestamp.
    """
    if isinstance(value, date) and not isinstance(value, datetime) and pt.is_timestamp(kind):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if kind.tz else None)
    if not isinstance(value, str) or not (pt.is_date(kind) or pt.is_timestamp(kind)):
        return value
    try:
        number = to_days(value) if pt.is_date(kind) else to_micros(value, zoned=kind.tz is not None)
    except ValueError as error:
        name, example = ("date", "2026-01-31") if pt.is_date(kind) else ("timestamp", "2026-01-31T12:00:00")
        raise PredicateError(f"{value!r} is not a {name}", advice=f"write it like {example}", token=value) from error
    try:
        moment = _EPOCH + (timedelta(days=number) if pt.is_date(kind) else timedelta(microseconds=number))
    except OverflowError:
        return pa.scalar(number, kind)
    return moment.date() if pt.is_date(kind) else moment if kind.tz else moment.replace(tzinfo=None)


def constant_of(value: Value | pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """The constant in a type as close to the column's as possible without rounding; `cast` checks the rest."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if pt.is_floating(kind):
            return pa.scalar(float(value), kind)
        if pt.is_decimal(kind) and isinstance(value, int):
            return pa.scalar(Decimal(value))
    return value if isinstance(value, pa.Scalar) else pa.scalar(value)


def members(value: Value, kind: pa.DataType) -> list[Value | pa.Scalar]:
    """The constant as a value of the type, in a list; an empty list if no value of the type equals it."""
    coerced = coerce(value, kind)
    if coerced is None:
        return []
    if isinstance(coerced, pa.Scalar):
        return [coerced]
    read = reader(kind) if isinstance(coerced, str) else None
    if read is not None:
        coerced = _read_constant(coerced, read)
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


def _read_constant(text: Value, read: Callable[[str], Any]) -> Any:
    """A text among values of another type, as one of them."""
    try:
        return read(str(text))
    except ValueError as error:
        raise PredicateError(str(error), advice="use values of one type, or CAST", token=str(text)) from error


def _not_comparable(value: Value, kind: pa.DataType) -> PredicateError:
    text = to_sql(Literal(value))
    message = f"{text} cannot be compared with a column of type {kind}"
    return PredicateError(message, advice="use a value of that type", token=text)
