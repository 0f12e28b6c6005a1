"""Compactions whose groups Spark's executors rewrite."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.compaction_daemon.compaction.test_executors import on_disk
from tests.compaction_daemon.support import live_files, memory_table
from tests.log.cleanup.support import AT_ONCE
from tidelog.compaction_daemon import compact
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Table
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, DataFileDamagedError, StoreUnavailableError, WorkerLostError
from tidelog.streaming import SparkExecutor, table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("part", pa.string()), ("x", pa.int64()), ("y", pa.float64()), ("text", pa.string())])
PARTS = ("a", "b", "c")


@pytest.fixture
def made(tmp_path: Path) -> Table:
    """Three partitions of three files each, with dead rows and deletion vectors."""
    made = Table.create(str(tmp_path / "made"), SCHEMA, partition_by=["part"], properties=AT_ONCE)
    chance = random.Random(7)
    for _ in range(3):
        made.insert(
            [
                {"part": part, "x": chance.randrange(100), "y": chance.random(), "text": f"text {chance.randrange(9)}"}
                for part in PARTS
                for _ in range(40)
            ]
        )
    made.delete("x < 15")
    return made


def twin(made: Table) -> Table:
    shutil.copytree(made.path, f"{made.path}.twin")
    return Table.open(f"{made.path}.twin")


def rows_of(one: Table, part: str) -> list[dict[str, Any]]:
    """The rows of a partition in the order of its files."""
    rows: list[dict[str, Any]] = one.refresh().scan(f"part = '{part}'").to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize(
    "arguments",
    [("minor", {}), ("major", {"cluster_by": ["x", "y"], "purge": True})],
    ids=lambda arguments: arguments[0],
)
def test_spark_does_what_this_process_does(
    arguments: tuple[str, dict[str, Any]], made: Table, spark: SparkSession
) -> None:
    level, options = arguments
    here = twin(made)
    changes = made.changes().to_arrow()
    expected = compact(here, level, **options)
    with SparkExecutor(spark) as executor:
        report = compact(made, level, executor=executor, **options)
    assert (report.groups, report.files_removed, report.files_added, report.groups_left) == (3, 9, 3, 0)
    assert (report.versions, report.stopped) == (expected.versions, None)
    for part in PARTS:
        assert rows_of(made, part) == rows_of(here, part)
    assert made.changes().to_arrow().equals(changes), "no row changed"
    # A row map that is wrong would let this delete other rows.
    began = made.begin_at(made.at(version=4))
    began.delete("x > 60").commit()
    here.delete("x > 60")
    for part in PARTS:
        assert rows_of(made, part) == rows_of(here, part)


def test_a_spark_table_compacts(made: Table, spark: SparkSession) -> None:
    rows = [rows_of(made, part) for part in PARTS]
    report = table(spark, made.path).compact("major", where="part <= 'b'", purge=True)
    assert (report.groups, report.files_removed, report.files_added) == (2, 6, 2)
    assert [rows_of(made, part) for part in PARTS] == rows
    assert made.debt().dead_rows > 0, "of c"


# --- failures --------------------------------------------------------------------------------------------------------


def test_an_error_of_a_group_keeps_its_type_and_the_others_are_committed(made: Table, spark: SparkSession) -> None:
    rows = rows_of(made, "a"), rows_of(made, "c")
    damaged = next(add for add in live_files(made) if add.partition_values["part"] == "b")
    path = Path(made.path) / damaged.path
    content = path.read_bytes()
    path.write_bytes(content[:60] + bytes(40) + content[100:])
    with SparkExecutor(spark) as executor, pytest.raises(DataFileDamagedError) as raised:
        compact(made, "minor", executor=executor)
    assert raised.value.file == damaged.path
    assert (rows_of(made, "a"), rows_of(made, "c")) == rows
    assert sorted(str(add.partition_values["part"]) for add in live_files(made)) == ["a", "b", "b", "b", "c"]


def unavailable(writer: DataWriter, *_: object, **__: object) -> MoveGroup:
    raise StoreUnavailableError("the store does not answer", path=writer.store.url)


def broken(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, **named: Any) -> MoveGroup:
    if group.partition_values["part"] == "b":
        raise ZeroDivisionError("a defect of the task")
    return rewrite(writer, schema, group, **named)


def test_nothing_is_committed_if_the_store_does_not_answer(
    made: Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "rewrite", unavailable)
    with SparkExecutor(spark) as executor, pytest.raises(StoreUnavailableError, match="does not answer"):
        compact(made, executor=executor)
    assert made.refresh().version == 4


def test_a_task_that_spark_gives_up_is_reported_and_what_others_finished_is_committed(
    made: Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "rewrite", broken)
    with SparkExecutor(spark) as executor:
        report = compact(made, executor=executor)
        assert (report.groups, report.groups_left) == (2, 1)
        assert report.stopped is not None
        assert report.stopped.startswith("TIDELOG_WORKER_LOST: Spark did not finish a task: ")
        assert "ZeroDivisionError: a defect of the task" in report.stopped
        with pytest.raises(WorkerLostError, match="a defect of the task"):
            compact(made, executor=executor)


def runs_twice(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, **named: Any) -> MoveGroup:
    """As a task that Spark runs again or twice: one run's files are those of the value."""
    rewrite(writer, schema, group, **named)
    return rewrite(writer, schema, group, **named)


def test_the_files_of_a_task_that_ran_twice_are_left_to_vacuum(
    made: Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [rows_of(made, part) for part in PARTS]
    before = on_disk(made)
    monkeypatch.setattr(applying, "rewrite", runs_twice)
    with SparkExecutor(spark) as executor:
        assert compact(made, executor=executor).files_added == 3
    assert len(on_disk(made) - before) == 6
    made.insert([{"part": "d", "x": 1, "y": 0.0, "text": ""}])
    made.vacuum()
    assert on_disk(made) == {add.path for add in live_files(made)}
    assert [rows_of(made, part) for part in PARTS] == rows


# --- the executor ----------------------------------------------------------------------------------------------------


def test_a_table_in_memory_and_what_is_no_session_are_refused(spark: SparkSession) -> None:
    with SparkExecutor(spark) as executor, pytest.raises(ConfigurationError, match="in this process's memory"):
        compact(memory_table(), executor=executor)
    with pytest.raises(ConfigurationError, match="a Spark session is needed, not str"):
        SparkExecutor("local")  # type: ignore[arg-type]


def waits_for(path: str) -> None:
    """Says that it runs, and runs for ever."""
    Path(path).touch()
    signal.pause()


def until_they_run(futures: Sequence[Future[None]], began: Sequence[Path]) -> None:
    while not all(path.exists() for path in began):
        for future in wait(futures, timeout=0.05).done:
            future.result()


def test_a_shutdown_can_cancel_what_runs(spark: SparkSession, tmp_path: Path) -> None:
    executor = SparkExecutor(spark)
    began = [tmp_path / "first", tmp_path / "second"]
    running: list[Future[None]] = [executor.submit(waits_for, str(path)) for path in began]
    until_they_run(running, began)
    executor.shutdown(cancel_futures=True)
    assert all(future.done() for future in running)
    for future in running:
        with pytest.raises(WorkerLostError, match="cancelled"):
            future.result()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(print)


@pytest.mark.full
def test_calls_that_have_not_begun_are_cancelled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.streaming.executors.spark_executor._THREADS", 1)
    executor = SparkExecutor(spark)
    first, second = (executor.submit(waits_for, str(tmp_path / name)) for name in ("first", "second"))
    until_they_run([first], [tmp_path / "first"])
    executor.shutdown(cancel_futures=True)
    with pytest.raises(CancelledError):
        second.result()
    assert not (tmp_path / "second").exists()


def square(number: int, *, plus: int = 0) -> int:
    return number * number + plus


@pytest.mark.full
def test_it_is_an_executor_like_others(spark: SparkSession) -> None:
    call: Callable[..., int] = square
    with SparkExecutor(spark) as executor:
        assert executor.submit(call, 3, plus=1).result() == 10
        assert list(executor.map(call, range(4))) == [0, 1, 4, 9]
