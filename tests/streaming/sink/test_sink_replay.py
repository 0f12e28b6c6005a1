"""Batches that Spark replays after a crash or a failure: each is in the table once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.sink.support import Reports
from tests.streaming.support import Input, drain, footprint, forget_last_commit, last_committed_batch, numbers_in
from tidelog.log import Committed, Table, Transaction
from tidelog.streaming import Sink

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.mark.oldest
def test_a_batch_that_spark_has_not_recorded_is_skipped_on_restart(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """A crash between the sink's commit and Spark's own leaves exactly this: commits/<n> is missing."""
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


def test_a_replay_is_skipped_and_later_batches_are_committed(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(2).stream(spark), Sink(str(path)), checkpoint)
    for _ in range(3):
        forget_last_commit(checkpoint)
        reports = Reports(Sink(str(path)))
        drain(source.put(2).stream(spark), reports, checkpoint)
        assert [report.skipped for report in reports.all] == [True, False, False]
    assert numbers_in(path) == source.numbers


def test_a_replay_is_recognised_after_the_file_source_compacts_its_log(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    """Every tenth entry of that log, which lists a batch's files, also has the entries before it."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(source.put(10).stream(spark), Sink(str(path)), checkpoint)
    assert (checkpoint / "sources" / "0" / "9.compact").exists()
    assert forget_last_commit(checkpoint) == 9
    reports = Reports(Sink(str(path)))
    drain(source.put().stream(spark), reports, checkpoint)
    assert [(report.batch_id, report.skipped) for report in reports.all] == [(9, True), (10, False)]
    assert numbers_in(path) == source.numbers


def test_one_sink_object_can_serve_a_restarted_query(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path))
    drain(source.put(2).stream(spark), sink, checkpoint)
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), sink, checkpoint)
    assert numbers_in(path) == source.numbers


def test_a_failure_after_the_sink_loses_and_doubles_nothing(spark: SparkSession, source: Input, tmp_path: Path) -> None:
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


def test_a_replayed_empty_batch_stays_empty(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    stream = source.put(2).stream(spark).where("n < 10")
    drain(stream, Sink(str(path)), checkpoint)
    forget_last_commit(checkpoint)
    drain(stream, Sink(str(path)), checkpoint)
    assert numbers_in(path) == list(range(10))
    assert Table.open(str(path)).version == 1
