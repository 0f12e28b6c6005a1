"""Good records and poisoned ones told apart, by Spark's own functions. Made to be copied into your program.

Each record of a topic gets an event or an error, never both and never neither:

    judged = judge(records, schema, required)    the source's columns, `event` and `error`
    good(judged), dead(judged)                   the rows of the table, and those of its dead-letter table

What Spark's `from_json` would let pass is an error as well: a second value behind the first, a field given twice, a
number where text belongs, an infinite double, a year that few programs can read. Fields that the schema does not name
are left out.
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


def judge(records: DataFrame, schema: StructType, required: Collection[str]) -> DataFrame:
    """`records` of Spark's Kafka source, each with its `event`, a struct of `schema`, or with the `error` that tells
    why it has none. A field in `required` must be there and not null.

    For flat schemas of texts, whole numbers, doubles, booleans, dates and timestamps; raises TypeError for others.
    """
    text = F.col("value").cast("string")
    # A list that ends with the record's own offset has two items only where the payload is one JSON value and no more.
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
    judged = parsed.withColumn("error", error).withColumn(
        "event", F.when(F.col("error").isNull(), F.struct(*(event[field.name] for field in schema)))
    )
    return judged.drop("_items", "_event")


def good(judged: DataFrame) -> DataFrame:
    """The events, as rows of the table."""
    return judged.where("error is null").select("event.*")


def dead(judged: DataFrame) -> DataFrame:
    """The records without one, as rows of the dead-letter table."""
    return judged.where("error is not null").withColumnRenamed("value", "payload").select(*DEAD_LETTERS.names)


def _field_error(field: StructField, raw: Column, event: Column, required: Collection[str]) -> Column:
    """What is wrong with one field; null where nothing is."""
    found = F.try_variant_get(raw, f'$["{field.name}"]', "variant")
    is_missing = found.isNull() | F.is_variant_null(found)
    missing = F.lit(f"{field.name} is missing" if field.name in required else None)
    shown = F.substring(F.try_variant_get(found, "$", "string"), 1, _LONGEST_SHOWN)
    kind = field.dataType.typeName()
    wrong = F.concat(F.lit(f"{field.name} is not {kind}: "), F.coalesce(shown, F.lit("?")))
    value = event[field.name]
    return F.when(is_missing, missing).when(value.isNull() | ~_fits(field, found, value), wrong)


def _fits(field: StructField, found: Column, value: Column) -> Column:
    """Whether a value that Spark could read is what was meant; `found` is the JSON, `value` what was read."""
    match field.dataType:
        case IntegerType() | LongType() | BooleanType():
            return F.lit(True)  # noqa: FBT003 - nothing else is read as one
        case DoubleType():
            return F.abs(value) < float("inf")
        case StringType():
            return F.schema_of_variant(found) == "STRING"
        case DateType() | TimestampType():
            return (F.schema_of_variant(found) == "STRING") & F.year(value).between(1, _LAST_YEAR)
        case _:
            raise TypeError(f"judge cannot tell when {field.name} fits its type, {field.dataType.simpleString()}")
