"""Values of change records as values of a column's type: each one exactly, or none at all.

Numbers with a point or an exponent come as `Digits`, so that none is lost on the way; whole numbers, texts, lists and
dicts are Python's own. A value that a column cannot hold exactly is a Misfit. Dates are days since 1970, and timestamps
are microseconds, as pyarrow takes them.

A record can be made up to be expensive. So a number is judged by its length and its exponent before it is computed:
one with more digits than MOST_DIGITS_READ, with those that its exponent stands for, is a Misfit.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from functools import partial
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import brief, did_you_mean

PRECISE, AS_TEXT, AS_DOUBLE = DECIMALS = ("precise", "string", "double")
BASE64, HEX, LATIN1 = BINARIES = ("base64", "hex", "latin1")
ADAPTIVE, UNITS = "adaptive", ("milliseconds", "microseconds", "nanoseconds")
MILLIS, MICROS, NANOS = UNITS

Meaning: TypeAlias = "Mapping[str, Any] | None"
"""What a record's own schema says of a value: its `type`, `name`, `parameters` and `items`; None without a schema."""
Reader: TypeAlias = "Callable[[Any, Meaning, str], Any]"
"""Gives a column's value for a record's, which is not null, what is said of it, and the usual unit of timestamps."""

# The names by which Kafka Connect and Debezium say what a value means.
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
DECIMAL_NAME, VARIABLE_NAME = f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
_UNIT_OF_NAME = {
    f"{_CONNECT}Timestamp": MILLIS,
    f"{_DEBEZIUM}Timestamp": MILLIS,
    f"{_DEBEZIUM}MicroTimestamp": MICROS,
    f"{_DEBEZIUM}NanoTimestamp": NANOS,
}
_ISO_TIMESTAMP = f"{_DEBEZIUM}IsoTimestamp"
LOCAL_NAMES = (*_UNIT_OF_NAME, _ISO_TIMESTAMP)
ZONED_NAME = f"{_DEBEZIUM}ZonedTimestamp"
DATE_NAMES = (f"{_CONNECT}Date", f"{_DEBEZIUM}Date", f"{_DEBEZIUM}IsoDate")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_FIRST_MICROS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_MICROS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_FIRST_DAY, _LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s?(?:(Z)|([+-])(\d\d):?(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)Z?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_HEX = re.compile(r"([0-9A-Fa-f]{2})*", re.ASCII)
# As JSON has them, and as Debezium writes a numeric as text.
_NOT_FINITE = {
    **{text: float(text) for text in ("NaN", "Infinity", "-Infinity")},
    "NAN": float("nan"),
    "POSITIVE_INFINITY": float("inf"),
    "NEGATIVE_INFINITY": float("-inf"),
}
# A double in as many digits is that double.
_DIGITS_OF_A_DOUBLE = 17
MOST_DIGITS_READ = 1000
"""No longer number is read. PostgreSQL's numeric can have more; the other databases have no such numbers."""
MOST_SCALE = MOST_DIGITS_READ
"""And none with so many digits behind its point."""
# Bytes of so many digits, and how many characters base64 has for them.
_MOST_BYTES = 416
_MOST_BASE64 = -(-_MOST_BYTES // 3) * 4
_EXACT = Context(prec=400, traps=[Inexact, InvalidOperation, Overflow])


class Digits(str):
    """A number with a point or an exponent, as JSON has it."""

    __slots__ = ()


class MisfitError(ValueError):
    """A value is not exactly one of its column's type."""


UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What `from_json` raises."""
_DECODER = msgspec.json.Decoder(float_hook=Digits)


def from_json(content: bytes | str) -> Any:
    """JSON, with all digits of its numbers. Raises one of UNREADABLE."""
    return _DECODER.decode(content)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the values of a stream of change records are written, where a record does not say it itself.

    `units` are by column; `unit` is that of the others. `zone` is that of timestamps without one.
    """

    decimals: str = PRECISE
    binaries: str = BASE64
    unit: str = ADAPTIVE
    units: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None

    def __post_init__(self) -> None:
        require_option("decimals", self.decimals, DECIMALS)
        require_option("binaries", self.binaries, BINARIES)
        for name in (self.unit, *self.units.values()):
            require_option("timestamps", name, (ADAPTIVE, *UNITS))
        try:
            zone_of(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(
                f"zone={self.zone!r} is not a time zone", advice="pass one such as 'UTC' or 'Europe/Berlin'"
            ) from error


def zone_of(name: str | None) -> ZoneInfo | None:
    """The time zone of a name."""
    return None if name is None else ZoneInfo(name)


def require_option(argument: str, value: object, known: tuple[str, ...]) -> None:
    """Raise ConfigurationError for a value that an argument does not have."""
    if value not in known:
        raise ConfigurationError(
            f"{argument}={value!r} is not supported",
            advice=f"{did_you_mean(value, known)}use one of {', '.join(known)}",
        )


def reader_of(name: str, kind: pa.DataType, encoding: Encoding) -> Reader:
    """Reads values of a column's type. Raises ConfigurationError for a type that values cannot be read as."""
    if pt.is_struct(kind):
        fields = [(of.name, of.nullable, reader_of(name, of.type, encoding)) for of in kind]
        return partial(_struct, fields)
    if pt.is_map(kind):
        if pt.is_nested(kind.key_type):
            raise ConfigurationError(
                f"the column {name!r} is {kind}, whose keys cannot be read", advice="choose map<string, ...>"
            )
        key, item = reader_of(name, kind.key_type, encoding), reader_of(name, kind.item_type, encoding)
        return partial(_map, key, item, kind.item_field.nullable)
    if pt.is_list(kind):
        return partial(_list, reader_of(name, kind.value_type, encoding), kind.value_field.nullable)
    for is_kind, make in _READERS:
        if is_kind(kind):
            return make(kind, encoding)
    raise ConfigurationError(
        f"the column {name!r} is {kind}, as which a change record cannot be read",
        advice="choose another type, such as string or bigint",
    )


def as_json(value: Any) -> str:
    """A value as JSON, with the digits that it had."""
    return msgspec.json.encode(_raw(value)).decode()


def _raw(value: Any) -> Any:
    if isinstance(value, Digits):
        return msgspec.Raw(str(value).encode())
    if isinstance(value, dict):
        return {name: _raw(part) for name, part in value.items()}
    return [_raw(part) for part in value] if isinstance(value, list) else value


def _name(meaning: Meaning) -> str | None:
    return None if meaning is None else meaning.get("name")


def _integers(kind: pa.DataType, encoding: Encoding) -> Reader:  # noqa: ARG001 - as all of these
    least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1

    def read(value: Any, meaning: Meaning, unit: str) -> int:  # noqa: ARG001 - as all readers
        number = value if type(value) is int else _whole(value)
        if not least <= number <= most:
            raise MisfitError
        return number

    return read


def _whole(value: Any) -> int:
    """A whole number, of a text or of one with zeros behind its point."""
    if type(value) is int:
        return value
    if isinstance(value, Digits):
        number = number_of(value)
        if number == number.to_integral_value(context=_EXACT):
            return int(number)
    elif isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise MisfitError


def number_of(text: str) -> Decimal:
    """The number that a text is. Raises MisfitError for one that is none, or that takes too many digits."""
    if len(text) > 2 * MOST_DIGITS_READ or not _NUMBER.fullmatch(text):
        raise MisfitError
    return _bounded(Decimal(text))


def _bounded(number: Decimal) -> Decimal:
    """The number, if its first digit is less than MOST_DIGITS_READ away from its point."""
    if abs(number.adjusted()) < MOST_DIGITS_READ:
        return number
    if number:
        raise MisfitError
    return Decimal(0)


def _booleans(kind: pa.DataType, encoding: Encoding) -> Reader:  # noqa: ARG001 - as all of these
    values = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}

    def read(value: Any, meaning: Meaning, unit: str) -> bool:  # noqa: ARG001 - as all readers
        try:
            return values[value]  # a dict takes 1 for True and 0 for False
        except (KeyError, TypeError) as error:
            raise MisfitError from error

    return read


def _floats(kind: pa.DataType, encoding: Encoding) -> Reader:  # noqa: ARG001 - as all of these
    is_double = kind.bit_width == 64  # noqa: PLR2004 - bits

    def read(value: Any, meaning: Meaning, unit: str) -> float:  # noqa: ARG001 - as all readers
        double = _double(value)
        if is_double or not math.isfinite(double):
            return double
        with np.errstate(over="ignore"):
            single = np.float32(double)
        if float(single) != double and float(str(single)) != double:
            raise MisfitError
        return float(single)

    return read


def _double(value: Any) -> float:
    if type(value) is int:
        try:
            double = float(value)
        except OverflowError as error:
            raise MisfitError from error
        if int(double) != value:
            raise MisfitError
        return double
    if not isinstance(value, str):
        raise MisfitError
    if not _NUMBER.fullmatch(value):
        if value in _NOT_FINITE and not isinstance(value, Digits):
            return _NOT_FINITE[value]
        raise MisfitError
    if _INTEGER.fullmatch(value):
        return _double(int(value))
    double = float(value)
    if not math.isfinite(double) or len(number_of(value).normalize(_EXACT).as_tuple().digits) > _DIGITS_OF_A_DOUBLE:
        raise MisfitError
    return double


def _decimals(kind: pa.DataType, encoding: Encoding) -> Reader:
    precision, scale = kind.precision, kind.scale
    step = Decimal(1).scaleb(-scale)
    is_precise = encoding.decimals == PRECISE

    def read(value: Any, meaning: Meaning, unit: str) -> Decimal:  # noqa: ARG001 - as all readers
        number = _decimal(value, meaning, scale, is_precise=is_precise)
        try:
            exact = number.quantize(step, context=_EXACT)
        except DecimalException as error:
            raise MisfitError from error
        if len(exact.as_tuple().digits) > precision:
            raise MisfitError
        return exact

    return read


def _decimal(value: Any, meaning: Meaning, scale: int, *, is_precise: bool) -> Decimal:
    """A number; `scale` is that of bytes whose record does not say one."""
    if type(value) is int:
        return _bounded(Decimal(value))
    if isinstance(value, dict):
        of_struct = value.get("scale")
        if type(of_struct) is not int:
            raise MisfitError
        return _scaled(value.get("value"), of_struct)
    if not isinstance(value, str):
        raise MisfitError
    if not isinstance(value, Digits):
        if meaning is None and is_precise:
            return _scaled(value, scale)
        if _name(meaning) == DECIMAL_NAME:
            return _scaled(value, scale_of(meaning, scale))
    return number_of(value)


def scale_of(meaning: Meaning, default: int) -> int:
    """The scale of a Decimal, by what is said of it."""
    return _parameter(meaning, "scale", default)


def precision_of(meaning: Meaning, default: int) -> int:
    """How many digits a Decimal can have."""
    return _parameter(meaning, "connect.decimal.precision", default)


def _parameter(meaning: Meaning, name: str, default: int) -> int:
    return int(((meaning or {}).get("parameters") or {}).get(name, default))


def _scaled(value: Any, scale: int) -> Decimal:
    """The number of its bytes in base64."""
    if abs(scale) > MOST_SCALE:
        raise MisfitError
    return _bounded(Decimal(_unscaled(value)).scaleb(-scale, context=_EXACT))


def _unscaled(value: Any) -> int:
    if type(value) is str and len(value) > _MOST_BASE64:
        raise MisfitError
    return int.from_bytes(_base64(value), "big", signed=True)


def unscaled_of(value: Any) -> int:
    """The digits of a decimal, whatever its scale is. Raises MisfitError."""
    return _unscaled(value.get("value") if isinstance(value, dict) else value)


def _texts(kind: pa.DataType, encoding: Encoding) -> Reader:  # noqa: ARG001 - as all of these
    def read(value: Any, meaning: Meaning, unit: str) -> str:  # noqa: ARG001 - as all readers
        if meaning is not None and meaning.get("name") in (DECIMAL_NAME, VARIABLE_NAME):
            return format(_decimal(value, meaning, 0, is_precise=True), "f")
        if type(value) is str:
            return value
        return as_json(value)

    return read


def _binaries(kind: pa.DataType, encoding: Encoding) -> Reader:  # noqa: ARG001 - as all of these
    of_text = {BASE64: _base64, HEX: _hexadecimal, LATIN1: _latin1}[encoding.binaries]

    def read(value: Any, meaning: Meaning, unit: str) -> bytes:  # noqa: ARG001 - as all readers
        is_said = meaning is not None and meaning.get("type") == "bytes"
        return _base64(value) if is_said else of_text(value)

    return read


def _base64(value: Any) -> bytes:
    if type(value) is not str:
        raise MisfitError
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MisfitError from error


def _hexadecimal(value: Any) -> bytes:
    if type(value) is not str or not _HEX.fullmatch(value):
        raise MisfitError
    return bytes.fromhex(value)


def _latin1(value: Any) -> bytes:
    if type(value) is not str:
        raise MisfitError
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise MisfitError from error


def _dates(kind: pa.DataType, encoding: Encoding) -> Reader:  # noqa: ARG001 - as all of these
    def read(value: Any, meaning: Meaning, unit: str) -> int:  # noqa: ARG001 - as all readers
        if _name(meaning) not in (None, *DATE_NAMES):
            raise MisfitError
        if type(value) is int:
            day = value
        elif type(value) is str and (found := _DATE.fullmatch(value)):
            try:
                day = (date.fromisoformat(found[1]) - date(1970, 1, 1)).days
            except ValueError as error:
                raise MisfitError from error
        else:
            raise MisfitError
        if not _FIRST_DAY <= day <= _LAST_DAY:
            raise MisfitError
        return day

    return read


def _timestamps(kind: pa.DataType, encoding: Encoding) -> Reader:
    has_zone = kind.tz is not None
    zone = zone_of(encoding.zone)

    def read(value: Any, meaning: Meaning, unit: str) -> int:
        if type(value) is int:
            known = unit if meaning is None else _UNIT_OF_NAME.get(meaning.get("name") or "")
            micros = _micros(value, known)
        elif type(value) is str:
            is_local = _name(meaning) == _ISO_TIMESTAMP
            micros = _micros_of_text(value, zone, has_zone=has_zone, is_local=is_local)
        else:
            raise MisfitError
        if not _FIRST_MICROS <= micros <= _LAST_MICROS:
            raise MisfitError
        return micros

    return read


def _micros(number: int, unit: str | None) -> int:
    if unit == MICROS:
        return number
    if unit == MILLIS:
        return number * 1000
    if unit == NANOS and number % 1000 == 0:
        return number // 1000
    raise MisfitError


def _micros_of_text(text: str, zone: ZoneInfo | None, *, has_zone: bool, is_local: bool) -> int:
    """Microseconds of an ISO text; `is_local`: its Z says nothing, as of a timestamp without a zone."""
    found = _ISO.fullmatch(text)
    if not found:
        raise MisfitError
    day, hour, minute, second, fraction, utc, sign, hours, minutes, seconds = found.groups()
    digits = (fraction or "").ljust(9, "0")
    if digits[6:] != "000":
        raise MisfitError
    offset = UTC
    try:
        if sign:
            amount = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0))
            offset = timezone(amount if sign == "+" else -amount)
        start = datetime.fromisoformat(day)
        moment = start.replace(hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=int(digits[:6]))
        is_zoned = bool(sign or utc) and not is_local
        if has_zone and not is_zoned and not is_local:
            if zone is None:
                raise MisfitError
            return (moment.replace(tzinfo=zone) - _EPOCH) // _MICROSECOND
        if not has_zone and is_zoned:
            raise MisfitError
        return (moment.replace(tzinfo=offset) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise MisfitError from error


def _list(item: Reader, has_nulls: bool, value: Any, meaning: Meaning, unit: str) -> list[Any]:  # noqa: FBT001 - partial
    if not isinstance(value, list):
        raise MisfitError
    of_item = None if meaning is None else meaning.get("items")
    found = [None if part is None else item(part, of_item, unit) for part in value]
    if not has_nulls and None in found:
        raise MisfitError
    return found


def _map(
    key: Reader,
    item: Reader,
    has_nulls: bool,  # noqa: FBT001 - partial
    value: Any,
    meaning: Meaning,
    unit: str,
) -> list[tuple[Any, Any]]:
    """The entries of an object, or of a list of pairs, as Kafka Connect writes a map whose keys are no texts."""
    if type(value) is str:  # as Debezium writes an hstore, unless it is told otherwise
        try:
            value = from_json(value)
        except UNREADABLE as error:
            raise MisfitError from error
    if isinstance(value, dict):
        value = value.items()
    elif not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):  # noqa: PLR2004 - a pair
        raise MisfitError
    of_key, of_item = (None, None) if meaning is None else (meaning.get("keys"), meaning.get("values"))
    entries = [
        (_present(key, name, of_key, unit), None if part is None else item(part, of_item, unit)) for name, part in value
    ]
    is_short = not has_nulls and any(part is None for _, part in entries)
    if is_short or len({name for name, _ in entries}) < len(entries):
        raise MisfitError
    return entries


def _present(key: Reader, value: Any, meaning: Meaning, unit: str) -> Any:
    if value is None:
        raise MisfitError
    return key(value, meaning, unit)


def _struct(fields: list[tuple[str, bool, Reader]], value: Any, meaning: Meaning, unit: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MisfitError
    of_fields = {of.get("field"): of for of in (meaning or {}).get("fields") or ()}
    found = {}
    for name, nullable, read in fields:
        part = value.get(name)
        if part is None and not nullable:
            raise MisfitError
        found[name] = None if part is None else read(part, of_fields.get(name), unit)
    return found


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Encoding], Reader]], ...] = (
    (pt.is_signed_integer, _integers),
    (pt.is_string, _texts),
    (pt.is_boolean, _booleans),
    (pt.is_floating, _floats),
    (pt.is_decimal, _decimals),
    (pt.is_binary, _binaries),
    (pt.is_date32, _dates),
    (pt.is_timestamp, _timestamps),
)


def value_shown(value: Any) -> str:
    """A value, short enough for a reason."""
    try:
        return brief(str(value) if isinstance(value, str) else value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
