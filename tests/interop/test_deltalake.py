"""delta-rs queries partitioned tables before and after a compaction, with dead rows and old versions."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.compaction_daemon.support import delete_rows
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.state import checkpoint_sidecars, checkpoint_writer

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])
START = dt.datetime(2026, 3, 1, 23, 59, 59, 999_999, dt.UTC)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Six commits of four rows over two days."""
    made = Table.create(str(tmp_path / "ta ble"), SCHEMA, partition_by=["day"])
    for commit in range(6):
        rows = [
            {"day": START.date() if k % 2 else None, "n": commit * 4 + k, "text": None if k else "ü", "at": START}
            for k in range(4)
        ]
        made.insert(rows)
    return made


def by_sql(table: Table, statement: str, version: int | None = None) -> list[dict[str, Any]]:
    opened = deltalake.DeltaTable(table.path, version=version)
    reader = deltalake.QueryBuilder().register("t", opened).execute(statement)
    rows: list[dict[str, Any]] = pa.table(reader.read_all()).to_pylist()
    return rows


def test_delta_rs_reads_a_compacted_table(table: Table) -> None:
    before = by_sql(table, "select * from t order by n")
    assert compact(table).did_anything
    table.insert([{"day": None, "n": 24, "text": "later", "at": START}])
    after = by_sql(table, "select * from t order by n")
    assert after == table.refresh().scan().to_arrow().sort_by("n").to_pylist()
    assert after[:-1] == before
    assert by_sql(table, "select count(*) as c from t where day = date '2026-03-01'") == [{"c": 12}]
    assert by_sql(table, "select min(n) as low, max(n) as high from t where day is null") == [{"low": 0, "high": 24}]


def test_delta_rs_reads_every_version(table: Table) -> None:
    compact(table)
    for version in (0, 3, 6, 7):
        assert by_sql(table, "select count(*) as c from t", version) == [{"c": min(version, 6) * 4}]


def test_delta_rs_reads_from_a_checkpoint_alone(table: Table) -> None:
    compact(table)
    table.refresh().checkpoint()
    table.insert([{"day": None, "n": 24, "text": "later", "at": START}])
    for version in range(7):
        Path(table.path, "_delta_log", f"{version:020d}.json").unlink()
    assert by_sql(table, "select count(*) as c, sum(n) as s from t") == [{"c": 25, "s": sum(range(25))}]


def test_delta_rs_agrees_about_dead_rows_before_and_after_a_compaction(table: Table) -> None:
    delete_rows(table, [0])
    delete_rows(table, [0, 1], file=3)
    before = table.refresh().scan().to_arrow().sort_by("n").to_pylist()
    assert by_sql(table, "select * from t order by n") == before
    assert len(before) == 21
    compact(table)
    assert by_sql(table, "select * from t order by n") == before


def test_delta_rs_shows_our_history(table: Table) -> None:
    compact(table)
    newest = deltalake.DeltaTable(table.path).history(1)[0]
    assert (newest["version"], newest["operation"]) == (7, "OPTIMIZE")


def test_delta_rs_can_write_to_a_table_with_two_properties_off(tmp_path: Path) -> None:
    """Without deletion vectors and in-commit timestamps, any Delta writer can append."""
    low = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}
    table = Table.create(str(tmp_path / "low"), pa.schema([("n", pa.int64())]), properties=low)
    table.insert([{"n": 1}])
    table.insert([{"n": 2}])
    deltalake.write_deltalake(table.path, pa.table({"n": pa.array([3], pa.int64())}), mode="append")
    assert sorted(table.refresh().scan().to_arrow()["n"].to_pylist()) == [1, 2, 3]
    assert compact(table).did_anything
    assert sorted(row["n"] for row in by_sql(table, "select n from t")) == [1, 2, 3]
    assert sorted(table.changes(mode="append", after=2).to_arrow()["n"].to_pylist()) == [3]


def test_delta_rs_reads_a_large_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one file that is grouped by partition, and with sidecars."""
    for module in (checkpoint_writer, checkpoint_sidecars):
        monkeypatch.setattr(module, "GROUPED_FILES", 1)
    for properties in ({}, {"delta.feature.v2Checkpoint": "supported"}):
        table = Table.create(str(tmp_path / str(len(properties))), SCHEMA, partition_by=["day"], properties=properties)
        for commit in range(6):
            day = START.date() if commit % 2 else None
            table.insert([{"day": day, "n": commit, "text": "ü", "at": START}])
        table.checkpoint()
        table.insert([{"day": None, "n": 6, "text": "later", "at": START}])
        table.delete("n = 3")
        table.checkpoint()
        log = Path(table.path, "_delta_log")
        assert (log / "_sidecars").exists() == bool(properties)
        for file in (*log.glob("*.json"), *log.glob("*.crc")):
            if int(file.name[:20]) < table.version:
                file.unlink()
        expected = [{"n": number} for number in (0, 1, 2, 4, 5, 6)]
        assert by_sql(table, "select n from t order by n") == expected
        assert Table.open(table.path).scan(columns=["n"]).to_arrow().sort_by("n").to_pylist() == expected
