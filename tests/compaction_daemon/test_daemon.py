"""The daemon's loop, driven step by step."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import SCHEMA, memory_table, numbers_of, put
from tidelog.compaction_daemon import Daemon, DaemonConfig, StepReport
from tidelog.compaction_daemon import daemon as daemon_module
from tidelog.log import Table
from tidelog.log.errors import (
    CommitContentionError,
    ConcurrentTransactionException,
    ConfigurationError,
    CorruptLogError,
    RetryableError,
    TableNotFoundError,
)
from tidelog.log.state.commits import read_commit
from tidelog.log.system import System


class ManualClock(System):
    """A clock that tests move."""

    seconds = 100.0

    def monotonic_s(self) -> float:
        return self.seconds


def disk_table(path: Path) -> Table:
    return Table.create(str(path), SCHEMA, partition_by=["part"])


def test_a_step_compacts_each_table_once() -> None:
    tables = [memory_table(), memory_table()]
    for table in tables:
        put(table, 1)
        put(table, 2)
    seen: list[StepReport] = []
    daemon = Daemon([tables[0], tables[1].path], on_step=seen.append)
    report = daemon.step()
    assert [(step.path, step.version, step.compaction.version) for step in report.tables] == [
        (table.path, 3, 3) for table in tables
    ]
    assert report.did_anything
    assert not daemon.step().did_anything
    assert [entry.did_anything for entry in seen] == [True, False]
    put(tables[1], 3)
    put(tables[1], 4)
    third = daemon.step()
    assert [step.did_anything for step in third.tables] == [False, True]
    assert [numbers_of(table) for table in tables] == [[1, 2], [1, 2, 3, 4]]


@pytest.mark.parametrize("given", ["path", "table"])
def test_the_daemons_clock_reaches_its_compactions(given: str, tmp_path: Path) -> None:
    table = disk_table(tmp_path / "table")
    put(table, 1)
    put(table, 2)
    late = datetime(2100, 1, 1, tzinfo=UTC)

    class Late(System):
        def now_ms(self) -> int:
            return int(late.timestamp() * 1000)

    Daemon([table.path if given == "path" else table], clock=Late()).step()
    (compacted,) = table.refresh().history(limit=1)
    assert compacted.timestamp == late
    commit = read_commit(table.store, compacted.version)
    assert {remove.deletion_timestamp for remove in commit.removes} == {int(late.timestamp() * 1000)}


def test_a_step_waits_for_growth() -> None:
    table = memory_table()
    put(table, *range(20_000))
    put(table, 1)
    assert not Daemon([table]).step().did_anything
    assert Daemon([table], config=DaemonConfig(growth=1.0)).step().did_anything


def test_checkpoints_come_at_the_table_s_interval() -> None:
    table = memory_table(**{"delta.checkpointInterval": 6})
    daemon = Daemon([table])
    checkpointed = []
    for number in range(12):
        put(table, number)
        checkpointed.append(daemon.step().tables[0].checkpointed)
        assert Table.open(table.path).commits_since_checkpoint() <= 6
    assert 2 <= sum(checkpointed) <= 4
    assert sorted(numbers_of(Table.open(table.path))) == list(range(12))


def test_a_step_with_only_a_checkpoint_did_something() -> None:
    table = memory_table(**{"delta.checkpointInterval": 2})
    put(table, 1)
    (step,) = Daemon([table]).step().tables
    assert (step.checkpointed, step.compaction.did_anything, step.did_anything) == (True, False, True)


def test_a_failing_table_does_not_stop_the_rest(tmp_path: Path) -> None:
    sick, well = disk_table(tmp_path / "sick"), disk_table(tmp_path / "well")
    clock = ManualClock()
    daemon = Daemon([sick, well], config=DaemonConfig(interval_s=1.0), clock=clock)
    shutil.move(sick.path, tmp_path / "away")
    put(well, 1)
    put(well, 2)
    report = daemon.step()
    assert isinstance(report.tables[0].error, TableNotFoundError)
    assert report.tables[0].version is None
    assert report.tables[1].compaction.did_anything
    assert report.tables[1].error is None

    # The sick one is skipped, each time for longer.
    looked = []
    for _ in range(40):
        clock.seconds += 1
        looked.append(sick.path in {step.path for step in daemon.step().tables})
    gaps = [number for number, due in enumerate(looked) if due]
    assert 3 <= len(gaps) <= 6
    assert gaps[-1] - gaps[-2] > gaps[1] - gaps[0]

    # It is always tried again: once its store is back, it is compacted as before.
    shutil.move(tmp_path / "away", sick.path)
    put(sick, 1)
    put(sick, 2)
    clock.seconds += 600
    report = daemon.step()
    assert [step.error for step in report.tables] == [None, None]
    assert report.tables[0].compaction.did_anything
    clock.seconds += 1
    assert len(daemon.step().tables) == 2


def test_a_failing_table_is_skipped_for_a_bounded_time(tmp_path: Path) -> None:
    sick, clock = disk_table(tmp_path / "sick"), ManualClock()
    daemon = Daemon([sick], clock=clock)
    shutil.rmtree(sick.path)
    for _ in range(40):
        assert daemon.step().tables
        clock.seconds += 300


@pytest.mark.parametrize(
    ("error", "reported", "level"),
    [
        (OSError(5, "Input/output error"), RetryableError, logging.ERROR),
        (CorruptLogError("damaged", advice="restore it", path="x"), CorruptLogError, logging.ERROR),
        (CommitContentionError("busy", path="x", attempts=1, head_version=1), CommitContentionError, logging.ERROR),
        (
            ConcurrentTransactionException("lost", path="x", base_version=1, winning_version=2),
            ConcurrentTransactionException,
            logging.INFO,
        ),
    ],
)
def test_errors_are_reported_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, reported: type, level: int
) -> None:
    table = memory_table()

    def fails(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(daemon_module, "compact_once", fails)
    with caplog.at_level(logging.INFO):
        (step,) = Daemon([table]).step().tables
    assert type(step.error) is reported
    assert not step.did_anything
    (record,) = [record for record in caplog.records if record.name == "tidelog.compaction_daemon.daemon"]
    assert record.levelno == level
    assert table.path in record.getMessage()


def test_an_unexpected_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(daemon_module, "compact_once", fails)
    with pytest.raises(ZeroDivisionError):
        Daemon([memory_table()]).step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Daemon([]), "a daemon needs a list of tables; give a list with at least one path"),
        (lambda: Daemon("/data/t"), "a daemon needs a list of tables"),
        (lambda: DaemonConfig(interval_s=0), "interval_s is 0; give seconds above zero"),
        (lambda: DaemonConfig(interval_s=-1.0), "give seconds above zero"),
        (lambda: DaemonConfig(growth=0.5), "growth is 0.5; give 1 or more"),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


def test_tables_must_exist(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        Daemon([str(tmp_path / "nothing")])


def test_stop_from_a_thread_ends_run_after_the_current_step() -> None:
    table = memory_table()
    steps = []

    def on_step(report: StepReport) -> None:
        steps.append(report)
        if len(steps) == 3:
            threading.Thread(target=daemon.stop).start()

    daemon = Daemon([table], config=DaemonConfig(interval_s=0.2), on_step=on_step)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    daemon.run()
    assert 3 <= len(steps) <= 4
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_finishes_the_step_in_which_a_signal_arrives(number: signal.Signals) -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    seen: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        seen.append(report)
        os.kill(os.getpid(), number)

    Daemon([table], config=DaemonConfig(interval_s=3600), on_step=on_step).run()
    assert [report.did_anything for report in seen] == [True]
    assert numbers_of(table) == [1, 2]


# Runs a daemon that gets its signal at the worst moment: while it is inside `threading`, with a lock held.
_SIGNAL_INSIDE_A_WAIT = """
import signal, sys, threading
from tidelog.compaction_daemon import Daemon, DaemonConfig
from tidelog.log import Table
import pyarrow as pa

Table.create("memory://t", pa.schema([("n", pa.int64())]))
steps = []

def interrupt(frame, event, argument):
    if frame.f_code is threading.Condition.wait.__code__:
        sys.settrace(None)
        signal.raise_signal(signal.SIGTERM)

def on_step(report):
    steps.append(report)
    if len(steps) == 2:
        signal.raise_signal(signal.SIGTERM)
    sys.settrace(interrupt)

Daemon(["memory://t"], config=DaemonConfig(interval_s=0.01), on_step=on_step).run()
"""


def test_a_signal_during_the_sleep_does_not_block() -> None:
    done = subprocess.run([sys.executable, "-c", _SIGNAL_INSIDE_A_WAIT], timeout=60, check=False)
    assert done.returncode == 0


def test_run_does_not_sleep_while_there_is_work() -> None:
    """With an hour of sleep after an idle step, only busy steps can follow each other."""
    table = memory_table()
    steps = 0

    def on_step(_: StepReport) -> None:
        nonlocal steps
        steps += 1
        if steps < 4:
            put(table, 2 * steps)
            put(table, 2 * steps + 1)
        else:
            daemon.stop()

    put(table, 0)
    put(table, 1)
    daemon = Daemon([table], config=DaemonConfig(interval_s=3600, growth=1.0), on_step=on_step)
    daemon.run()
    assert steps == 4
