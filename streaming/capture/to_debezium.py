"""A table's changes as Debezium's envelopes: what `debezium` reads, the other way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StructField

from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.presentable import did_you_mean
from tidelog.streaming.capture.json_values import Writing
from tidelog.streaming.capture.values import DECIMALS, PRECISE
from tidelog.streaming.executors.plain_frame import quoted

_TYPE, _VERSION, _TIMESTAMP = _OWN = ("_change_type", "_commit_version", "_commit_timestamp")
_GONE = ("delete", "update_preimage")


def to_debezium(
    changes: DataFrame,
    *,
    table: str,
    keys: Sequence[str],
    before: bool = True,
    decimals: str = PRECISE,
    schemas: bool = False,
) -> DataFrame:
    """A table's changes as records for Kafka, with Debezium's JSON envelopes as their values.

    `capture.debezium` makes the same rows of them. An inserted row is a `c`, a deleted one a `d`, and an updated one a
    `u`, also if the table has it as a deletion and an insertion in one commit. If an update changes the key, the old
    row is a `d`. `source` has the table, the time of the commit as `ts_ms`, `ts_us` and `ts_ns`, and its version as
    `version` and `txId`. The times order the records of a table; the nanoseconds put what a commit deletes before what
    it adds. The same changes make the same records each time.

    Values are written as Debezium does: decimals by `decimals`, bytes in base64, dates as days, timestamps without a
    zone as microseconds, those with one as ISO text in UTC, variants as the text of their JSON, and NaN and the
    infinities as texts.

    Args:
        changes: A frame of `changes`, of a Feed or of a stream, in any mode: columns of the table, and `_change_type`,
            `_commit_version` and `_commit_timestamp`. Without `_change_type` each row is an insertion.
        table: The table's name, as `source.table`.
        keys: The columns of the records' keys. Those of a commit that have one key are put together.
        before: False leaves out the old rows: an update has no `before`, and no row is looked up. A streaming frame
            needs this, because Spark cannot put rows together there. It is right if no update changes a key; else call
            this function in a batch function, such as that of a Feed.
        decimals: `precise`, the bytes of the number in base64; `string`; or `double`, which can lose digits.
        schemas: Whether each record has a `schema` and a `payload`, as with Kafka Connect's
            `value.converter.schemas.enable`. Then also readers that do not know the table read all types exactly.

    Returns:
        A frame with the columns `key` and `value`, texts.

    Raises:
        ConfigurationError: An argument is wrong, or a column's type has no counterpart in JSON.
        SchemaMismatchError: The frame lacks a column.

    Example:
        capture.to_debezium(changes(spark, path, after=7), table="orders", keys=["id"]).write.format("kafka")
    """
    _require_arguments(changes, keys, decimals, before=before)
    columns = [field for field in changes.schema if field.name not in _OWN]
    spelled = {field.name.lower(): field for field in columns}
    writing = Writing(decimals)
    row = F.struct(*(writing.value(F.col(quoted(field.name)), field).alias(field.name) for field in columns))
    key = F.struct(*(_written(writing, spelled[name.lower()]) for name in keys))
    kind = F.col(_TYPE) if _TYPE in changes.columns else F.lit("insert")
    held = changes.select(
        key.alias("key"),
        row.alias("row"),
        kind.isin(*_GONE).alias("is_gone"),
        kind.alias("kind"),
        F.col(_VERSION).alias("version"),
        F.col(_TIMESTAMP).alias("at"),
    )
    held = _paired(held) if before else _single(held)
    names = [spelled[name.lower()] for name in keys]
    key, value = _texts(table)
    if schemas:
        key = _wrapped(writing.struct(names, f"{table}.Key", optional=False), key)
        value = _wrapped(_envelope_schema(writing.struct(columns, f"{table}.Value", optional=True), table), value)
    return held.select(key.alias("key"), value.alias("value"))


def _require_arguments(changes: DataFrame, keys: Sequence[str], decimals: str, *, before: bool) -> None:
    if decimals not in DECIMALS:
        raise ConfigurationError(
            f"decimals={decimals!r} is not supported",
            advice=f"{did_you_mean(decimals, DECIMALS)}use one of {', '.join(DECIMALS)}",
        )
    if isinstance(keys, str) or not keys:
        raise ConfigurationError(f"keys must be a list of columns, not {keys!r}", advice="pass keys=['id']")
    if before and changes.isStreaming:
        raise ConfigurationError(
            "the frame is a stream, in which Spark cannot put the old and the new row of an update together",
            advice="call to_debezium in a batch function, or pass before=False if no update changes a key",
        )
    _require_columns(changes, [*_OWN[1:], *keys])


def _written(writing: Writing, field: StructField) -> Column:
    """A column of a row as Debezium writes it, under its name."""
    return writing.value(F.col(quoted(field.name)), field).alias(field.name)


def _require_columns(changes: DataFrame, names: Sequence[str]) -> None:
    known = {name.lower() for name in changes.columns}
    for name in names:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the frame lacks the column {name!r}",
                advice="pass what tidelog.streaming.changes or a Feed returns, and keys that the table has",
                column=name,
            )


def _paired(held: DataFrame) -> DataFrame:
    """The changes with the operation, and old and new rows of a key in one commit put together."""
    one = Window.partitionBy("version", F.to_json("key", _EXACT)).orderBy(F.col("is_gone").desc())
    is_new = ~F.col("is_gone")
    found = held.withColumns(
        {
            "before": F.when(is_new & F.lag("is_gone").over(one), F.lag("row").over(one)),
            "is_replaced": F.col("is_gone") & F.coalesce(~F.lead("is_gone").over(one), F.lit(False)),  # noqa: FBT003
        }
    ).where(~F.col("is_replaced"))
    operation = (
        F.when(F.col("is_gone"), "d")
        .when(F.col("before").isNotNull() | (F.col("kind") == "update_postimage"), "u")
        .otherwise("c")
    )
    return found.withColumns(
        {
            "op": operation,
            "after": F.when(is_new, F.col("row")),
            "before": F.when(F.col("is_gone"), F.col("row")).otherwise(F.col("before")),
        }
    )


def _single(held: DataFrame) -> DataFrame:
    """The changes with the operation, each for itself."""
    operation = F.when(F.col("is_gone"), "d").when(F.col("kind") == "update_postimage", "u").otherwise("c")
    return held.where(F.col("kind") != "update_preimage").withColumns(
        {
            "op": operation,
            "before": F.when(F.col("is_gone"), F.col("row")),
            "after": F.when(~F.col("is_gone"), F.col("row")),
        }
    )


_EXACT = {"ignoreNullFields": "false"}


def _texts(table: str) -> tuple[Column, Column]:
    """The key and the envelope of each change."""
    # A commit's time has milliseconds.
    millis = F.unix_millis("at")
    nanos = millis * F.lit(1_000_000).cast("long") + F.when(F.col("op") == "d", 0).otherwise(1)
    source = F.struct(
        F.col("version").cast("string").alias("version"),
        F.lit("tidelog").alias("connector"),
        F.lit(table).alias("name"),
        millis.alias("ts_ms"),
        F.lit("false").alias("snapshot"),
        F.lit("").alias("db"),
        F.lit(table).alias("table"),
        F.col("version").cast("string").alias("txId"),
        (millis * 1000).alias("ts_us"),
        nanos.alias("ts_ns"),
    )
    envelope = F.struct("before", "after", source.alias("source"), "op", millis.alias("ts_ms"))
    return F.to_json("key", _EXACT), F.to_json(envelope, _EXACT)


def _wrapped(schema: Mapping[str, Any], payload: Column) -> Column:
    return F.concat(
        F.lit('{"schema":' + json.dumps(schema, separators=(",", ":")) + ',"payload":'), payload, F.lit("}")
    )


def _envelope_schema(row: Mapping[str, Any], table: str) -> dict[str, Any]:
    def field(name: str, kind: str, *, optional: bool = False) -> dict[str, Any]:
        return {"type": kind, "optional": optional, "field": name}

    texts = [field(name, "string") for name in ("version", "connector", "name")]
    more = [field(name, "string") for name in ("snapshot", "db", "table", "txId")]
    times = [field(name, "int64") for name in ("ts_us", "ts_ns")]
    source = {
        "type": "struct",
        "fields": [*texts, field("ts_ms", "int64"), *more, *times],
        "optional": False,
        "name": "tidelog.Source",
        "field": "source",
    }
    before, after = {**row, "field": "before"}, {**row, "field": "after"}
    fields = [before, after, source, field("op", "string"), field("ts_ms", "int64", optional=True)]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{table}.Envelope", "version": 2}
