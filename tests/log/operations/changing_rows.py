"""Helpers for tests of operations: tables with and without deletion vectors and change feed, and racing writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import memory_store, metadata, new_table, put_commit, reopen
from tidelog.log import Table, Transaction
from tidelog.log.format.actions import Protocol
from tidelog.log.state.loader import load

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int32()), ("price", pa.decimal128(10, 2))])
VECTORS_OFF: dict[str, object] = {"delta.enableDeletionVectors": False}
FEED_ON: dict[str, object] = {"delta.enableChangeDataFeed": True}
KINDS: dict[str, dict[str, object]] = {
    "vectors": {},
    "copies": VECTORS_OFF,
    "vectors, feed": FEED_ON,
    "copies, feed": {**VECTORS_OFF, **FEED_ON},
}


def rows(keys: Iterable[int], part: str | None = "a") -> list[dict[str, Any]]:
    return [{"k": key, "part": part, "v": key * 10, "price": Decimal(key)} for key in keys]


def keys(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow()["k"].to_pylist())


def bag(data: Any) -> Counter[str]:
    names = [name for name in data.column_names if not name.startswith("_")]
    return Counter(repr(row) for row in data.select(names).to_pylist())


def filled(kind: str) -> Table:
    """A table with thirteen rows in three partitions, one of them the null partition."""
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=KINDS[kind])
    table.insert([*rows(range(6)), *rows(range(6, 10), "b")])
    table.insert(rows(range(10, 13), None))
    return table


def table_of(reader: int, writer: int, *features: str, **configuration: str) -> Table:
    """A table that another writer made with this protocol."""
    store = memory_store()
    lists: dict[str, Any] = {}
    if writer == 7:
        lists["writer_features"] = features
    if reader == 3:
        lists["reader_features"] = tuple(name for name in features if name in {"deletionVectors", "timestampNtz"})
    protocol = Protocol(min_reader_version=reader, min_writer_version=writer, **lists)
    put_commit(store, 0, protocol, metadata(SCHEMA, configuration=configuration), info={"inCommitTimestamp": None})
    return Table(store, load(store))


def protocol_of(table: Table) -> Protocol:
    return load(table.store).head.protocol


def lose_once(table: Table, act: Callable[[Table], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another writer act once, right after the table's next transaction has begun."""
    raced = [False]

    def losing(begin: Callable[[Table], Transaction]) -> Callable[[Table], Transaction]:
        def begin_and_lose(self: Table) -> Transaction:
            transaction = begin(self)
            if self is table and not raced[0]:
                raced[0] = True
                act(reopen(table))
            return transaction

        return begin_and_lose

    for name in ("begin", "_begin"):
        monkeypatch.setattr(Table, name, losing(getattr(Table, name)))
