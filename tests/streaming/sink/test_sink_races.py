"""Other writers commit while a batch is in progress, between the sink's begin and its commit."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.support import NUMBERS, BatchFunction, Input, NoClaims, drain, numbers_in, refused
from tidelog.compaction_daemon import CompactionReport, compact
from tidelog.log import Table
from tidelog.log.errors import ConcurrentTransactionException, PathNotWritableError, TableReplacedError
from tidelog.streaming import Sink
from tidelog.streaming.sink import batch as sink_batch

pytestmark = pytest.mark.spark


class InterruptedBatch:
    """A batch that runs `action` while it is collected: after the sink's begin and before its commit."""

    def __init__(self, batch: DataFrame, action: Callable[[], object]) -> None:
        self._batch = batch
        self._action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def _collect_as_arrow(self) -> Any:
        rows = self._batch._collect_as_arrow()  # type: ignore[operator]
        self._action()
        return rows


def during_batch(sink: BatchFunction, action: Callable[[DataFrame, int], object]) -> BatchFunction:
    """A batch function that runs the sink, and `action` while the sink works."""

    def function(batch: DataFrame, number: int) -> None:
        sink(cast("DataFrame", InterruptedBatch(batch, lambda: action(batch, number))), number)

    return function


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def test_a_batch_that_loses_a_race_is_rebased(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    Table.create(path, NUMBERS)
    sink = Sink(path, writer="driver")
    rebased: list[tuple[int, ...]] = []

    def other_commits(_: DataFrame, number: int) -> None:
        for k in range(number):
            Table.open(path).insert([{"n": -(10 * number + k)}])

    def function(batch: DataFrame, number: int) -> None:
        during_batch(sink, other_commits)(batch, number)
        assert sink.last
        rebased.append(sink.last.rebased_over)

    drain(source.put(3).stream(spark), function, tmp_path / "cp")
    assert rebased == [(), (2,), (4, 5)]
    assert numbers_in(path) == [-21, -20, -10, *source.numbers]
    assert Table.open(path).version == 6


def test_a_batch_and_a_concurrent_compaction_both_commit(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    sink = Sink(path, writer="driver")
    drain(source.put(2).stream(spark), sink, tmp_path / "cp")
    compactions: list[CompactionReport] = []
    compacting = during_batch(sink, lambda *_: compactions.append(compact(path)))
    drain(source.put().stream(spark), compacting, tmp_path / "cp")
    assert [report.version for report in compactions] == [3]
    assert sink.last
    assert (sink.last.version, sink.last.rebased_over) == (4, (3,))
    assert numbers_in(path) == source.numbers
    assert Table.open(path).at().num_files == 2


def another_copy(path: str) -> Callable[[DataFrame, int], None]:
    """A second live copy of the same query: it commits the same batch with its own sink."""

    def commit(batch: DataFrame, number: int) -> None:
        Sink(path, writer="driver")(batch, number)

    return commit


@pytest.mark.parametrize("table_exists", [True, False])
def test_only_one_of_two_live_copies_of_a_query_commits(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_exists: bool
) -> None:
    monkeypatch.setattr(sink_batch, "_claims", NoClaims())
    path, checkpoint = str(tmp_path / "table"), tmp_path / "cp"
    source.put()
    if table_exists:
        drain(source.stream(spark), Sink(path, writer="driver"), checkpoint)
        source.put()
    loser = during_batch(Sink(path, writer="driver"), another_copy(path))
    error = refused(source.stream(spark), loser, checkpoint, ConcurrentTransactionException)
    assert numbers_in(path) == source.numbers
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    assert query_id in str(error)
    # When Spark runs the batch again, it is skipped.
    drain(source.put().stream(spark), Sink(path, writer="driver"), checkpoint)
    assert numbers_in(path) == source.numbers


def test_two_queries_cannot_claim_a_new_name_at_once(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    Table.create(path, NUMBERS)
    rival = Input(tmp_path / "rival")
    rival.count = 10

    def rival_runs(*_: object) -> None:
        # A stream started in the batch function's own thread would inherit that thread's properties.
        thread = threading.Thread(
            target=drain, args=(rival.put().stream(spark), Sink(path, writer="driver"), tmp_path / "cp-2")
        )
        thread.start()
        thread.join()

    error = refused(
        source.put().stream(spark),
        during_batch(Sink(path, writer="driver"), rival_runs),
        tmp_path / "cp-1",
        ConcurrentTransactionException,
    )
    assert "tidelog/sink/default" in str(error)
    assert numbers_in(path) == list(range(100, 110))


def test_a_sink_writes_to_a_table_that_another_query_creates_first(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")

    def another_creates(*_: object) -> None:
        Table.create(path, NUMBERS).insert([{"n": -1}])

    sink = Sink(path, writer="driver")
    drain(source.put().stream(spark), during_batch(sink, another_creates), tmp_path / "cp")
    assert numbers_in(path) == [-1, *source.numbers]


@pytest.mark.parametrize("commits", full_but([1], [0, 1, 2, 5]))
def test_a_table_that_was_replaced_under_a_running_stream_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, commits: int
) -> None:
    """The new table can have fewer versions than the old one, as many, or more."""
    path = tmp_path / "table"
    sink = Sink(str(path))

    def function(batch: DataFrame, number: int) -> None:
        if number == 2:
            shutil.rmtree(path)
            table = Table.create(str(path), NUMBERS)
            for k in range(commits):
                table.insert([{"n": -k}])
        sink(batch, number)

    error = refused(source.put(3).stream(spark), function, tmp_path / "cp", TableReplacedError)
    assert "has been replaced by another one" in str(error)
    assert "open it again" in str(error)
    assert Table.open(str(path)).version == commits


def test_after_a_read_only_disk_a_restart_commits_the_batch(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    drain(source.put().stream(spark), Sink(path, writer="driver"), tmp_path / "cp")
    link = os.link

    def read_only(source_path: str, target: str) -> None:
        if str(target).endswith(".json"):
            raise OSError(30, "Read-only file system")
        link(source_path, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", read_only)
        error = refused(source.put().stream(spark), Sink(path, writer="driver"), tmp_path / "cp", PathNotWritableError)
    assert "mounted read-only" in str(error)
    drain(source.stream(spark), Sink(path, writer="driver"), tmp_path / "cp")
    assert numbers_in(path) == source.numbers
