"""What the tests of row changes share: a table in each of the ways in which rows die and changes are told."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.log.support import memory_store, new_table
from tidelog.log import Table

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int32()), ("price", pa.decimal128(10, 2))])
VECTORS_OFF: dict[str, object] = {"delta.enableDeletionVectors": False}
FEED_ON: dict[str, object] = {"delta.enableChangeDataFeed": True}
KINDS: dict[str, dict[str, object]] = {
    "vectors": {},
    "copies": VECTORS_OFF,
    "vectors, feed": FEED_ON,
    "copies, feed": {**VECTORS_OFF, **FEED_ON},
}


def rows(keys: range, part: str | None = "a") -> list[dict[str, Any]]:
    return [{"k": key, "part": part, "v": key * 10, "price": Decimal(key)} for key in keys]


def keys(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow()["k"].to_pylist())


def bag(data: Any) -> Counter[str]:
    names = [name for name in data.column_names if not name.startswith("_")]
    return Counter(repr(row) for row in data.select(names).to_pylist())


def filled(kind: str) -> Table:
    """Thirteen rows in three partitions, one of which is that of null."""
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=KINDS[kind])
    table.insert([*rows(range(6)), *rows(range(6, 10), "b")])
    table.insert(rows(range(10, 13), None))
    return table
