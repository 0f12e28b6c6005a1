"""Support for tests that make a table of a folder of parquet files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import memory_url
from tidelog.log import Table
from tidelog.log.errors import TidelogError
from tidelog.log.storage import Store, open_store

ROWS = pa.table({"n": [1, 2], "s": ["a", None]})


def parquet(rows: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **options)
    return buffer.getvalue()


def folder(path: str, files: Mapping[str, pa.Table | bytes]) -> Store:
    """Write a folder of files."""
    store = open_store(path)
    for name, content in files.items():
        store.put_if_absent(name, content if isinstance(content, bytes) else parquet(content))
    return store


def numbered(first: int, count: int = 3) -> pa.Table:
    return pa.table({"n": range(first, first + count)})


def converted(files: Mapping[str, pa.Table | bytes], **options: Any) -> Table:
    path = memory_url()
    folder(path, files)
    return Table.convert(path, **options)


def stats_of(table: Table) -> dict[str, Any]:
    (text,) = table.at().files()["stats"].to_pylist()
    found: dict[str, Any] = json.loads(text)
    return found


def refused(kind: type[TidelogError], files: Mapping[str, pa.Table | bytes], **options: Any) -> str:
    """The message of the error for a folder that cannot be converted, which stays as it is."""
    path = memory_url()
    store = folder(path, files)
    before = sorted(name for name, _ in store.walk())
    with pytest.raises(kind) as caught:
        Table.convert(path, **options)
    assert sorted(name for name, _ in store.walk()) == before
    return str(caught.value)
