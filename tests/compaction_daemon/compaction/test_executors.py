"""Executors: groups in threads and processes, and processes that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.compaction_daemon.compaction.test_compaction import data_files
from tests.compaction_daemon.support import (
    SCHEMA,
    PassingClock,
    live_files,
    logged_paths,
    memory_table,
    numbers_of,
    put,
)
from tests.log.cleanup.support import AT_ONCE
from tidelog.compaction_daemon import Daemon, DaemonConfig, compact
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.compaction.applying import Conduct
from tidelog.compaction_daemon.compaction.compaction import compact_with
from tidelog.compaction_daemon.planning.failed_groups import FailedGroups
from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.planning.request import CompactionRequest
from tidelog.compaction_daemon.rewriting import rewrite as rewriting
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Table
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConfigurationError, WorkerLostError


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_groups_are_rewritten_by_an_executor(pool: Callable[[int], Executor], tmp_path: Path) -> None:
    tables = [Table.create(str(tmp_path / name), SCHEMA, partition_by=["part"]) for name in ("alone", "pooled")]
    for table in tables:
        for part in "abc":
            put(table, 1, 2, part=part)
            put(table, 3, part=part)
    with pool(2) as executor:
        alone, pooled = compact(tables[0], "major"), compact(tables[1], "major", executor=executor)
    assert (pooled.groups, pooled.files_removed, pooled.files_added) == (3, 6, 3)
    assert pooled == replace(alone, bytes_written=pooled.bytes_written, bytes_read=pooled.bytes_read)
    assert numbers_of(tables[1]) == numbers_of(tables[0])


def test_a_group_that_fails_in_an_executor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table()
    for part in "abc":
        put(table, 1, part=part)
        put(table, 2, part=part)

    def fails_on_b(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, **named: Any) -> MoveGroup:
        if group.partition_values["part"] == "b":
            raise ZeroDivisionError
        return rewrite(writer, schema, group, **named)

    monkeypatch.setattr(applying, "rewrite", fails_on_b)
    with ThreadPoolExecutor(3) as executor, pytest.raises(ZeroDivisionError):
        compact(table, "major", executor=executor)
    assert sorted(add.partition_values["part"] or "" for add in live_files(table)) == ["a", "b", "b", "c"]
    assert data_files(table) == logged_paths(table)


def test_an_unsuitable_executor_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a concurrent\.futures\.Executor, not str"):
        compact(memory_table(), "major", executor="spark")  # type: ignore[arg-type]
    with ProcessPoolExecutor(1) as executor, pytest.raises(ConfigurationError, match="in this process's memory"):
        compact(memory_table(), executor=executor)


def test_a_daemon_takes_an_executor_or_what_makes_one() -> None:
    for wrong in ("spark", lambda: "spark"):
        with pytest.raises(ConfigurationError, match=r"must be a concurrent\.futures\.Executor, not str"):
            Daemon([memory_table()], executor=wrong)  # type: ignore[arg-type]
    (step,) = Daemon([memory_table_with_debt()], executor=lambda: ProcessPoolExecutor(1)).step().tables
    assert isinstance(step.error, ConfigurationError)
    assert "in this process's memory" in step.error.message


def memory_table_with_debt() -> Table:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    return table


# --- a process that is killed ----------------------------------------------------------------------------------------


def killed_in_b(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, **named: Any) -> MoveGroup:
    """Rewrites, but in the partition b dies as if the system had run out of memory, once the files are written."""
    if group.partition_values["part"] == "b":
        with patch.object(rewriting, "verify", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
            return rewrite(writer, schema, group, **named)
    return rewrite(writer, schema, group, **named)


def on_disk(table: Table) -> set[str]:
    folder = Path(table.path)
    return {str(path.relative_to(folder)) for path in folder.rglob("part-*.parquet")}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three partitions, each with two files that belong together."""
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"], properties=AT_ONCE)
    for part in "abc":
        put(table, 1, 2, part=part)
        put(table, 3, part=part)
    return table


def test_what_was_finished_before_a_process_was_killed_is_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbers_of(table)
    monkeypatch.setattr(applying, "rewrite", killed_in_b)
    with ProcessPoolExecutor(1) as pool:
        report = compact(table, "major", executor=pool)
    assert (report.groups, report.groups_left, report.files_removed) == (1, 2, 2)
    assert report.stopped is not None
    assert report.stopped.startswith("TIDELOG_WORKER_LOST: a process that rewrote files was killed")
    left = on_disk(table) - logged_paths(table)
    assert len(left) == 1, "the file that the killed process had written"
    assert [len(live_files(table)), numbers_of(table)] == [5, rows]
    monkeypatch.undo()
    with ProcessPoolExecutor(1) as pool:
        report = compact(table, "major", executor=pool)
    assert (report.groups, report.groups_left, report.stopped) == (2, 0, None)
    assert numbers_of(table) == rows
    vacuumed = table.vacuum()
    assert left < set(vacuumed.files)
    assert on_disk(table) == {add.path for add in live_files(table)}
    assert numbers_of(table) == rows


def test_a_killed_process_is_an_error_if_nothing_was_finished(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    version, rows = table.version, numbers_of(table)
    monkeypatch.setattr(applying, "rewrite", killed_in_b)
    with ProcessPoolExecutor(1) as pool:
        with pytest.raises(WorkerLostError, match="compact again with a new pool"):
            compact(table, "major", where="part > 'a'", executor=pool)
        with pytest.raises(WorkerLostError):
            compact(table, "major", executor=pool)
    assert table.refresh().version == version
    assert numbers_of(table) == rows


def test_a_daemon_goes_on_with_a_new_pool(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, pools = numbers_of(table), []

    def pool() -> ProcessPoolExecutor:
        pools.append(ProcessPoolExecutor(1))
        return pools[-1]

    monkeypatch.setattr(applying, "rewrite", killed_in_b)
    daemon = Daemon([table], executor=pool, config=DaemonConfig(major=False))
    (step,) = daemon.step().tables
    assert step.compaction.stopped is not None
    monkeypatch.undo()
    (step,) = daemon.step().tables
    assert (step.error, step.compaction.stopped, len(pools)) == (None, None, 2)
    assert [len(live_files(table.refresh())), numbers_of(table)] == [3, rows]
    for each in pools:
        each.shutdown()


def test_a_daemon_finds_the_group_that_kills_its_workers(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way with others, so each of them is tried alone once, after those that were not."""
    rows, clock = numbers_of(table), PassingClock()
    monkeypatch.setattr(applying, "rewrite", killed_in_b)
    monkeypatch.setattr(applying, "MAX_RUNNING", 2)
    pools = []

    def pool() -> ProcessPoolExecutor:
        pools.append(ProcessPoolExecutor(1))
        return pools[-1]

    daemon = Daemon([table.path], executor=pool, config=DaemonConfig(major=False), clock=clock)
    for _ in range(4):
        daemon.step()
        clock.pass_s(60)
    assert sorted(add.partition_values["part"] or "" for add in live_files(table)) == ["a", "b", "b", "c"]
    (status,) = daemon.status().tables
    assert (status.error, status.left_alone and status.left_alone.groups) == (None, 1)
    assert status.left_alone is not None
    assert status.left_alone.error_code == "TIDELOG_WORKER_LOST"
    for part in "ac":
        put(table, 4, part=part)
    (step,) = daemon.step().tables
    assert (step.error, step.compaction.groups) == (None, 2), "the others are compacted as ever"
    monkeypatch.undo()
    clock.pass_s(300)
    assert daemon.step().did_anything
    assert (len(live_files(table)), daemon.status().tables[0].left_alone) == (3, None)
    assert len(numbers_of(table)) == len(rows) + 2
    for each in pools:
        each.shutdown()


class Noting(ThreadPoolExecutor):
    """Notes for each call the partition of its group, and how many calls were running then."""

    def __init__(self) -> None:
        super().__init__(3)
        self.calls: list[tuple[str | None, int]] = []
        self._begun: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append((args[-1].partition_values["part"], sum(not each.done() for each in self._begun)))
        self._begun.append(super().submit(fn, *args, **kwargs))
        return self._begun[-1]


def test_a_group_that_may_have_cost_a_worker_comes_last_and_alone(table: Table) -> None:
    failed = FailedGroups()
    for part in "ab":
        files = [add.path for add in live_files(table) if add.partition_values["part"] == part]
        failed.suspect(files, WorkerLostError("killed"), 0.0)
    with Noting() as executor:
        report = compact_with(table, CompactionRequest(), Conduct(executor, failed=failed))
    assert report.groups == 3
    assert executor.calls == [("c", 0), ("a", 0), ("b", 0)]


def test_a_pool_that_was_broken_before_accuses_no_group(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "rewrite", killed_in_b)
    with ProcessPoolExecutor(1) as pool:
        with pytest.raises(WorkerLostError):
            compact(table, where="part = 'b'", executor=pool)
        conduct = Conduct(pool)
        with pytest.raises(WorkerLostError):
            compact_with(table, CompactionRequest(), conduct)
    assert len(conduct.failed) == 0
