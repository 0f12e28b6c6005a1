"""Separate valid events from invalid records, with Spark's own functions. Copy it into your program.

Each record of a topic gets either an event or an error:

    checked = validated(records, schema, required)          the source's columns, `event` and `error`
    event_rows(checked), dead_letter_rows(checked)          the rows of the table, and of its dead-letter table

Some values that Spark's `from_json` accepts are errors here: a second value after the first, a repeated field, a number
for a string, an infinite double, a year that few programs can read. Fields that the schema does not name are dropped.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

DEAD_LETTERS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("payload", pa.binary()),
        ("error", pa.string()),
    ]
)
_STRICT = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false", "columnNameOfCorruptRecord": "_corrupt"}
_LONGEST_SHOWN = 50
_LAST_YEAR = 9999
_PAYLOAD_AND_OFFSET = 2


def validated(records: DataFrame, schema: StructType, required: Collection[str]) -> DataFrame:
    """Add to `records` of Spark's Kafka source the column `event`, a struct of `schema`, or the reason why it is null
    as `error`. A field in `required` must exist and must not be null.

    For flat schemas of strings, integers, doubles, booleans, dates and timestamps; raises TypeError for any other type.
    """
    text = F.col("value").cast("string")
    # In a list with the record's own offset at the end, there are two items only if the payload is exactly one value.
    closed = F.concat(F.lit("["), text, F.lit(',"'), F.col("offset").cast("string"), F.lit('"]'))
    with_corrupt = StructType([*schema, StructField("_corrupt", StringType())])
    parsed = records.withColumns(
        {
            "_items": F.from_json(closed, "array<variant>", _STRICT),
            "_event": F.from_json(text, with_corrupt, _STRICT),
        }
    )
    items, event = F.col("_items"), F.col("_event")
    raw = F.get(items, F.lit(0))
    is_one = (F.size(items) == _PAYLOAD_AND_OFFSET) & (
        F.get(items, F.lit(1)).cast("string") == F.col("offset").cast("string")
    )
    of_fields = F.concat_ws("; ", *(_field_error(field, raw, event, required) for field in schema))
    of_payload = (
        F.when(F.col("value").isNull(), "the payload is null")
        .when(~F.is_valid_utf8(text), "the payload is not UTF-8")
        .when(items.isNull() | ~is_one, "the payload is not one JSON value")
        .when(~F.schema_of_variant(raw).startswith("OBJECT"), "the payload is not a JSON object")
    )
    unlike_schema = F.when(event["_corrupt"].isNotNull(), "the payload does not fit the schema")
    error = F.coalesce(of_payload, F.nullif(of_fields, F.lit("")), unlike_schema)
    checked = parsed.withColumn("error", error).withColumn(
        "event", F.when(F.col("error").isNull(), F.struct(*(event[field.name] for field in schema)))
    )
    return checked.drop("_items", "_event")


def event_rows(checked: DataFrame) -> DataFrame:
    """The events, as rows of the table."""
    return checked.where("error is null").select("event.*")


def dead_letter_rows(checked: DataFrame) -> DataFrame:
    """The records without an event, as rows of the dead-letter table."""
    return checked.where("error is not null").withColumnRenamed("value", "payload").select(*DEAD_LETTERS.names)


def _field_error(field: StructField, raw: Column, event: Column, required: Collection[str]) -> Column:
    """The error of one field; null if it is valid."""
    found = F.try_variant_get(raw, f'$["{field.name}"]', "variant")
    is_missing = found.isNull() | F.is_variant_null(found)
    missing = F.lit(f"{field.name} is missing" if field.name in required else None)
    shown = F.substring(F.try_variant_get(found, "$", "string"), 1, _LONGEST_SHOWN)
    kind = field.dataType.typeName()
    wrong = F.concat(F.lit(f"{field.name} is not {kind}: "), F.coalesce(shown, F.lit("?")))
    value = event[field.name]
    return F.when(is_missing, missing).when(value.isNull() | ~_fits(field, found, value), wrong)


def _fits(field: StructField, found: Column, value: Column) -> Column:
    """Whether a value that Spark parsed is valid; `found` is the JSON, `value` the parsed value."""
    match field.dataType:
        case IntegerType() | LongType() | BooleanType():
            return F.lit(True)  # noqa: FBT003 - whatever parses is valid
        case DoubleType():
            return F.abs(value) < float("inf")
        case StringType():
            return F.schema_of_variant(found) == "STRING"
        case DateType() | TimestampType():
            return (F.schema_of_variant(found) == "STRING") & F.year(value).between(1, _LAST_YEAR)
        case _:
            raise TypeError(f"cannot validate {field.name}: its type {field.dataType.simpleString()} is not supported")
