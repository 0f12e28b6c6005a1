"""Statements on Spark's executors while another writer commits."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.log.operations.changing_rows import rows
from tests.streaming.executors.twins import FRAME, filled, frame_of
from tests.streaming.support import rewrite_all
from tidelog.log import Table
from tidelog.log.errors import ConflictError
from tidelog.streaming import table
from tidelog.streaming.executors import spark_table, spark_upsert, tasks

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_file_a_task")]

Change = Callable[[], Any]


def with_concurrent(
    monkeypatch: pytest.MonkeyPatch, *changes: Change, module: ModuleType = spark_table
) -> list[Change]:
    """Run one of `changes` between the tasks and the commit of each attempt. Returns those that have not run yet."""
    waiting = list(changes)

    def run_then_change(*arguments: Any) -> Any:
        values = tasks.run(*arguments)
        if waiting:
            waiting.pop(0)()
        return values

    monkeypatch.setattr(module, "run", run_then_change)
    return waiting


@pytest.mark.parametrize("kind", ["vectors", "copies", "vectors, feed"])
def test_a_concurrent_compaction_moves_the_rows(
    kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(tmp_path, kind)
    changed = table(spark, made.path)
    waiting = with_concurrent(monkeypatch, lambda: rewrite_all(Table.open(made.path)))
    changed.update("k < 8", {"v": "k + 1000"})
    assert not waiting
    waiting = with_concurrent(monkeypatch, lambda: rewrite_all(Table.open(made.path)))
    changed.delete("k >= 16")
    assert not waiting
    found = made.refresh().scan().to_arrow()
    assert sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == [
        (k, k + 1000 if k < 8 else k * 10) for k in range(16) if k not in {3, 14, 15}
    ]


def test_matching_rows_are_inserted_concurrently(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement starts again, up to 3 times. A lost attempt leaves nothing that a reader sees."""
    made = filled(tmp_path, "vectors, feed")
    changed = table(spark, made.path)

    def insert() -> None:
        Table.open(made.path).insert(rows(range(2)))

    with_concurrent(monkeypatch, insert, insert)
    changed.update("k < 2", {"v": "-1"})
    assert sorted(made.refresh().scan("k < 2").to_arrow()["v"].to_pylist()) == [-1] * 6
    waiting = with_concurrent(monkeypatch, *[insert] * 9)
    with pytest.raises(ConflictError):
        changed.update("k < 2", {"v": "-2"})
    assert len(waiting) == 5
    assert set(made.refresh().scan("k < 2").to_arrow()["v"].to_pylist()) == {-1, 0, 10}


def test_an_overwrite_also_replaces_concurrent_inserts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(tmp_path, "vectors")

    def run_then_insert(*arguments: Any) -> Any:
        values = tasks.run_on_rows(*arguments)
        Table.open(made.path).insert(rows(range(200, 203)))
        return values

    monkeypatch.setattr(spark_table, "run_on_rows", run_then_insert)
    table(spark, made.path).overwrite(frame_of(spark, rows(range(2))), where="part = 'a'")
    assert not {200, 201, 202, 13} & set(made.refresh().scan().to_arrow()["k"].to_pylist())


def compact_at(path: str) -> None:
    rewrite_all(Table.open(path))


def insert_at(path: str) -> None:
    Table.open(path).insert(rows(range(5, 7)))


def test_an_upsert_that_starts_again_reads_its_data_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each attempt at an upsert of random data would write other rows."""
    made = filled(tmp_path, "vectors, feed")
    computed = spark.sparkContext.accumulator(0)

    def dice(key: int) -> tuple[int, str, int, None]:
        computed.add(1)
        return key, "a", random.randrange(10**9), None

    frame = spark.createDataFrame(spark.sparkContext.parallelize(range(20), 2).map(dice), FRAME)
    changes: list[Change] = [partial(compact_at, made.path), partial(insert_at, made.path)]
    waiting = with_concurrent(monkeypatch, *changes, module=spark_upsert)
    before = made.version
    table(spark, made.path).upsert(frame, keys=["k"])
    assert not waiting
    assert computed.value == 20
    found = made.refresh().scan().to_arrow()
    assert sorted(found["k"].to_pylist()) == list(range(20))
    feed = made.changes(after=before).to_arrow().to_pylist()
    newest = {
        row["k"]: row["v"]
        for row in feed
        if row["_commit_version"] == made.version and "pre" not in row["_change_type"]
    }
    assert newest == dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
