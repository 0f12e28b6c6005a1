"""delta-rs reads a table after tidelog has expired its log and vacuumed its files."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.compaction_daemon.support import delete_rows
from tests.log.cleanup.support import written_when_committed
from tests.log.support import START_MS, Clock, new_table, numbers, reopen
from tidelog.compaction_daemon import Daemon, compact, expire, vacuum
from tidelog.log import Table
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import System

pytestmark = pytest.mark.interop
DAY_MS = 86_400_000


def by_sql(table: Table, version: int | None = None) -> list[int]:
    opened = deltalake.DeltaTable(table.path, version=version)
    reader = deltalake.QueryBuilder().register("t", opened).execute("select n from t order by n")
    found: list[int] = pa.table(reader.read_all())["n"].to_pylist()
    return found


def test_delta_rs_reads_every_retained_version(tmp_path: Path) -> None:
    clock = Clock()
    store = LocalStore(str(tmp_path / "t"))
    table = new_table(store, system=clock)
    for day in range(1, 9):
        clock.ms = START_MS + day * DAY_MS
        table.insert(numbers([10 * day, 10 * day + 1]))
    delete_rows(table, [0], file=2)
    compact(table)
    table.refresh().checkpoint()
    # Everything was written just now, so make the files look old, and data older than the log. The compaction's
    # tombstones have the real time.
    for path in (tmp_path / "t").rglob("*.*"):
        moment = START_MS / 1000 + (path.parent.name == "_delta_log")
        os.utime(path, (moment, moment))
    before = by_sql(table)
    table = Table(store, load(store), clock)
    clock.ms = System().now_ms() + 10 * DAY_MS
    table.insert(numbers([100]))

    cleaned = vacuum(table, older_than=timedelta(days=1))
    assert (cleaned.data_files, cleaned.failed) == (8, ())
    assert expire(table, older_than=timedelta(days=1)).earliest_version == 10
    assert by_sql(table) == sorted([*before, 100])
    assert by_sql(table, 10) == before
    assert len(before) == 15
    with pytest.raises(Exception, match=r"(?i)version|not found|log"):
        by_sql(table, 8)
    assert [entry["version"] for entry in deltalake.DeltaTable(table.path).history()] == [13, 12, 11, 10]
    reopen(table).insert(numbers([101]))
    assert by_sql(table) == sorted([*before, 100, 101])


def test_delta_rs_reads_what_the_daemon_leaves_after_each_of_its_steps(tmp_path: Path) -> None:
    clock = Clock(System().now_ms() - 100 * DAY_MS)
    store = LocalStore(str(tmp_path / "t"))
    table = new_table(store, system=clock, properties={"delta.checkpointInterval": 5})
    for day in range(12):
        clock.ms += DAY_MS
        table.insert(numbers([10 * day, 10 * day + 1]))
    delete_rows(table, [0], file=2)
    replaced = list((tmp_path / "t").glob("*.parquet"))
    for path in replaced:
        os.utime(path, (clock.ms / 1000, clock.ms / 1000))
    rows = by_sql(table)

    daemon = Daemon([Table(store, load(store), clock)], clock=clock)
    for _ in range(60):
        daemon.step()
        assert sorted(by_sql(table)) == rows
        written_when_committed(table.refresh())
        clock.ms += DAY_MS
    assert not [path for path in replaced if path.exists()]
    assert not (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").exists()
    assert len(deltalake.DeltaTable(table.path).file_uris()) == 1
    reopen(table).insert(numbers([1000]))
    assert sorted(by_sql(table)) == [*rows, 1000]
