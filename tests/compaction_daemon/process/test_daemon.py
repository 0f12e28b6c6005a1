"""The daemon's loop, driven step by step."""

from __future__ import annotations

import logging
import shutil
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import (
    SCHEMA,
    ManualClock,
    leave_checkpoints_to_the_daemon,
    memory_table,
    numbers_of,
    put,
)
from tidelog.compaction_daemon import Daemon, DaemonConfig, StepReport, TableSource, TableState
from tidelog.compaction_daemon.compaction.compaction import apply_fresh
from tidelog.compaction_daemon.process import table_step
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
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import System


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


def test_checkpoints_come_at_the_table_s_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_checkpoints_to_the_daemon(monkeypatch)
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
    put(table, 1)
    put(table, 2)

    def fails(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(table_step, "apply_fresh", fails)
    with caplog.at_level(logging.INFO):
        (step,) = Daemon([table]).step().tables
    assert type(step.error) is reported
    assert not step.did_anything
    (record,) = [
        record for record in caplog.records if record.name == "tidelog.compaction_daemon.process.watched_tables"
    ]
    assert record.levelno == level
    assert table.path in record.getMessage()


def test_an_unexpected_error_of_one_table_does_not_stop_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sick, well = memory_table(), memory_table()
    for table in (sick, well):
        put(table, 1)
        put(table, 2)
    original = apply_fresh

    def fails(table: Table, *arguments: Any, **named: Any) -> Any:
        if table.path == sick.path:
            raise ZeroDivisionError
        return original(table, *arguments, **named)

    monkeypatch.setattr(table_step, "apply_fresh", fails)
    report = Daemon([sick, well]).step()
    assert "ZeroDivisionError" in str(report.tables[0].error)
    assert report.tables[1].compaction.did_anything
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_text is not None
    assert "ZeroDivisionError" in record.exc_text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Daemon([]), "a daemon needs a list of tables; give a list with at least one path"),
        (lambda: Daemon("/data/t"), "a daemon needs a list of tables"),
        (lambda: DaemonConfig(interval_s=0), "interval_s is 0; give a number from 0.01"),
        (lambda: DaemonConfig(interval_s=-1.0), "interval_s is -1.0; give a number from 0.01"),
        (lambda: DaemonConfig(interval_s=1e10), "interval_s is 10000000000.0; give a number from 0.01 up to 86400"),
        (lambda: DaemonConfig(bytes_per_hour=0), "bytes_per_hour is 0; give a number from 1048576"),
        (lambda: DaemonConfig(growth=0.5), "growth is 0.5; give a number from 1"),
        (lambda: DaemonConfig(compaction_bytes=10**5000), "compaction_bytes is a whole number of many digits"),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


def test_a_table_may_come_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    daemon = Daemon([str(tmp_path / "later")], clock=clock)
    for _ in range(3):
        (step,) = daemon.step().tables
        assert isinstance(step.error, TableNotFoundError)
        assert step.state is TableState.MISSING
        clock.seconds += 60
    assert len(caplog.records) == 1
    table = disk_table(tmp_path / "later")
    put(table, 1)
    put(table, 2)
    clock.seconds += 60
    assert daemon.step().tables[0].compaction.did_anything
    assert daemon.status().tables[0].state is TableState.WORKING


def test_a_table_that_was_replaced_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "table"
    daemon = Daemon([disk_table(path)])
    daemon.step()
    Table.drop(str(path))
    table = disk_table(path)
    put(table, 1)
    put(table, 2)
    with caplog.at_level(logging.INFO):
        (step,) = daemon.step().tables
    assert step.error is None
    assert step.compaction.did_anything
    assert daemon.status().tables[0].table_id == table.id
    assert [record.exc_text for record in caplog.records] == [None, None]


def test_a_table_without_news_is_looked_at_less_and_less_often_by_run() -> None:
    """Waits are on the clock; only looks of `run` follow the schedule."""
    quiet, clock = memory_table(), ManualClock()
    daemon = Daemon([quiet], config=DaemonConfig(interval_s=1.0, idle_interval_s=8.0), clock=clock)
    looks = []
    for _ in range(40):
        clock.seconds += 1
        if daemon._due():
            daemon._round(daemon._due())
            looks.append(clock.seconds)
    assert [after - before for before, after in pairwise(looks)] == [1, 1, 2, 4, 8, 8, 8]


def test_bytes_per_hour_are_a_limit_for_all_tables_together() -> None:
    tables, clock = [memory_table() for _ in range(3)], ManualClock()
    for table in tables:
        put(table, *range(60_000))
        put(table, *range(60_000))
    daemon = Daemon(tables, config=DaemonConfig(bytes_per_hour=2**20), clock=clock)
    size = tables[0].debt().small_bytes
    assert size < 2**20 < 2 * size
    report = daemon.step()
    assert [step.compaction.did_anything for step in report.tables] == [True, True, False]
    assert daemon.status().bytes_last_hour == 2 * size
    # What is left is not forgotten, although the table does not change.
    for _ in range(3):
        clock.seconds += 1000
        assert not daemon.step().did_anything
    clock.seconds += 1000
    assert [step.compaction.did_anything for step in daemon.step().tables] == [False, False, True]


def test_the_status_says_what_was_done(tmp_path: Path) -> None:
    table = disk_table(tmp_path / "table")
    put(table, 1)
    put(table, 2)
    daemon = Daemon([table, str(tmp_path / "nothing")])
    before = daemon.status()
    assert [status.state for status in before.tables] == [TableState.NEW, TableState.NEW]
    assert (before.steps, before.last_step) == (0, None)
    daemon.step()
    after = daemon.status()
    missing, found = after.tables
    assert (missing.state, missing.error_code, missing.version) == (TableState.MISSING, "TIDELOG_TABLE_NOT_FOUND", None)
    assert (found.state, found.error, found.version, found.table_id) == (TableState.WORKING, None, 3, table.id)
    assert [sample.debt.small_files for sample in found.debt] == [2, 1]
    assert (found.totals.compactions, found.totals.files_removed, found.totals.files_added) == ({"minor": 1}, 2, 1)
    assert found.totals.bytes_read > 0
    assert missing.totals.failures == 0  # it may be one before its first batch
    assert (after.steps, after.stalled) == (1, False)


def test_an_error_is_logged_once_until_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, clock = disk_table(tmp_path / "table"), ManualClock()
    put(table, 1)
    daemon = Daemon([table.path], clock=clock)
    commit = Path(table.path, "_delta_log", f"{1:020}.json")
    content = commit.read_bytes()
    commit.write_bytes(b"{not a commit")
    for _ in range(5):
        assert daemon.step().tables[0].error is not None
        clock.seconds += 600
    (record,) = caplog.records
    assert record.exc_text is None
    caplog.clear()
    commit.write_bytes(content)
    with caplog.at_level(logging.INFO):
        assert daemon.step().tables[0].error is None
    assert [record.getMessage() for record in caplog.records] == [f"{table.path}: works again"]


def test_other_settings_and_tables_are_taken_up_after_the_current_step(tmp_path: Path) -> None:
    kept, gone, new = (disk_table(tmp_path / name) for name in ("kept", "gone", "new"))
    for table in (kept, new):
        put(table, 1)
        put(table, 2)
    reports: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        reports.append(report)
        if len(reports) == 1:
            daemon.reconfigure(DaemonConfig(growth=1.0), [kept.path, new.path])
        else:
            daemon.stop()

    daemon = Daemon([kept.path, gone.path], config=DaemonConfig(interval_s=3600, growth=100.0), on_step=on_step)
    daemon.run()
    assert [step.compaction.did_anything for step in reports[0].tables] == [False, False]
    assert {step.path: step.compaction.did_anything for step in reports[1].tables} == {kept.path: True, new.path: True}
    assert [status.path for status in daemon.status().tables] == [kept.path, new.path]
    with pytest.raises(ConfigurationError):
        daemon.reconfigure(DaemonConfig(), [])


def test_tables_of_a_folder_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    first = disk_table(tmp_path / "lake" / "first")
    daemon = Daemon([f"{tmp_path}/lake/*"], config=DaemonConfig(discovery_interval_s=60), clock=clock)
    assert [step.path for step in daemon.step().tables] == [first.path]
    second = disk_table(tmp_path / "lake" / "second")
    clock.seconds += 59
    assert [step.path for step in daemon.step().tables] == [first.path]
    clock.seconds += 1
    with caplog.at_level(logging.INFO):
        assert {step.path for step in daemon.step().tables} == {first.path, second.path}
        shutil.rmtree(first.path)
        clock.seconds += 60
        assert [step.path for step in daemon.step().tables] == [second.path]
    assert [record.getMessage() for record in caplog.records] == [
        f"{second.path}: is a table now; the daemon watches it",
        f"{first.path}: is gone; the daemon no longer watches it",
    ]


def test_a_search_that_fails_is_logged_once_and_its_tables_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    table = disk_table(tmp_path / "lake" / "table")
    daemon = Daemon([TableSource(str(tmp_path / "lake"), folder=True)], clock=clock)
    daemon.step()

    def folders(*_: object, **__: object) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(LocalStore, "folders", folders)
    for _ in range(3):
        clock.seconds += 600
        assert [step.path for step in daemon.step().tables] == [table.path]
    assert len([record for record in caplog.records if "search" in record.getMessage()]) == 1
