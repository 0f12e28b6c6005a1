"""Values as JSON has them in Debezium's envelopes, and Kafka Connect's schemas that say what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from tidelog.log.errors import ConfigurationError
from tidelog.streaming.capture.values import AS_TEXT, PRECISE

_WHOLE = DecimalType(38, 0)
_DAY_MICROS = 86_400_000_000
# Kafka Connect's names of the types that are as they are.
_PLAIN: dict[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "int16",
    ShortType: "int16",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    CharType: "string",
    VarcharType: "string",
}
_ZONED, _MICROS = "io.debezium.time.ZonedTimestamp", "io.debezium.time.MicroTimestamp"
_DECIMAL, _DATE, _JSON = "org.apache.kafka.connect.data.Decimal", "io.debezium.time.Date", "io.debezium.data.Json"


class Writing:
    """How values are written, and the schemas that say so."""

    def __init__(self, decimals: str) -> None:
        self._decimals = decimals

    def value(self, value: Column, field: StructField) -> Column:
        """A column's values as JSON has them. Raises ConfigurationError for a type that has no counterpart."""
        return self._written(value, field.dataType, field.name)

    def _written(self, value: Column, kind: DataType, name: str) -> Column:
        if type(kind) in _PLAIN:
            return value
        match kind:
            case BinaryType():
                return F.base64(value)
            case DateType():
                return F.unix_date(value)
            case TimestampType():
                return instant_text(value)
            case TimestampNTZType():
                return _micros(value)
            case VariantType():
                return F.to_json(value)
            case DecimalType():
                return self._decimal(value, kind)
            case ArrayType():
                return F.transform(value, lambda item: self._written(item, kind.elementType, name))
            case MapType() if isinstance(kind.keyType, StringType):
                return F.transform_values(value, lambda _, item: self._written(item, kind.valueType, name))
            case StructType():
                parts = (self._written(value[part.name], part.dataType, name).alias(part.name) for part in kind)
                return F.when(value.isNotNull(), F.struct(*parts))
            case _:
                pass
        raise ConfigurationError(
            f"the column {name!r} is {kind.simpleString()}, which has no counterpart in JSON",
            advice="leave the column out, or cast it",
        )

    def _decimal(self, value: Column, kind: DecimalType) -> Column:
        if self._decimals == PRECISE:
            return _base64_of_unscaled(value, kind.scale)
        return digits(value, kind.scale) if self._decimals == AS_TEXT else value.cast("double")

    def struct(self, fields: Sequence[StructField], name: str, *, optional: bool) -> dict[str, Any]:
        """Kafka Connect's schema of a row."""
        parts = [{**self.schema(field.dataType, optional=field.nullable), "field": field.name} for field in fields]
        return {"type": "struct", "fields": parts, "optional": optional, "name": name}

    def schema(self, kind: DataType, *, optional: bool) -> dict[str, Any]:
        """Kafka Connect's schema of a value."""

        def of(name: str, meaning: str | None = None, **more: Any) -> dict[str, Any]:
            named = {} if meaning is None else {"name": meaning, "version": 1}
            return {"type": name, "optional": optional, **named, **more}

        if type(kind) in _PLAIN:
            return of(_PLAIN[type(kind)])
        match kind:
            case DateType():
                return of("int32", _DATE)
            case TimestampType():
                return of("string", _ZONED)
            case TimestampNTZType():
                return of("int64", _MICROS)
            case VariantType():
                return of("string", _JSON)
            case DecimalType() if self._decimals == PRECISE:
                parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
                return of("bytes", _DECIMAL, parameters=parameters)
            case DecimalType():
                return of(self._decimals)
            case ArrayType():
                return of("array", items=self.schema(kind.elementType, optional=kind.containsNull))
            case MapType():
                values = self.schema(kind.valueType, optional=kind.valueContainsNull)
                return of("map", keys={"type": "string", "optional": False}, values=values)
            case StructType():
                parts = [{**self.schema(part.dataType, optional=part.nullable), "field": part.name} for part in kind]
                return of("struct", fields=parts)
            case _:
                return of("bytes")


def instant_text(value: Column) -> Column:
    """A timestamp as ISO text in UTC, whatever the session's time zone is."""
    epoch, step = (
        F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"),
        F.expr("INTERVAL '0 00:00:00.000001' DAY TO SECOND"),
    )
    text = (epoch + step * F.unix_micros(value)).cast("string")
    return F.concat(F.translate(text, " ", "T"), F.lit("Z"))


def _micros(value: Column) -> Column:
    """A timestamp without a zone as microseconds since 1970, whatever the session's time zone is."""
    seconds = F.hour(value) * 3600 + F.minute(value) * 60
    rest = (F.date_part(F.lit("SECOND"), value) * 1_000_000).cast("long")
    days = F.unix_date(value.cast("date")).cast("long") * F.lit(_DAY_MICROS).cast("long")
    return days + seconds.cast("long") * F.lit(1_000_000).cast("long") + rest


def digits(value: Column, scale: int) -> Column:
    """A decimal with all digits behind its point, and never with an exponent."""
    return F.translate(F.format_number(value, scale), ",", "")


def _base64_of_unscaled(value: Column, scale: int) -> Column:
    """The number without its point, as 16 bytes in two's complement, the greatest first."""
    amount = F.translate(digits(value, scale), "-.", "").cast(_WHOLE)
    # The bits of a negative number are those of its amount less one, turned over.
    is_negative = value < 0
    known = F.struct(
        (amount - F.when(is_negative, 1).otherwise(0).cast(_WHOLE)).alias("rest"), is_negative.alias("sign")
    )
    content = F.transform(F.array(known), lambda found: _bytes(found["rest"], found["sign"]))
    return F.when(value.isNotNull(), F.base64(F.element_at(content, 1)))


def _bytes(amount: Column, is_negative: Column) -> Column:
    most = F.lit(2**32 - 1).cast("long")
    groups = []
    for place in (3, 2, 1, 0):
        below = F.lit(Decimal(2 ** (32 * place))).cast(_WHOLE)
        above = amount if place == 0 else ((amount - amount % below) / below).cast(_WHOLE)
        group = (above % F.lit(2**32).cast(_WHOLE)).cast("long")
        groups.append(F.lpad(F.hex(F.when(is_negative, most - group).otherwise(group)), 8, "0"))
    return F.unhex(F.concat(*groups))
