"""`read` and `changes` give the rows of `Table.scan` and `Table.changes` after every kind of commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.streaming.jvm_reading.support import assert_same, is_read_by_spark, physical_plan
from tests.streaming.support import foreign_delete, rewrite_all
from tidelog.log import Table
from tidelog.log.read import inserted_files
from tidelog.streaming import changes, read

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("text", pa.string())])
FEED = {"delta.enableChangeDataFeed": True}
COPIES = {"delta.enableDeletionVectors": False}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "feed": {"properties": FEED},
    "copies": {"properties": COPIES},
    "copies-feed-partitions": {"properties": {**FEED, **COPIES}, "partition_by": ["day"]},
    "feed-partitions": {"properties": FEED, "partition_by": ["day"]},
    "partitions": {"partition_by": ["day"]},
}


def rows(*numbers: int, text: str | None = None) -> list[dict[str, Any]]:
    days = [dt.date(2026, 1, 1), dt.date(1960, 2, 29), None]
    return [{"id": n, "day": days[n % 3], "text": text or f"row {n}"} for n in numbers]


STEPS: list[Callable[[Table], object]] = [
    lambda table: table.insert(rows(*range(12))),
    lambda table: table.delete("id IN (1, 2, 7)"),
    lambda table: table.update("id >= 10", {"text": "'updated'"}),
    lambda table: table.upsert(rows(3, 4, 100, text="upserted"), keys=["id", "day"]),
    lambda table: table.delete("id = 3"),
    rewrite_all,
    lambda table: table.restore(version=2),
    lambda table: table.overwrite(rows(*range(20, 26))),
    lambda table: table.set_properties({"tidelog.minorSpan": "2 days"}),
    lambda table: table.add_columns([pa.field("more", pa.int32())]),
    lambda table: table.insert([{"id": 30, "day": None, "text": None, "more": 5}]),
    foreign_delete,
    lambda table: table.truncate(),
    lambda table: table.insert(rows(1, 1, 2)),
]


@pytest.mark.parametrize("kind", full_but(["plain", "feed-partitions"], KINDS))
def test_every_kind_of_commit(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = str(tmp_path / "a table")
    table = Table.create(path, SCHEMA, **KINDS[kind])
    for step in STEPS:
        step(table)
    table.refresh()
    objects = table.changes()
    assert assert_same(changes(spark, path), objects) > 50
    monkeypatch.setattr(inserted_files, "_MIN_FILES", 1)
    assert assert_same(changes(spark, path), objects) > 50
    for version in (3, 5):
        assert_same(read(spark, path, version=version), table.at(version=version).scan())
    assert_same(read(spark, path), table.scan())
    table.refresh()
    middle = table.at(version=4).timestamp
    assert_same(
        changes(spark, path, after=1, until=middle, columns=["_change_type", "id", "_commit_version"], where="id < 4"),
        table.changes(after=1, until=middle, columns=["_change_type", "id", "_commit_version"], where="id < 4"),
    )


def test_appended_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["day"])
    for start in (0, 10, 20):
        table.insert(rows(*range(start, start + 10)))
    rewrite_all(table)
    frame = changes(spark, table.path, after=1, mode="append")
    assert assert_same(frame, table.changes(after=1, mode="append")) == 20
    assert is_read_by_spark(frame)


def test_a_frame_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    table.insert(rows(1, 2, 3))
    frame, feed = read(spark, table.path), changes(spark, table.path)
    table.delete("id = 1")
    table.overwrite(rows(9))
    assert sorted(row["id"] for row in frame.collect()) == [1, 2, 3]
    assert feed.count() == 3
    assert read(spark, table.path).count() == 1


@pytest.mark.full
def test_one_frame_in_several_places(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["day"])
    table.insert(rows(*range(30)))
    table.delete("id < 3")
    frame = read(spark, table.path)
    assert frame.count() == 27
    assert len(frame.limit(5).collect()) == 5
    assert frame.join(frame, "id").count() == 27
    assert frame.unionAll(frame).where("id = 5").count() == 2
    assert frame.select("text").distinct().count() == 27
    assert frame.cache().count() == frame.groupBy("id").count().count() == 27
    frame.unpersist()


def test_no_rows_run_no_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    table.insert(rows(1))
    for frame, reader in [
        (read(spark, table.path, version=0), table.at(version=0).scan()),
        (read(spark, table.path, where="id > 5"), table.scan("id > 5")),
        (changes(spark, table.path, after=1), table.changes(after=1)),
    ]:
        assert assert_same(frame, reader) == 0
        assert "LocalTableScan <empty>" in physical_plan(frame)
