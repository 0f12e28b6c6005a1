"""Rows that an upsert cannot apply go to another sink, and the stream goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.streaming.sink.support import Reports
from tests.streaming.sink.test_sink_modes import CHANGES, EVENTS, contents, events, run
from tests.streaming.support import Input, forget_last_commit, refused
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.fixture(params=["driver", "spark"])
def writer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def letters(path: Path) -> list[tuple[Any, ...]]:
    rows = Table.open(str(path)).scan(columns=["k", "v", "at", "_reason"]).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


TIED = "several rows have this key, and none of them is the newest"


def test_rows_without_a_key_and_ties_go_to_the_other_sink(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path, dead = tmp_path / "table", tmp_path / "dead"
    sink = Sink(
        str(path),
        mode="upsert",
        keys=["k"],
        order_by="at",
        delete_where="op = 'd'",
        writer=writer,
        dead_letters=Sink(str(dead), name="dead", writer=writer),
    )
    source.put_table(events((1, "a", "one", 1, "c"), (2, "a", "two", 1, "c"), (2, "a", "two", 1, "c")))
    source.put_table(
        events(
            (1, "a", "x", 5, "u"), (1, "a", "y", 5, "u"), (1, "a", "older", 4, "u"),
            (2, "a", "gone", 6, "d"), (2, "a", "back", 6, "u"), (3, "a", "three", 7, "c"),
        )
    )  # fmt: skip
    source.put_table(events((None, "a", "nobody", 8, "c"), (3, "a", "third", 8, "u")))
    reports = Reports(sink)
    run(spark, source, reports, tmp_path, CHANGES)
    assert contents(path, "k", "v") == [(1, "one"), (2, "two"), (3, "third")]
    assert letters(dead) == [
        (1, "older", 4, TIED),
        (1, "x", 5, TIED),
        (1, "y", 5, TIED),
        (2, "back", 6, TIED),
        (2, "gone", 6, TIED),
        (None, "nobody", 8, "the key column k is null"),
    ]
    assert [report.rows for report in reports.all] == [2, 1, 1]


def test_a_replayed_batch_gives_each_row_once(spark: SparkSession, source: Input, tmp_path: Path, writer: str) -> None:
    path, dead = tmp_path / "table", tmp_path / "dead"

    def sink() -> Sink:
        return Sink(str(path), mode="upsert", keys=["k"], writer=writer, dead_letters=Sink(str(dead), name="dead"))

    source.put_table(events((1, "a", "one", 1), (None, "a", "x", 1)))
    run(spark, source, sink(), tmp_path, EVENTS)
    source.put_table(events((1, "a", "two", 2), (None, "a", "y", 2), (2, "b", "p", 3), (2, "b", "q", 3)))
    run(spark, source, sink(), tmp_path, EVENTS)
    forget_last_commit(tmp_path / "cp")
    run(spark, source, sink(), tmp_path, EVENTS)
    assert contents(path, "k", "v") == [(1, "two")]
    assert [row[1] for row in letters(dead)] == ["p", "q", "x", "y"]


def test_an_empty_text_is_a_null_in_a_partition_column(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    dead = Sink(str(tmp_path / "dead"), name="dead")
    sink = Sink(str(tmp_path / "table"), mode="upsert", keys=["k", "day"], partition_by=["day"], dead_letters=dead)
    run(spark, source.put_table(events((1, "", "x", 1), (1, "a", "y", 1))), sink, tmp_path, EVENTS)
    assert contents(tmp_path / "table", "k", "day", "v") == [(1, "a", "y")]
    assert letters(tmp_path / "dead") == [(1, "x", 1, "the key column day is null")]


def test_what_cannot_take_dead_letters_is_refused(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, other = str(tmp_path / "table"), str(tmp_path / "other")
    for mode, dead, message in [
        ("append", Sink(other), "dead_letters needs mode='upsert'"),
        ("upsert", "bad", "dead_letters must be a Sink, not str"),
        ("upsert", Sink(other, mode="upsert", keys=["k"]), "can only be appended"),
        ("upsert", Sink(path, name="dead"), "writes to the same table"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            Sink(path, mode=mode, dead_letters=dead)  # type: ignore[arg-type]
    renamed = source.put_table(events((1, "a", "x", 1))).stream(spark, schema=EVENTS).withColumnRenamed("v", "_reason")
    sink = Sink(path, mode="upsert", keys=["k"], dead_letters=Sink(other))
    assert refused(renamed, sink, tmp_path / "cp", SchemaMismatchError).column == "_reason"
