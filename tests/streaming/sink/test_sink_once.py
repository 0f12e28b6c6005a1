"""Exactly once in every mode with either writer: live copies, replays after log clean-up, empty batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.support import (
    Input,
    NoClaims,
    drain,
    footprint,
    forget_last_commit,
    numbers_in,
    refused,
    wait_until,
)
from tidelog.compaction_daemon import expire
from tidelog.log import Committed, Superseded, Table, Transaction
from tidelog.log.errors import ConcurrentTransactionException
from tidelog.log.state.segment import list_segment
from tidelog.streaming import BatchReport, Sink, Throttle
from tidelog.streaming.sink import batch as sink_batch
from tidelog.streaming.sink.throttle import Brake

pytestmark = pytest.mark.spark

MODES = ("append", "upsert", "overwrite-partitions")
each_mode = pytest.mark.parametrize("mode", full_but(["upsert"], MODES))
each_writer = pytest.mark.parametrize("writer", ["driver", "spark"])
_MAIN = {("append", "driver"), ("overwrite-partitions", "spark")}
each_way = pytest.mark.parametrize(
    ("mode", "writer"),
    [
        pytest.param(mode, writer, marks=[] if (mode, writer) in _MAIN else pytest.mark.full)
        for mode in MODES
        for writer in ("driver", "spark")
    ],
)


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def sink_of(path: Path, mode: str, writer: str, **others: Any) -> Sink:
    keys = ["n"] if mode == "upsert" else []
    return Sink(str(path), mode=mode, writer=writer, keys=keys, partition_by=["part"], **others)


def stream_of(spark: SparkSession, source: Input, *more: str) -> DataFrame:
    """Each file is one partition."""
    return source.stream(spark).selectExpr("n", "n div 10 as part", *more)


def data_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


# --- two live copies of one query ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _separate_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a query normally run in separate processes, which do not see each other's claims."""
    monkeypatch.setattr(sink_batch, "_claims", NoClaims())


def first_commit_after(action: Callable[[], None], patched: pytest.MonkeyPatch) -> None:
    """Run `action` just before the next commit, after its batch is staged."""
    commit, waiting = Transaction.commit, [action]

    def later(transaction: Transaction) -> Committed | Superseded:
        if waiting:
            waiting.pop()()
        return commit(transaction)

    patched.setattr(Transaction, "commit", later)


def overtaken(
    sink: Sink, copy: Sink, patched: pytest.MonkeyPatch, *, lost_batch: int
) -> Callable[[DataFrame, int], None]:
    """A batch function with `sink`, in which `copy` commits one batch just before `sink` does."""

    def function(batch: DataFrame, number: int) -> None:
        def copy_commits() -> None:
            copy(batch, number)

        if number == lost_batch:
            first_commit_after(copy_commits, patched)
        sink(batch, number)

    return function


@each_way
def test_the_copy_that_commits_second_fails_and_leaves_nothing(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, writer: str
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(stream_of(spark, source.put()), sink_of(path, mode, writer), checkpoint)
    source.put()
    with monkeypatch.context() as patched:
        sinks = sink_of(path, mode, writer), sink_of(path, mode, writer)
        loser = overtaken(*sinks, patched, lost_batch=1)
        error = refused(stream_of(spark, source), loser, checkpoint, ConcurrentTransactionException)
    assert "another copy" in str(error) or "same application" in str(error) or "/default" in str(error)
    assert numbers_in(path) == source.numbers
    table = Table.open(str(path))
    assert table.version == 2
    # The loser has deleted its files, since no commit can refer to them.
    assert data_files(path) == set(table.at().files()["path"].to_pylist())
    drain(stream_of(spark, source.put()), sink_of(path, mode, writer), checkpoint)
    assert numbers_in(path) == source.numbers
    assert Table.open(str(path)).version == 3


@each_mode
def test_a_copy_is_recognised_when_another_conflict_causes_a_retry(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Both copies add the same column, so the loser's first conflict is the schema change."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    evolving = {"schema_evolution": True}
    drain(stream_of(spark, source.put()), sink_of(path, mode, "driver", **evolving), checkpoint)
    wider = stream_of(spark, source.put(), "n + 1 as more")
    with monkeypatch.context() as patched:
        sinks = sink_of(path, mode, "driver", **evolving), sink_of(path, mode, "driver", **evolving)
        loser = overtaken(*sinks, patched, lost_batch=1)
        error = refused(wider, loser, checkpoint, ConcurrentTransactionException)
    assert "run only one copy" in str(error)
    assert numbers_in(path) == source.numbers
    assert Table.open(str(path)).version == 2


@each_way
def test_only_one_of_two_copies_that_commit_at_once_succeeds(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, writer: str
) -> None:
    """Both have found the batch uncommitted and have staged it when the first one commits."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(stream_of(spark, source.put()), sink_of(path, mode, writer), checkpoint)
    copies = [sink_of(path, mode, writer), sink_of(path, mode, writer)]
    reports: list[BatchReport | None] = []
    errors: list[Exception] = []

    def call(sink: Sink, batch: DataFrame, number: int) -> None:
        try:
            sink(batch, number)
            reports.append(sink.last)
        except ConcurrentTransactionException as error:
            errors.append(error)

    def both(batch: DataFrame, number: int) -> None:
        threads = [InheritableThread(target=call, args=(sink, batch, number)) for sink in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    meeting = threading.Barrier(2)
    commit = Transaction.commit

    def together(transaction: Transaction) -> Committed | Superseded:
        meeting.wait(timeout=60)
        return commit(transaction)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", together)
        drain(stream_of(spark, source.put()), both, checkpoint)
    (report,), (_,) = reports, errors
    assert report
    assert report.version == 2
    assert numbers_in(path) == source.numbers
    table = Table.open(str(path))
    assert table.version == 2
    assert data_files(path) == set(table.at().files()["path"].to_pylist())


def test_a_copy_that_commits_while_the_other_one_is_throttled_is_recognised(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the wait the batch is staged on a newer version, whose ledger must be checked again."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(stream_of(spark, source.put()), sink_of(path, "append", "driver"), checkpoint)
    slow = sink_of(path, "append", "driver", throttle=Throttle(max_debt_files=1, max_delay_s=0.1))
    copy = sink_of(path, "append", "driver")

    def function(batch: DataFrame, number: int) -> None:
        def hold(*_: object) -> Brake:
            copy(batch, number)
            return Brake()

        monkeypatch.setattr(slow._parts.back_pressure, "hold", hold)
        slow(batch, number)

    error = refused(stream_of(spark, source.put()), function, checkpoint, ConcurrentTransactionException)
    assert "run only one copy" in str(error)
    assert numbers_in(path) == source.numbers
    assert Table.open(str(path)).version == 2


# --- replays -------------------------------------------------------------------------------------------------------


@each_mode
def test_a_replay_is_skipped_after_its_commit_has_been_cleaned_up(
    spark: SparkSession, source: Input, tmp_path: Path, mode: str
) -> None:
    """The ledger is part of the table's state; it does not need the commit's JSON, which log clean-up removes."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    properties = {"tidelog.maxTransactionTime": "0 seconds"}
    drain(stream_of(spark, source.put(2)), sink_of(path, mode, "driver", properties=properties), checkpoint)
    forget_last_commit(checkpoint)
    table = Table.open(str(path))
    table.set_properties({"user.note": "later"})
    table.checkpoint()
    newest = table.history(1)[0].timestamp
    wait_until(lambda: datetime.now(UTC) > newest, "the newest commit is in the past")
    assert expire(table, older_than=timedelta(0)).earliest_version == 3
    for hint in (path / "_delta_log").glob("*.crc"):
        hint.unlink()
    assert list_segment(table.store).earliest_version == 3
    before = footprint(path)
    sink = sink_of(path, mode, "driver")
    drain(stream_of(spark, source), sink, checkpoint)
    assert sink.last
    assert (sink.last.batch_id, sink.last.skipped) == (1, True)
    assert footprint(path) == before
    drain(stream_of(spark, source.put()), sink_of(path, mode, "driver"), checkpoint)
    assert numbers_in(path) == source.numbers


# --- empty batches ---------------------------------------------------------------------------------------------------


@each_way
def test_an_empty_batch_leaves_no_commit_and_no_file(
    spark: SparkSession, source: Input, tmp_path: Path, mode: str, writer: str
) -> None:
    """Between batches with rows, and at the end; the first one claims the name."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    reports: list[BatchReport | None] = []
    files: list[set[str]] = []
    sink = sink_of(path, mode, writer)

    def function(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        reports.append(sink.last)
        files.append({str(file) for file in path.rglob("*") if file.is_file()})

    drain(stream_of(spark, source.put(4)).where("part in (1, 3)"), function, checkpoint)
    drain(stream_of(spark, source.put()).where("n < 0"), function, checkpoint)
    assert [(report.version, report.rows, report.skipped) for report in reports if report] == [
        (1, 0, False),
        (2, 10, False),
        (None, 0, False),
        (3, 10, False),
        (None, 0, False),
    ]
    assert not [file for file in files[0] if "_delta_log" not in file], "the claim of the name has no file"
    assert files[2] == files[1]
    assert files[4] == files[3]


@each_writer
def test_an_upsert_that_only_deletes_missing_keys_commits_nothing(
    spark: SparkSession, source: Input, tmp_path: Path, writer: str
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    sink = Sink(str(path), mode="upsert", keys=["n"], delete_where="n >= 10", writer=writer)
    drain(source.put().stream(spark), sink, checkpoint)
    before = footprint(path)
    drain(source.put().stream(spark), sink, checkpoint)
    assert sink.last
    assert (sink.last.batch_id, sink.last.version, sink.last.skipped) == (1, None, False)
    assert footprint(path) == before
    # A replay commits nothing either.
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), sink, checkpoint)
    assert footprint(path) == before
