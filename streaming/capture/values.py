"""Values of change records as values of a column's type: each one exactly, or none at all.

A record's values are variants, which keep what JSON says: whether a number has quotes, and all digits of a decimal. A
value that a column cannot hold exactly becomes null here, and `fits` tells it from a null of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from tidelog.log.errors import ConfigurationError
from tidelog.log.presentable import did_you_mean

PRECISE, AS_TEXT, AS_DOUBLE = DECIMALS = ("precise", "string", "double")
BASE64, HEX, LATIN1 = BINARIES = ("base64", "hex", "latin1")
ADAPTIVE, UNITS = "adaptive", ("milliseconds", "microseconds", "nanoseconds")
MILLIS, MICROS, NANOS = UNITS

# The names by which Kafka Connect and Debezium say what a value means.
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
_DECIMAL = f"{_CONNECT}Decimal"
_UNIT_OF_NAME = {
    f"{_CONNECT}Timestamp": MILLIS,
    f"{_DEBEZIUM}Timestamp": MILLIS,
    f"{_DEBEZIUM}MicroTimestamp": MICROS,
    f"{_DEBEZIUM}NanoTimestamp": NANOS,
}
_ZONED_NAMES = (f"{_DEBEZIUM}ZonedTimestamp",)
_ISO_TIMESTAMP = f"{_DEBEZIUM}IsoTimestamp"
_DATE_NAMES = (f"{_CONNECT}Date", f"{_DEBEZIUM}Date", f"{_DEBEZIUM}IsoDate")
# The years 1 to 9999, in microseconds and in days.
_LEAST_MICROS, _MOST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_LEAST_DAY, _MOST_DAY = -719_162, 2_932_896
_ISO = r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?$"
_INTEGER = r"^-?\d{1,19}$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?$"
_MOST_DIGITS = 17
_PLAIN = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the values of a stream of change records are written, where a record does not say it itself.

    `units` are by column; `unit` is that of the others.
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


def require_option(argument: str, value: object, known: tuple[str, ...]) -> None:
    """Raise ConfigurationError for a value that an argument does not have."""
    if value not in known:
        raise ConfigurationError(
            f"{argument}={value!r} is not supported",
            advice=f"{did_you_mean(value, known)}use one of {', '.join(known)}",
        )


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a record's own schema says of a value: a struct with `type`, `name`, `parameters` and `items`, or null.

    `declared` is None if no record has a schema. `usual_unit` is the unit of timestamps without a schema.
    """

    encoding: Encoding
    declared: Column | None = None
    usual_unit: Column | None = None

    @property
    def name(self) -> Column:
        return F.lit(None).cast("string") if self.declared is None else self.declared["name"]

    @property
    def is_declared(self) -> Column:
        return F.lit(False) if self.declared is None else self.declared.isNotNull()  # noqa: FBT003 - a value

    @property
    def scale(self) -> Column:
        if self.declared is None:
            return F.lit(None).cast("int")
        return F.try_element_at(self.declared["parameters"], F.lit("scale")).try_cast("int")

    def of_items(self) -> Meaning:
        declared = None if self.declared is None else self.declared["items"]
        return Meaning(self.encoding, declared, self.usual_unit)

    def of_parts(self) -> Meaning:
        return Meaning(self.encoding, None, self.usual_unit)


def needs_meaning(kind: DataType) -> bool:
    """Whether values of a type are read as a record's schema says."""
    if isinstance(kind, ArrayType):
        return needs_meaning(kind.elementType)
    return isinstance(kind, DecimalType | DateType | TimestampType | TimestampNTZType | StringType)


def require_supported_type(name: str, kind: DataType) -> None:
    """Raise ConfigurationError for a type that values cannot be read as."""
    inner: tuple[DataType, ...] = ()
    if isinstance(kind, StructType):
        inner = tuple(part.dataType for part in kind)
    elif isinstance(kind, ArrayType):
        inner = (kind.elementType,)
    elif isinstance(kind, MapType):
        inner = (kind.keyType, kind.valueType)
    elif type(kind) not in _READERS and not isinstance(kind, _PLAIN):
        raise ConfigurationError(
            f"the column {name!r} is {kind.simpleString()}, as which a change record cannot be read",
            advice="choose another type, such as string or bigint",
        )
    if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType):
        raise ConfigurationError(
            f"the column {name!r} is {kind.simpleString()}, and the keys of JSON are texts",
            advice="choose map<string, ...>",
        )
    for part in inner:
        require_supported_type(name, part)


def json_path(name: str) -> str:
    """The path of a field, as Spark's functions for variants take it. Raises ConfigurationError."""
    if '"' not in name:
        return f'$["{name}"]'
    if "'" not in name:
        return f"$['{name}']"
    raise ConfigurationError(f"the column {name!r} has both kinds of quotes", advice="rename the column")


def part_of(value: Column, path: str, kind: str = "variant") -> Column:
    """A part of a variant; null if it is not there, or not of that kind."""
    return F.try_variant_get(value, path, kind)


def as_text(value: Column) -> Column:
    """A variant as text: a text as it is, a number in digits, and anything else as JSON."""
    return part_of(value, "$", "string")


def is_given(value: Column) -> Column:
    """Whether a variant is neither missing nor a null."""
    return value.isNotNull() & ~F.is_variant_null(value)


def is_text(value: Column) -> Column:
    """Whether a variant is a text, with quotes."""
    return F.schema_of_variant(value) == "STRING"


def is_object(value: Column) -> Column:
    """Whether a variant has fields."""
    return F.coalesce(F.schema_of_variant(value).startswith("OBJECT<"), F.lit(False))  # noqa: FBT003 - a value


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """The expression `body` of a value that is computed once."""
    return F.element_at(F.transform(F.array(value), body), 1)


def typed_value(value: Column, kind: DataType, meaning: Meaning) -> Column:
    """A variant as a value of a type; null if it is missing, a null, or does not fit exactly."""
    if isinstance(kind, _PLAIN):
        return as_text(value).try_cast(kind)
    return F.when(is_given(value), _READERS[type(kind)](value, kind, meaning))


def _as_text(value: Column, kind: DataType, meaning: Meaning) -> Column:  # noqa: ARG001 - as all readers
    text = as_text(value)
    if meaning.declared is None:
        return text
    number = let(_decimal_text(value, meaning, F.lit(0)), _plain_text)
    of_struct = meaning.name == "io.debezium.data.VariableScaleDecimal"
    return F.when((meaning.name == _DECIMAL) | of_struct, number).otherwise(text)


def _as_boolean(value: Column, kind: DataType, meaning: Meaning) -> Column:  # noqa: ARG001 - as all readers
    text = as_text(value)
    return F.when(text.isin("true", "1"), F.lit(True)).when(text.isin("false", "0"), F.lit(False))  # noqa: FBT003 - values


def _as_double(value: Column, kind: DataType, meaning: Meaning) -> Column:  # noqa: ARG001 - as all readers
    """A number with at most so many digits as a double has, or one of those that are not finite."""
    text = as_text(value)
    number = text.try_cast("double")
    whole = text.rlike(_INTEGER)
    digits = F.length(F.regexp_replace(F.regexp_replace(text, r"[eE].*$", ""), r"[^0-9]|^[-+0.]+", ""))
    is_same = F.when(whole, number.try_cast("decimal(38,0)") == text.try_cast("decimal(38,0)")).otherwise(
        digits <= _MOST_DIGITS
    )
    is_finite = text.rlike(_NUMBER) & (F.abs(number) < F.lit(float("inf")))
    return F.when(is_finite & is_same, number).when(text.isin("NaN", "Infinity", "-Infinity"), number)


def _as_float(value: Column, kind: DataType, meaning: Meaning) -> Column:
    """A number that a float has by its shortest digits, or by all of them."""
    number = as_text(value).try_cast("float")
    shortest = number.cast("string").try_cast("double")

    def exact(double: Column) -> Column:
        return F.when((shortest == double) | (number.cast("double") == double), number)

    return let(_as_double(value, kind, meaning), exact)


def _as_decimal(value: Column, kind: DataType, meaning: Meaning) -> Column:
    kind = cast("DecimalType", kind)
    return let(_decimal_text(value, meaning, F.lit(kind.scale)), partial(_exact_decimal, kind))


def _exact_decimal(kind: DecimalType, text: Column) -> Column:
    mantissa = F.regexp_replace(text, r"[eE].*$", "")
    exponent = F.coalesce(F.nullif(F.regexp_extract(text, r"[eE]([+-]?\d+)$", 1), F.lit("")).try_cast("int"), F.lit(0))
    digits = F.regexp_replace(mantissa, r"[^0-9]", "")
    behind = F.length(F.regexp_extract(mantissa, r"\.(\d*)$", 1))
    zeros = F.length(F.regexp_extract(digits, "(0*)$", 1))
    fits = (behind - zeros - exponent <= kind.scale) | digits.rlike("^0+$")
    return F.when(text.rlike(_NUMBER) & fits, text.try_cast(kind))


def _decimal_text(value: Column, meaning: Meaning, scale: Column) -> Column:
    """The digits of a number, perhaps with an exponent. `scale` is that of bytes whose record does not say one."""
    text = as_text(value)
    is_precise = F.lit(meaning.encoding.decimals == PRECISE)
    if meaning.declared is not None:
        is_precise = F.when(meaning.is_declared, meaning.name.eqNullSafe(_DECIMAL)).otherwise(is_precise)
        scale = F.coalesce(meaning.scale, scale)
    own = part_of(value, "$.value", "string")
    return (
        F.when(is_object(value), _with_scale(_unscaled(own), part_of(value, "$.scale", "int")))
        .when(is_text(value) & is_precise, _with_scale(_unscaled(text), scale))
        .otherwise(text)
    )


def _with_scale(unscaled: Column, scale: Column) -> Column:
    return F.concat(unscaled, F.lit("E"), (-scale).cast("string"))


def _plain_text(number: Column) -> Column:
    """A number as digits without an exponent: its own digits, with a point."""
    parts = F.regexp_extract(number, r"^-?(\d+)(?:E-?\d+)?$", 1)
    sign = F.when(number.startswith("-"), "-").otherwise("")
    scale = -F.regexp_extract(number, r"E(-?\d+)$", 1).try_cast("int")
    padded = F.lpad(parts, F.greatest(F.length(parts), scale + 1), F.lit("0"))
    with_point = F.concat(
        F.substr(padded, F.lit(1), F.length(padded) - scale), F.lit("."), F.substr(padded, F.length(padded) - scale + 1)
    )
    shifted = F.concat(parts, F.repeat(F.lit("0"), F.greatest(-scale, F.lit(0))))
    digits = F.when(scale > 0, with_point).when(scale <= 0, shifted)
    return F.coalesce(F.concat(sign, digits), number)


def _unscaled(text: Column) -> Column:
    """The whole number, in digits, that bytes in base64 are: two's complement, the greatest byte first."""
    return let(F.hex(_bytes(text)), _whole_number)


def _whole_number(digits: Column) -> Column:
    """The number that hexadecimal digits are in two's complement."""
    is_negative = digits >= "8"
    padded = F.lpad(digits, 32, F.when(is_negative, "F").otherwise("0"))
    whole = DecimalType(38, 0)
    number = F.lit(0).cast(whole)
    for place in range(4):
        group = F.conv(F.substring(padded, 8 * place + 1, 8), 16, 10).try_cast(whole)
        group = F.when(is_negative, F.lit(2**32 - 1).cast(whole) - group).otherwise(group)
        number = F.try_add(F.try_multiply(number, F.lit(2**32).cast(whole)), group)
    # The bits of a negative number, turned over, are one less than its amount. Spark's minus rounds to 34 digits.
    negative = F.concat(F.lit("-"), F.try_add(number, F.lit(1).cast(whole)).cast("string"))
    text = F.when(is_negative, negative).otherwise(number.cast("string"))
    return F.when(F.length(digits).between(2, 32), text)


def _bytes(text: Column) -> Column:
    content = F.try_to_binary(text, F.lit("base64"))
    return F.when(F.base64(content) == text, content)


def _as_binary(value: Column, kind: DataType, meaning: Meaning) -> Column:  # noqa: ARG001 - as all readers
    text, written = as_text(value), meaning.encoding.binaries
    if written == HEX:
        content = F.when(text.rlike("^([0-9A-Fa-f]{2})*$"), F.unhex(text))
    elif written == LATIN1:
        content = F.when(~text.rlike("[^\\x00-\\xFF]"), F.encode(text, "ISO-8859-1"))
    else:
        content = _bytes(text)
    return F.when(is_text(value), content)


def _as_date(value: Column, kind: DataType, meaning: Meaning) -> Column:
    text = as_text(value)
    days = text.try_cast("int")
    of_days = F.when(text.rlike(_INTEGER) & days.between(_LEAST_DAY, _MOST_DAY), F.date_from_unix_date(days))
    of_text = F.when(text.rlike(r"^\d{4}-\d\d-\d\dZ?$"), F.substring(text, 1, 10).try_cast(kind))
    found = F.coalesce(of_days, of_text)
    if meaning.declared is None:
        return found
    return F.when(meaning.name.isNull() | meaning.name.isin(*_DATE_NAMES), found)


def _as_timestamp(value: Column, kind: DataType, meaning: Meaning) -> Column:
    text = as_text(value)

    def instant(micros: Column) -> Column:
        if not isinstance(kind, TimestampNTZType):
            return F.when(micros.isNotNull(), F.timestamp_micros(micros))
        step = F.expr("INTERVAL '0 00:00:00.000001' DAY TO SECOND")
        return F.when(micros.isNotNull(), F.lit("1970-01-01 00:00:00").cast(kind) + step * micros)

    of_number = let(_micros(text, meaning), instant)
    day, time, fraction, zone = (F.regexp_extract(text, _ISO, place) for place in range(1, 5))
    fraction = F.rpad(fraction, 9, "0")
    plain = F.concat(day, F.lit("T"), time, F.when(F.length(time) < 8, ":00").otherwise(""))  # noqa: PLR2004 - hh:mm
    plain = F.concat(plain, F.lit("."), F.substring(fraction, 1, 6))
    is_exact = text.rlike(_ISO) & (F.substring(fraction, 7, 3) == "000")
    if isinstance(kind, TimestampNTZType):
        has_zone = (zone != "") & ~((meaning.name == _ISO_TIMESTAMP) & (zone == "Z"))
        of_text = F.when(is_exact & ~F.coalesce(has_zone, zone != ""), plain.try_cast(kind))
    else:
        known = F.when(zone != "", zone)
        if meaning.encoding.zone is not None:
            known = F.coalesce(known, F.lit(f" {meaning.encoding.zone}"))
        of_text = F.when(is_exact, F.concat(plain, known).try_cast(kind))
    return F.coalesce(of_number, of_text)


def _micros(text: Column, meaning: Meaning) -> Column:
    """Microseconds since 1970, of a whole number in the unit that is known of it."""
    number = F.when(text.rlike(_INTEGER), text.try_cast("bigint"))
    unit = F.lit(None).cast("string") if meaning.usual_unit is None else meaning.usual_unit
    if meaning.declared is not None:
        of_name = F.lit(None).cast("string")
        for name, its_unit in _UNIT_OF_NAME.items():
            of_name = F.when(meaning.name == name, its_unit).otherwise(of_name)
        unit = F.when(meaning.is_declared, of_name).otherwise(unit)
    micros = (
        F.when(unit == MILLIS, F.try_multiply(number, F.lit(1000).cast("bigint")))
        .when(unit == MICROS, number)
        .when((unit == NANOS) & (number % 1000 == 0), _thousandth(number))
    )
    return let(micros, lambda known: F.when(known.between(_LEAST_MICROS, _MOST_MICROS), known))


def _thousandth(number: Column) -> Column:
    return (number.cast("decimal(19,0)") / F.lit(1000).cast("decimal(4,0)")).cast("bigint")


def _as_array(value: Column, kind: DataType, meaning: Meaning) -> Column:
    kind = cast("ArrayType", kind)
    items, inner = part_of(value, "$", "array<variant>"), meaning.of_items()

    def is_bad(item: Column) -> Column:
        is_lost = is_given(item) & typed_value(item, kind.elementType, inner).isNull()
        return is_lost if kind.containsNull else is_lost | ~is_given(item)

    return F.when(~F.exists(items, is_bad), F.transform(items, lambda item: typed_value(item, kind.elementType, inner)))


def _as_map(value: Column, kind: DataType, meaning: Meaning) -> Column:
    kind = cast("MapType", kind)
    inner = meaning.of_parts()
    # Debezium writes an hstore as the text of an object, unless it is told otherwise.
    entries = part_of(
        F.when(is_text(value), F.try_parse_json(as_text(value))).otherwise(value), "$", "map<string,variant>"
    )
    is_bad = F.exists(
        F.map_values(entries), lambda item: is_given(item) & typed_value(item, kind.valueType, inner).isNull()
    )
    return F.when(~is_bad, F.transform_values(entries, lambda _, item: typed_value(item, kind.valueType, inner)))


def _as_struct(value: Column, kind: DataType, meaning: Meaning) -> Column:
    kind = cast("StructType", kind)
    inner = meaning.of_parts()
    is_bad = F.lit(False)  # noqa: FBT003 - a value
    columns = []
    for part_field in kind:
        own = part_of(value, json_path(part_field.name))
        found = typed_value(own, part_field.dataType, inner)
        is_bad = is_bad | (is_given(own) & found.isNull())
        columns.append(found.alias(part_field.name))
    return F.when(is_object(value) & ~is_bad, F.struct(*columns))


def _as_variant(value: Column, kind: DataType, meaning: Meaning) -> Column:  # noqa: ARG001 - as all readers
    return F.when(is_text(value), F.try_parse_json(as_text(value))).otherwise(value)


_READERS = {
    StringType: _as_text,
    BooleanType: _as_boolean,
    DoubleType: _as_double,
    FloatType: _as_float,
    DecimalType: _as_decimal,
    BinaryType: _as_binary,
    DateType: _as_date,
    TimestampType: _as_timestamp,
    TimestampNTZType: _as_timestamp,
    ArrayType: _as_array,
    MapType: _as_map,
    StructType: _as_struct,
    VariantType: _as_variant,
}
