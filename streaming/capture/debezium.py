"""Debezium's envelopes as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import BinaryType, StringType, StructType

from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming.capture.changes import CHANGE, PLACEHOLDER, ChangeRows
from tidelog.streaming.capture.order import BY_POSITION, ORDERS, debezium_order, require_epoch
from tidelog.streaming.capture.schemas import Schema, keys_of, struct_of
from tidelog.streaming.capture.values import (
    ADAPTIVE,
    BASE64,
    MICROS,
    MILLIS,
    NANOS,
    PRECISE,
    Encoding,
    as_text,
    is_given,
    is_object,
    json_path,
    part_of,
    require_option,
)
from tidelog.streaming.sink.captured import DELETES, TRUNCATES, UPSERTS

_COLUMN = "type:string,name:string,parameters:map<string,string>"
_DECLARED = f"struct<field:string,{_COLUMN},items:struct<{_COLUMN}>>"
_FIELDS = f"array<struct<field:string,fields:array<{_DECLARED}>>>"
# What Debezium makes of a timestamp whose precision is not given.
_UNITS = {"mysql": MILLIS, "mariadb": MILLIS, "sqlserver": NANOS}
_EXACT_TEXT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def debezium(  # noqa: PLR0913 - the public signature
    frame: DataFrame,
    *,
    schema: Schema | None = None,
    keys: Sequence[str] = (),
    value: str = "value",
    order: str = BY_POSITION,
    epoch: int = 0,
    decimals: str = PRECISE,
    binaries: str = BASE64,
    timestamps: str | Mapping[str, str] = ADAPTIVE,
    zone: str | None = None,
    unavailable: str = PLACEHOLDER,
) -> DataFrame:
    """Debezium's change records as rows for the sink of `capture.sink`."""
    if schema is None:
        raise ConfigurationError("schema is missing", advice="pass a Table, or 'id BIGINT, name STRING'")
    require_epoch(epoch)
    columns = struct_of(schema)
    names = keys_of(keys, schema, columns)
    require_option("order", order, ORDERS)
    units = {} if isinstance(timestamps, str) else dict(timestamps)
    encoding = Encoding(decimals, binaries, timestamps if isinstance(timestamps, str) else ADAPTIVE, units, zone)
    changes = _changes(_records(frame, value), names, order, epoch)
    return ChangeRows(columns, names, encoding, unavailable, has_meaning=True).of(changes)


def _records(frame: DataFrame, value: str) -> DataFrame:
    """The records with a value: its bytes as `raw`, its text, and the offset if there is one."""
    known = {name.lower(): name for name in frame.columns}
    if value.lower() not in known:
        raise SchemaMismatchError(
            f"the frame lacks the column {value!r} with the records",
            advice=f"pass value=, one of {', '.join(frame.columns)}",
            column=value,
        )
    name = known[value.lower()]
    kind, column = frame.schema[name].dataType, frame[f"`{name}`"]
    if isinstance(kind, StructType):
        text = F.to_json(column, _EXACT_TEXT)
        raw = text.cast("binary")
    elif isinstance(kind, BinaryType | StringType):
        raw = column.cast("binary")
        text = F.when(F.is_valid_utf8(column.cast("string")), column.cast("string"))
    else:
        raise SchemaMismatchError(
            f"the column {name!r} is {kind.simpleString()}, not bytes, text or a struct of envelopes",
            advice="pass the column with the records' values as value=",
            column=name,
        )
    offset = frame["offset"].cast("bigint") if "offset" in known else F.lit(None).cast("bigint")
    return frame.where(column.isNotNull()).select(raw.alias("raw"), text.alias("text"), offset.alias("offset"))


def _changes(records: DataFrame, keys: Sequence[str], order: str, epoch: int) -> DataFrame:
    parsed = records.select("raw", "offset", F.try_parse_json("text").alias("record"))
    record = F.col("record")
    declared = F.filter(part_of(record, "$.schema.fields", _FIELDS), lambda field: field["field"] == "after")
    has_wrapper = part_of(record, "$.payload").isNotNull() & part_of(record, "$.schema").isNotNull()
    parts = parsed.select(
        "raw",
        "offset",
        record.isNull().alias("is_bad"),
        F.when(has_wrapper, part_of(record, "$.payload")).otherwise(record).alias("payload"),
        F.when(has_wrapper, F.try_element_at(declared, F.lit(1))["fields"]).alias("declared"),
    )
    payload = F.col("payload")
    parts = parts.select(
        "raw",
        "offset",
        "is_bad",
        "declared",
        part_of(payload, "$.op", "string").alias("envelope_op"),
        part_of(payload, "$.before").alias("before"),
        part_of(payload, "$.after").alias("after"),
        part_of(payload, "$.source").alias("source"),
        part_of(payload, "$.transaction.id", "string").alias("transaction"),
        _is_no_change(payload).alias("is_no_change"),
    ).where(F.col("is_bad") | ~F.col("is_no_change"))
    source, operation = F.col("source"), F.col("envelope_op")
    position = debezium_order(source, operation, order, epoch, F.col("offset"))
    unit = F.lit(MICROS)
    connector = part_of(source, "$.connector", "string")
    for name, its_unit in _UNITS.items():
        unit = F.when(connector == name, its_unit).otherwise(unit)
    parts = parts.select(
        "raw",
        "is_bad",
        "declared",
        "envelope_op",
        "before",
        "after",
        position.alias("order"),
        unit.alias("unit"),
        F.coalesce(
            F.col("transaction"), part_of(source, "$.txId", "string"), part_of(source, "$.gtid", "string")
        ).alias("transaction"),
    )
    return _of_each(parts, keys)


def _is_no_change(payload: Column) -> Column:
    """Whether a record tells of something else than a row: a heartbeat, a transaction, a schema, a message."""
    operation = part_of(payload, "$.op", "string")
    is_marker = part_of(payload, "$.status", "string").isin("BEGIN", "END") & part_of(payload, "$.id").isNotNull()
    is_schema = part_of(payload, "$.ddl").isNotNull() | part_of(payload, "$.tableChanges").isNotNull()
    has_rows = part_of(payload, "$.before").isNotNull() | part_of(payload, "$.after").isNotNull()
    is_heartbeat = part_of(payload, "$.ts_ms").isNotNull() & part_of(payload, "$.source").isNull()
    nothing = F.is_variant_null(payload)
    other = operation.isNull() & ~has_rows & (is_marker | is_schema | is_heartbeat | nothing)
    return F.coalesce(other, F.lit(False)) | (operation == "m").eqNullSafe(True)  # noqa: FBT003 - values


def _of_each(parts: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The changes of each record: one, or two if it changes a key."""
    operation, before, after = F.col("envelope_op"), F.col("before"), F.col("after")
    is_row = operation.isin("c", "u", "r")
    reason = (
        F.when(F.col("is_bad"), "the record is not JSON")
        .when(operation.isNull(), "the record is no envelope of Debezium: it has no op")
        .when(~operation.isin("c", "u", "r", "d", "t"), F.concat(F.lit("unknown op: "), operation))
        .when(is_row & ~is_object(after), "the record has no row in `after`")
        .when(
            (operation == "d") & ~is_object(before), "the record has no row in `before`: the table's replica identity"
        )
        .when(F.col("order").isNull(), "the record's `source` has no position")
    )
    has_other_key = F.lit(False)  # noqa: FBT003 - a value
    for name in keys:
        old, new = part_of(before, json_path(name)), part_of(after, json_path(name))
        differs = is_given(old) & is_given(new) & (as_text(old) != as_text(new))
        has_other_key = has_other_key | F.coalesce(differs, F.lit(False))  # noqa: FBT003 - a value
    row = F.struct(F.lit(UPSERTS).alias("op"), after.alias("data"))
    gone = F.struct(F.lit(DELETES).alias("op"), before.alias("data"))
    nothing = F.lit(None).cast("variant")
    truncate = F.struct(F.lit(TRUNCATES).alias("op"), nothing.alias("data"))
    unread = F.struct(F.lit(None).cast("string").alias("op"), nothing.alias("data"))
    each = (
        F.when(F.col("reason").isNotNull(), F.array(unread))
        .when(operation == "t", F.array(truncate))
        .when(operation == "d", F.array(gone))
        .when((operation == "u") & has_other_key, F.array(gone, row))
        .otherwise(F.array(row))
    )
    exploded = parts.withColumn("reason", reason).withColumn("change", F.explode(each))
    return exploded.withColumns({"op": F.col("change.op"), "data": F.col("change.data")}).select(*CHANGE)
