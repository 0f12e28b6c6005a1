"""Tables for the tests of the command line."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import SCHEMA
from tests.compaction_daemon.support import SCHEMA as PARTITIONED
from tests.compaction_daemon.support import put
from tests.log.cleanup.support import written_when_committed
from tests.log.support import START_MS, Clock, new_table, numbers
from tidelog.log import Table
from tidelog.log.storage.local import LocalStore

DAY_MS = 86_400_000


@pytest.fixture
def row() -> dict[str, Any]:
    """A row of SCHEMA."""
    return {
        "n": 1,
        "part": "a",
        "price": Decimal("1.50"),
        "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 12, 0, 0, 1, dt.UTC),
        "raw": b"\x00\xff",
        "ratio": float("nan"),
        "ok": True,
        "tags": {"k": dt.date(2026, 1, 1)},
        "codes": {7: "seven"},
        "inner": {"x": Decimal("0.5"), "list": [b"\x01", None]},
        "text": 'a "quoted", text\nwith \x1b[31mcolour',
    }


@pytest.fixture
def table(tmp_path: Path, row: dict[str, Any]) -> Table:
    """Version 1 adds `row` and is a stream's, version 2 adds a row of nulls."""
    made = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
    made.insert([row], idempotency_key=("job/1", 7))
    made.insert([{"n": 2}])
    return made


@pytest.fixture
def small_files(tmp_path: Path) -> Table:
    """Version 3, with three small files in one partition, one for each commit."""
    made = Table.create(str(tmp_path / "small files"), PARTITIONED, partition_by=["part"])
    for number in range(3):
        put(made, number)
    return made


@pytest.fixture
def old(tmp_path: Path) -> Table:
    """Ten versions, a day apart, long ago; every third has a checkpoint; two older orphaned files."""
    clock = Clock()
    made = new_table(LocalStore(str(tmp_path / "old")), system=clock)
    for day in range(1, 11):
        clock.ms = START_MS + day * DAY_MS
        made.insert(numbers([day]))
        if day % 3 == 0:
            made.checkpoint()
    for name in ("orphan-1.parquet", "orphan-2.parquet"):
        path = Path(made.path, name)
        path.write_bytes(b"12345")
        os.utime(path, (START_MS / 1000 - 1, START_MS / 1000 - 1))
    return written_when_committed(made)
