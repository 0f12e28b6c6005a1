"""Small tables of keys and values."""

from __future__ import annotations

import pyarrow as pa

from tests.log.support import Clock, memory_store, new_table, reopen
from tidelog.log import Table
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def filled(*rows: tuple[int, int], **properties: object) -> Table:
    """A table with a file for each row."""
    table = new_table(memory_store(), SCHEMA, properties=properties)
    for row in rows:
        table.insert(data(row))
    return table


def data(*rows: tuple[int, int]) -> list[dict[str, int]]:
    return [{"k": k, "v": v} for k, v in rows]


def rows(table: Table) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for row in reopen(table).scan().to_arrow().to_pylist())


def through(store: Store) -> Table:
    return Table(store, load(store), Clock())
