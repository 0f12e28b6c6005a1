"""Once, in every mode and by either writer: two live copies, replays after a clean-up of the log, empty batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import Input, OtherProcesses, drain, footprint, refused
from tidelog.compaction_daemon import expire
from tidelog.log import Committed, Superseded, Table, Transaction
from tidelog.log.errors import ConcurrentTransactionException
from tidelog.log.state.segment import list_segment
from tidelog.streaming import BatchReport, Sink, Throttle
from tidelog.streaming.sink import claims
from tidelog.streaming.sink.throttle import Brake

pytestmark = pytest.mark.spark

MODES = ("append", "upsert", "overwrite-partitions")
each_mode = pytest.mark.parametrize("mode", MODES)
each_writer = pytest.mark.parametrize("writer", ["driver", "spark"])


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def sink_of(path: Path, mode: str, writer: str, **others: Any) -> Sink:
    keys = ["n"] if mode == "upsert" else []
    return Sink(str(path), mode=mode, writer=writer, keys=keys, partition_by=["part"], **others)


def stream_of(spark: SparkSession, source: Input, *more: str) -> DataFrame:
    """File k is a partition of its own."""
    return source.stream(spark).selectExpr("n", "n div 10 as part", *more)


def numbers_of(path: Path) -> list[int]:
    return sorted(Table.open(str(path)).scan().to_arrow()["n"].to_pylist())


def data_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a crash does between the sink's return and Spark's own commit."""
    number = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)


# --- two live copies of one query ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies here would run in several processes, none of which sees another one's memory."""
    monkeypatch.setattr(claims, "_claims", OtherProcesses())


def first_commit_after(action: Callable[[], None], patched: pytest.MonkeyPatch) -> None:
    """Let `action` happen when a batch is staged and about to be committed, at the first commit from now on."""
    commit, waiting = Transaction.commit, [action]

    def later(transaction: Transaction) -> Committed | Superseded:
        if waiting:
            waiting.pop()()
        return commit(transaction)

    patched.setattr(Transaction, "commit", later)


def before_the_commit(
    sink: Sink, copy: Sink, patched: pytest.MonkeyPatch, *, doomed: int
) -> Callable[[DataFrame, int], None]:
    """A batch function whose sink finds at the commit of one batch that a copy of the query was faster."""

    def function(batch: DataFrame, number: int) -> None:
        def copy_commits() -> None:
            copy(batch, number)

        if number == doomed:
            first_commit_after(copy_commits, patched)
        sink(batch, number)

    return function


@each_mode
@each_writer
def test_the_copy_that_commits_second_fails_and_leaves_nothing(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, writer: str
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(stream_of(spark, source.put()), sink_of(path, mode, writer), checkpoint)
    source.put()
    with monkeypatch.context() as patched:
        sinks = sink_of(path, mode, writer), sink_of(path, mode, writer)
        loser = before_the_commit(*sinks, patched, doomed=1)
        error = refused(stream_of(spark, source), loser, checkpoint, ConcurrentTransactionException)
    assert "another copy" in str(error) or "same application" in str(error) or "/default" in str(error)
    assert numbers_of(path) == source.numbers
    table = Table.open(str(path))
    assert table.version == 2
    # The loser's files are gone, as it is proven that no commit names them.
    assert data_files(path) == set(table.at().files()["path"].to_pylist())
    drain(stream_of(spark, source.put()), sink_of(path, mode, writer), checkpoint)
    assert numbers_of(path) == source.numbers
    assert Table.open(str(path)).version == 3


@each_mode
def test_a_copy_is_known_where_another_conflict_asks_for_a_second_try(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Both copies bring the same new column, so that the loser first hears of a change of the schema."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    evolving = {"schema_evolution": True}
    drain(stream_of(spark, source.put()), sink_of(path, mode, "driver", **evolving), checkpoint)
    wider = stream_of(spark, source.put(), "n + 1 as more")
    with monkeypatch.context() as patched:
        sinks = sink_of(path, mode, "driver", **evolving), sink_of(path, mode, "driver", **evolving)
        loser = before_the_commit(*sinks, patched, doomed=1)
        error = refused(wider, loser, checkpoint, ConcurrentTransactionException)
    assert "let only one copy run" in str(error)
    assert numbers_of(path) == source.numbers
    assert Table.open(str(path)).version == 2


@each_mode
@each_writer
def test_of_two_copies_at_once_one_commits(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, writer: str
) -> None:
    """Both have found that the batch is not committed, and both have staged it, when the first of them commits."""
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
    assert numbers_of(path) == source.numbers
    table = Table.open(str(path))
    assert table.version == 2
    assert data_files(path) == set(table.at().files()["path"].to_pylist())


def test_a_copy_that_commits_while_the_other_is_throttled(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the wait the batch is staged on a newer version, which has to be asked again."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    drain(stream_of(spark, source.put()), sink_of(path, "append", "driver"), checkpoint)
    slow = sink_of(path, "append", "driver", throttle=Throttle(max_debt_files=1, max_delay_s=0.1))
    copy = sink_of(path, "append", "driver")

    def function(batch: DataFrame, number: int) -> None:
        def meanwhile(*_: object) -> Brake:
            copy(batch, number)
            return Brake()

        monkeypatch.setattr(slow._parts.back_pressure, "hold", meanwhile)
        slow(batch, number)

    error = refused(stream_of(spark, source.put()), function, checkpoint, ConcurrentTransactionException)
    assert "let only one copy run" in str(error)
    assert numbers_of(path) == source.numbers
    assert Table.open(str(path)).version == 2


# --- replays -------------------------------------------------------------------------------------------------------


@each_mode
def test_a_replay_is_skipped_when_the_log_no_longer_has_the_commit(
    spark: SparkSession, source: Input, tmp_path: Path, mode: str
) -> None:
    """The ledger lies in the table's state, not in the commit's JSON, which a clean-up of the log takes."""
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    properties = {"tidelog.maxTransactionTime": "0 seconds"}
    drain(stream_of(spark, source.put(2)), sink_of(path, mode, "driver", properties=properties), checkpoint)
    forget_last_commit(checkpoint)
    table = Table.open(str(path))
    table.set_properties({"user.note": "later"})
    table.checkpoint()
    time.sleep(0.01)
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
    assert numbers_of(path) == source.numbers


# --- empty batches ---------------------------------------------------------------------------------------------------


@each_mode
@each_writer
def test_an_empty_batch_leaves_no_commit_and_no_file(
    spark: SparkSession, source: Input, tmp_path: Path, mode: str, writer: str
) -> None:
    """Before the table is there, between others and at the end."""
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
        (None, 0, False),
        (1, 10, False),
        (None, 0, False),
        (2, 10, False),
        (None, 0, False),
    ]
    assert files[0] == set()
    assert files[2] == files[1]
    assert files[4] == files[3]


@each_writer
def test_an_upsert_whose_rows_only_delete_what_is_not_there_changes_nothing(
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
    # Run again it is as empty as before.
    forget_last_commit(checkpoint)
    drain(source.put().stream(spark), sink, checkpoint)
    assert footprint(path) == before
