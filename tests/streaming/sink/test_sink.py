"""The sink in a real query: each batch once, whatever is replayed."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import (
    Input,
    drain,
    footprint,
    forget_last_commit,
    last_committed_batch,
    numbers_in,
    refused,
    wait_until,
)
from tidelog.log import Committed, OperationClass, Table, Transaction
from tidelog.log.errors import ConfigurationError, NotInStreamError
from tidelog.streaming import BatchReport, Sink

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


class Reports:
    """A batch function that hands batches to a sink and keeps the reports."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.all: list[BatchReport] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.sink(batch, number)
        assert self.sink.last
        self.all.append(self.sink.last)


def test_each_batch_is_one_commit_and_reported(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    reports = Reports(Sink(str(path)))
    assert reports.sink.last is None
    drain(source.put(3).stream(spark), reports, tmp_path / "cp")

    assert numbers_in(path) == source.numbers
    table = Table.open(str(path))
    assert table.version == 3
    assert [record.operation_class for record in table.history()[:3]] == [OperationClass.INSERT] * 3
    assert [(report.batch_id, report.version, report.rows, report.files) for report in reports.all] == [
        (0, 1, 10, 1),
        (1, 2, 10, 1),
        (2, 3, 10, 1),
    ]
    sizes = table.at().files()["size"].to_pylist()
    assert [report.bytes for report in reports.all] == sizes
    for report in reports.all:
        assert not report.skipped
        assert report.rebased_over == ()
        assert set(report.seconds) == {"identify", "collect", "write", "commit"}
        assert all(seconds >= 0 for seconds in report.seconds.values())


def test_a_commit_names_its_query_batch_sink_and_fingerprint(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put().stream(spark), Sink(str(path), name="in-1"), checkpoint)
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    lines = [json.loads(line) for line in (path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()]
    info = lines[0]["commitInfo"]
    entries = {line["txn"]["appId"]: line["txn"] for line in lines if "txn" in line}

    assert info["operation"] == "STREAMING UPDATE"
    assert info["operationParameters"] == {"outputMode": "Append", "queryId": query_id, "epochId": "0"}
    record = info["tidelog"]["batch"]
    assert (record["queryId"], record["batchId"], record["sink"]) == (query_id, 0, "in-1")
    assert entries[f"tidelog/{query_id}/in-1"]["version"] == 0
    assert entries[f"tidelog/{query_id}/in-1/offsets"]["version"] == record["fingerprint"]
    assert "tidelog/sink/in-1" in entries
    assert all(entry["lastUpdated"] > 1_700_000_000_000 for entry in entries.values())


def test_a_batch_whose_commit_spark_did_not_note_is_skipped_on_restart(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """The exact trace of a crash between the sink's return and Spark's own commit: commits/<n> is missing."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(3).stream(spark), Sink(str(path)), checkpoint)
    before = footprint(path)
    replayed = forget_last_commit(checkpoint)

    reports = Reports(Sink(str(path)))
    drain(source.stream(spark), reports, checkpoint)
    assert [(report.batch_id, report.skipped, report.version, report.rows) for report in reports.all] == [
        (replayed, True, None, 0)
    ]
    assert footprint(path) == before
    assert last_committed_batch(checkpoint) == replayed
    assert numbers_in(path) == source.numbers


def test_a_replay_is_skipped_and_what_came_meanwhile_is_not(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(2).stream(spark), Sink(str(path)), checkpoint)
    for _ in range(3):
        forget_last_commit(checkpoint)
        reports = Reports(Sink(str(path)))
        drain(source.put(2).stream(spark), reports, checkpoint)
        assert [report.skipped for report in reports.all] == [True, False, False]
    assert numbers_in(path) == source.numbers


def test_a_replay_is_known_again_where_the_file_source_rewrites_its_log(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """Every tenth entry of that log, which tells a batch's files, is one that holds all before it as well."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(10).stream(spark), Sink(str(path)), checkpoint)
    assert (checkpoint / "sources" / "0" / "9.compact").exists()
    assert forget_last_commit(checkpoint) == 9
    reports = Reports(Sink(str(path)))
    drain(source.put().stream(spark), reports, checkpoint)
    assert [(report.batch_id, report.skipped) for report in reports.all] == [(9, True), (10, False)]
    assert numbers_in(path) == source.numbers


def test_one_sink_object_serves_a_query_that_restarts(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path))
    drain(source.put(2).stream(spark), sink, checkpoint)
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), sink, checkpoint)
    assert numbers_in(path) == source.numbers


def test_a_failure_after_the_sink_costs_nothing(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path))

    def fails(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        if number == 1:
            raise RuntimeError("the work after the sink failed")

    with pytest.raises(StreamingQueryException, match="the work after the sink failed"):
        drain(source.put(3).stream(spark), fails, checkpoint)
    assert numbers_in(path) == list(range(20))
    reports = Reports(sink)
    drain(source.stream(spark), reports, checkpoint)
    assert [report.skipped for report in reports.all] == [True, False]
    assert numbers_in(path) == source.numbers


def test_a_failure_between_files_and_commit_leaves_nothing_visible(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put().stream(spark), Sink(str(path)), checkpoint)

    def dies(_: Transaction) -> Committed:
        raise RuntimeError("died before the commit")

    stream = source.put().stream(spark)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", dies)
        with pytest.raises(StreamingQueryException, match="died before the commit"):
            drain(stream, Sink(str(path)), checkpoint)
    assert len(list(path.rglob("*.parquet"))) == 2
    assert numbers_in(path) == list(range(10))

    drain(source.stream(spark), Sink(str(path)), checkpoint)
    assert numbers_in(path) == source.numbers
    assert len(list(path.rglob("*.parquet"))) == 3


def test_an_empty_batch_commits_nothing(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    reports = Reports(Sink(str(path)))
    stream = source.put(3).stream(spark).where("n >= 10 and n < 20")
    drain(stream, reports, checkpoint)
    assert [(report.version, report.rows, report.files, report.skipped) for report in reports.all] == [
        (None, 0, 0, False),
        (1, 10, 1, False),
        (None, 0, 0, False),
    ]
    assert Table.open(str(path)).version == 1


def test_a_replayed_empty_batch_stays_empty(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    stream = source.put(2).stream(spark).where("n < 10")
    drain(stream, Sink(str(path)), checkpoint)
    forget_last_commit(checkpoint)
    drain(stream, Sink(str(path)), checkpoint)
    assert numbers_in(path) == list(range(10))
    assert Table.open(str(path)).version == 1


def test_a_stream_of_nothing_makes_no_table(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    drain(source.put().stream(spark).where("n < 0"), Sink(str(tmp_path / "table")), tmp_path / "cp")
    assert not (tmp_path / "table").exists()


def test_a_partitioned_table_gets_one_file_a_partition(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    stream = source.put(2).stream(spark).selectExpr("n", "if(n % 5 = 4, null, concat('p ', n % 5)) as part")
    reports = Reports(Sink(str(path), partition_by=["part"], properties={"user.note": "x"}))
    drain(stream, reports, tmp_path / "cp")
    assert [report.files for report in reports.all] == [5, 5]
    table = Table.open(str(path))
    assert table.partition_by == ("part",)
    assert table.properties["user.note"] == "x"
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows) == source.numbers
    assert all(row["part"] == (None if row["n"] % 5 == 4 else f"p {row['n'] % 5}") for row in rows)
    assert sorted(table.scan("part = 'p 3'").to_arrow()["n"].to_pylist()) == [3, 8, 13, 18]


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_paths_may_hold_what_uris_escape(spark: SparkSession, source: Input, tmp_path: Path, prefix: str) -> None:
    path, checkpoint = tmp_path / "a b%20ü" / "table", tmp_path / "c p%25" / "cp"
    drain(source.put(2).stream(spark), Sink(f"{prefix}{path}"), checkpoint)
    forget_last_commit(checkpoint)
    drain(source.stream(spark), Sink(f"{prefix}{path}"), checkpoint)
    assert numbers_in(path) == source.numbers


def test_two_names_in_one_batch_function_are_two_sinks(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"

    def both() -> Any:
        small, large = Sink(str(path), name="small"), Sink(str(path), name="large")

        def function(batch: DataFrame, number: int) -> None:
            small(batch.where("n % 2 = 0"), number)
            large(batch.where("n % 2 = 1"), number)

        return function

    drain(source.put(2).stream(spark), both(), checkpoint)
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), both(), checkpoint)
    assert numbers_in(path) == source.numbers


def test_a_crash_between_two_sinks_is_made_good(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    def function(batch: DataFrame, number: int) -> None:
        Sink(str(first))(batch, number)
        if not second.exists():
            second.mkdir()
            raise RuntimeError("died between the two")
        Sink(str(second))(batch, number)

    with pytest.raises(StreamingQueryException, match="died between the two"):
        drain(source.put().stream(spark), function, tmp_path / "cp")
    drain(source.stream(spark), function, tmp_path / "cp")
    assert numbers_in(first) == numbers_in(second) == source.numbers


@pytest.mark.parametrize("how", ["the same object", "another", "another by a link"])
def test_one_name_twice_in_a_batch_is_refused(spark: SparkSession, source: Input, tmp_path: Path, how: str) -> None:
    """The second call would find the batch committed, skip it, and so lose its rows."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    (tmp_path / "link").symlink_to(path)
    sink = Sink(str(path))
    second = {
        "the same object": sink,
        "another": Sink(str(path)),
        "another by a link": Sink(str(tmp_path / "link")),
    }[how]

    def twice(batch: DataFrame, number: int) -> None:
        sink(batch.where("n % 2 = 0"), number)
        second(batch.where("n % 2 = 1"), number)

    error = refused(source.put().stream(spark), twice, checkpoint, ConfigurationError)
    assert "twice; give each Sink of one batch function a name of its own" in str(error)


def test_a_checkpoint_is_written_beside_the_stream(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    sink = Sink(str(path), properties={"delta.checkpointInterval": 3})
    drain(source.put(4).stream(spark), sink, tmp_path / "cp")
    pointer = path / "_delta_log" / "_last_checkpoint"
    wait_until(pointer.exists, "the sink has written a checkpoint")
    assert json.loads(pointer.read_text())["version"] in {3, 4}
    assert Table.open(str(path)).commits_since_checkpoint() < 3
    assert numbers_in(path) == source.numbers


def test_no_checkpoint_before_its_time(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    drain(source.put(3).stream(spark), Sink(str(path)), tmp_path / "cp")
    assert not list(path.rglob("*checkpoint*"))


@pytest.mark.parametrize("kind", [Thread, InheritableThread])
def test_a_thread_of_one_s_own_must_inherit(
    spark: SparkSession, source: Input, tmp_path: Path, kind: type[Thread]
) -> None:
    path = tmp_path / "table"
    errors: list[Exception] = []

    def in_a_thread(batch: DataFrame, number: int) -> None:
        def call() -> None:
            try:
                Sink(str(path))(batch, number)
            except NotInStreamError as error:
                errors.append(error)

        thread = kind(target=call)
        thread.start()
        thread.join()

    drain(source.put().stream(spark), in_a_thread, tmp_path / "cp")
    if kind is InheritableThread:
        assert errors == []
        assert numbers_in(path) == source.numbers
    else:
        (error,) = errors
        assert "a thread that you start yourself must be a pyspark.InheritableThread" in str(error)
        assert not path.exists()


def test_a_table_that_is_there_is_written_to(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """Columns by name, whatever their order and case; a missing one is null; a narrower number widens."""
    path = tmp_path / "table"
    schema = pa.schema([("extra", pa.string()), ("N", pa.int64()), ("wide", pa.float64())])
    Table.create(str(path), schema).insert([{"N": -1, "extra": "old", "wide": 0.5}])
    stream = source.put().stream(spark).selectExpr("cast(n as int) as n", "cast(n as float) as wide")
    drain(stream, Sink(str(path)), tmp_path / "cp")
    rows = Table.open(str(path)).scan("N >= 0").to_arrow().to_pylist()
    assert sorted(row["N"] for row in rows) == source.numbers
    assert all(row["extra"] is None and row["wide"] == row["N"] for row in rows)
