"""Text as numbers, dates and timestamps, and the other way round, as Spark's CAST reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

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


def to_date(text: str) -> date:
    """Read a date, such as 2026-01-31 or 2026. Raises ValueError."""
    found = _DATE.fullmatch(text.strip(_BLANK))
    if not found:
        raise ValueError(f"{_quoted(text)} is not a date")
    try:
        return date(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    except ValueError as error:
        raise ValueError(f"{_quoted(text)} is not a date: {error}") from error


def to_moment(text: str, *, zoned: bool) -> datetime:
    """Read a timestamp; without a zone it is in UTC. Raises ValueError."""
    found = _MOMENT.fullmatch(text.strip(_BLANK))
    if not found:
        raise ValueError(f"{_quoted(text)} is not a timestamp")
    year, month, day, hour, minute, second = (
        int(part or default) for part, default in zip(found.groups()[:6], (1, 1, 1, 0, 0, 0), strict=True)
    )
    micros = int((found[7] or "")[:6].ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)
        moment -= _offset(found[8] or "") if zoned else timedelta()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{_quoted(text)} is not a timestamp: {error}") from error
    if not zoned and found[8]:
        _offset(found[8])
    return moment if zoned else moment.replace(tzinfo=None)


def _offset(zone: str) -> timedelta:
    if zone in ("", "Z", "UTC", "GMT", "UT"):
        return timedelta()
    found = _OFFSET.fullmatch(zone)
    if not found or int(found[2]) > 18 or int(found[3] or 0) > 59:  # noqa: PLR2004 - the range of zone offsets
        raise ValueError(f"unknown time zone {_quoted(zone)}: use Z or an offset such as +01:00")
    offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    return offset if found[1] == "+" else -offset


def from_micros(micros: int) -> str:
    """The text of a timestamp. Raises OverflowError for a year that Python does not have."""
    moment = _EPOCH + timedelta(microseconds=micros)
    text = f"{moment.year:04}{moment:-%m-%d %H:%M:%S}"
    return f"{text}.{moment.microsecond:06}".rstrip("0") if moment.microsecond else text


def from_decimal(value: Decimal) -> str:
    """The text of a decimal, without an exponent."""
    return format(value, "f")


def reader(kind: pa.DataType) -> Callable[[str], Any] | None:
    """How a text becomes a value of a type; None for a type that text cannot be cast to."""
    if pt.is_decimal(kind):
        return to_decimal(kind)
    if pt.is_timestamp(kind):
        zoned = kind.tz is not None
        return lambda text: to_moment(text, zoned=zoned)
    if pt.is_integer(kind):
        return to_integer
    if pt.is_floating(kind):
        return to_float
    if pt.is_boolean(kind):
        return to_boolean
    return to_date if pt.is_date(kind) else None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 50 else f"{text[:50]}...")  # noqa: PLR2004 - short enough for an error
