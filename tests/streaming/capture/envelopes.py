"""Change records as Debezium writes them for PostgreSQL, and a topic of them that a stream reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import BatchFunction, Input, drain

PLACEHOLDER = "__debezium_unavailable_value"
KAFKA = "value binary, offset long"
_KAFKA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])


def envelope(
    op: str,
    after: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    *,
    lsn: int | None = 1,
    commit: int | None = None,
    snapshot: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An envelope without its schema; `commit` is the position of the commit before the change."""
    source = {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1700000000000,
        "snapshot": snapshot or ("true" if op == "r" else "false"),
        "db": "shop",
        "sequence": json.dumps([None if commit is None else str(commit), str(lsn)]),
        "schema": "public",
        "table": "orders",
        "txId": 700,
        "lsn": lsn,
        "xmin": None,
    }
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1, **more}


def wrapped(record: dict[str, Any], *fields: dict[str, Any]) -> dict[str, Any]:
    """The envelope with a schema, of which `fields` describe the columns."""
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "shop.public.orders.Value"}
    parts = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "string", "optional": False, "field": "op"},
    ]
    return {"schema": {"type": "struct", "fields": parts, "name": "shop.public.orders.Envelope"}, "payload": record}


def field(name: str, kind: str, meaning: str | None = None, **more: Any) -> dict[str, Any]:
    """A column in an envelope's schema."""
    named = {} if meaning is None else {"name": meaning, "version": 1}
    return {"type": kind, "optional": True, **named, **more, "field": name}


def base64_of(number: int) -> str:
    """A whole number as Kafka Connect writes those of a decimal."""
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def records(spark: SparkSession, *values: Any) -> DataFrame:
    """A frame of records with these values, which are JSON unless they are bytes or None."""
    return spark.createDataFrame([(_bytes(value), place) for place, value in enumerate(values)], KAFKA)


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


class Topic:
    """Records that a stream reads, some at a time."""

    def __init__(self, folder: Path) -> None:
        self._input = Input(folder)
        self._count = 0

    def put(self, *values: Any, offsets: Sequence[int] | None = None) -> Topic:
        """Add records, which are one batch."""
        known = list(range(self._count, self._count + len(values))) if offsets is None else list(offsets)
        self._count += len(values)
        rows = [{"value": _bytes(value), "offset": offset} for value, offset in zip(values, known, strict=True)]
        self._input.put_table(pa.Table.from_pylist(rows, _KAFKA))
        return self

    def stream(self, spark: SparkSession, *, max_files: int | None = 1) -> DataFrame:
        return self._input.stream(spark, schema=KAFKA, max_files=max_files)


def run(rows: DataFrame, sink: BatchFunction, tmp_path: Path) -> None:
    """Apply all that has arrived."""
    drain(rows, sink, tmp_path / "cp")
