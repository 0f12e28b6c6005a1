"""One table in the steps of a daemon: what is tried again, what is counted, what is logged, what is read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import (
    SCHEMA,
    PassingClock,
    leave_checkpoints_to_the_daemon,
    live_files,
    memory_table,
    put,
)
from tidelog.compaction_daemon import Daemon, DaemonConfig, TableState, report_of
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.leases import Lease
from tidelog.compaction_daemon.planning.compaction_planner import NO_HISTORY, plan_snapshot
from tidelog.compaction_daemon.planning.failed_groups import LONGEST_WAIT_S
from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.process import table_step
from tidelog.compaction_daemon.process.daemon import STALLED_S
from tidelog.compaction_daemon.rewriting import rewrite
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.compaction_daemon.rewriting.refused_rewrites import REFUSED_FOLDER
from tidelog.compaction_daemon.rewriting.verification import Findings, verify
from tidelog.log import Table
from tidelog.log.errors import DataFileDamagedError, PathNotWritableError, RetryableError


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


def with_debt() -> Table:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    return table


def refusing(monkeypatch: pytest.MonkeyPatch, path: str | None = None) -> None:
    """Let the verification refuse every rewrite, or those of one file."""

    def differs(inputs: Inputs, *args: Any) -> Findings:
        found = verify(inputs, *args)
        if path is None or path in {add.path for add in inputs.adds}:
            found.differences.append("a test said so")
        return found

    monkeypatch.setattr(rewrite, "verify", differs)


def records(table: Table) -> int:
    return len(list(table.store.list(REFUSED_FOLDER)))


# --- what is tried again ---------------------------------------------------------------------------------------------


def test_refused_files_are_left_alone_for_a_day_while_others_are_compacted(
    monkeypatch: pytest.MonkeyPatch, clock: PassingClock
) -> None:
    table = with_debt()
    keeper = Daemon([table.path], clock=clock)
    refusing(monkeypatch)
    (step,) = keeper.step().tables
    assert step.error is not None
    assert step.error.code == "TIDELOG_COMPACTION_VERIFICATION"
    (watched,) = keeper._tables
    assert watched.is_due(clock.monotonic_s()), "the rest of the table need not wait"
    for number in range(5):
        clock.pass_s(600)
        (step,) = keeper.step().tables
        assert (step.error, step.did_anything) == (None, False)
        (status,) = keeper.status().tables
        assert status.state is TableState.WATCHED
        assert status.left_alone is not None, "it stays visible as long as it lasts"
        assert (status.left_alone.groups, status.left_alone.error_code) == (1, "TIDELOG_COMPACTION_VERIFICATION")
        if number == 2:
            put(table, 3, part="b")
    assert (records(table), keeper.status().tables[0].totals.refused) == (1, 1)
    monkeypatch.undo()
    put(table, 4)
    put(table, 5)
    clock.pass_s(600)
    assert keeper.step().tables[0].compaction.files_removed == 2, "the refused files do not keep new ones waiting"
    assert len(live_files(table)) == 4
    clock.pass_s(LONGEST_WAIT_S)
    assert keeper.step().tables[0].compaction.did_anything
    assert keeper.step().tables[0].compaction.did_anything, "their output is packed with the others"
    assert (len(live_files(table)), keeper.status().tables[0].left_alone) == (2, None)


def test_each_refused_group_counts(monkeypatch: pytest.MonkeyPatch, clock: PassingClock) -> None:
    table = with_debt()
    for part in "bc":
        put(table, 1, part=part)
        put(table, 2, part=part)
    keeper = Daemon([table.path], clock=clock)
    refusing(monkeypatch)
    keeper.step()
    (status,) = keeper.status().tables
    assert (status.totals.refused, status.totals.failures, status.totals.superseded) == (3, 0, 0)
    assert status.left_alone is not None
    assert status.left_alone.groups == 3


def test_a_refused_group_beside_a_stream_is_rewritten_once_a_day(
    monkeypatch: pytest.MonkeyPatch, clock: PassingClock
) -> None:
    """The first file cannot be verified, and a stream adds files all the time."""
    table = with_debt()
    bad = live_files(table)[0].path
    keeper = Daemon([table.path], clock=clock)
    refusing(monkeypatch, bad)
    for number in range(48):
        put(table, number)
        put(table, number)
        clock.pass_s(3600)
        keeper.step()
    assert records(table) == keeper.status().tables[0].totals.refused == 2
    assert len(live_files(table)) < 2 + 8, "the stream was compacted"
    (watched,) = keeper._tables
    assert len(watched.failed_groups) == 2, "tomorrow it is tried in halves"


@pytest.mark.parametrize("damage", ["damaged", "unexpected"])
def test_a_group_that_fails_keeps_nothing_else_waiting(
    damage: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: PassingClock
) -> None:
    """The error is reported when it happens, and logged once, whatever the path of the file in its text."""
    table = with_debt()
    put(table, 3, part="b")
    bad = live_files(table)[0].path
    errors = {"damaged": DataFileDamagedError("cannot be read", path="x", file=bad), "unexpected": IndexError("a bug")}
    tries: list[tuple[str, ...]] = []

    def fails(writer: Any, schema: Any, group: PlannedGroup, **named: Any) -> Any:
        if bad in group.paths:
            tries.append(group.paths)
            raise errors[damage]
        return rewrite.rewrite(writer, schema, group, **named)

    monkeypatch.setattr(applying, "rewrite", fails)
    keeper = Daemon([table.path], clock=clock)
    (step,) = keeper.step().tables
    assert step.error is not None
    assert step.error.code == ("TIDELOG_DATA_FILE_DAMAGED" if damage == "damaged" else "TIDELOG_RETRYABLE")
    compacted = 0
    for number in range(60):
        put(table, number, part="b")
        compacted += keeper.step().tables[0].did_anything
        clock.pass_s(60)
    assert compacted > 20
    assert len(tries) == (1 if damage == "damaged" else 4), "after 5, 10 and 20 minutes"
    assert [record.levelname for record in caplog.records if record.name.endswith(".applying")] == ["WARNING"]
    (status,) = keeper.status().tables
    assert (status.error, status.left_alone and status.left_alone.groups) == (None, 1)


def test_the_groups_of_a_table_that_is_gone_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: PassingClock
) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
    put(table, 1)
    put(table, 2)
    keeper = Daemon([table.path], clock=clock)
    refusing(monkeypatch)
    keeper.step()
    assert keeper.status().tables[0].left_alone is not None
    Table.drop(table.path)
    clock.pass_s(600)
    keeper.step()
    (status,) = keeper.status().tables
    assert (status.state, status.left_alone) == (TableState.MISSING, None)


def test_a_table_of_another_daemon_is_planned_again_without_a_new_version(clock: PassingClock) -> None:
    table = memory_table()
    put(table, 1)
    keeper = Daemon([table.path], clock=clock)
    assert not keeper.step().did_anything
    put(table, 2)
    other = Lease.take(table, owner="other", ttl_s=15.0)
    assert isinstance(other, Lease)
    version = table.version
    assert keeper.step().tables[0].state is TableState.ELSEWHERE
    other.release()
    assert table.refresh().version == version
    clock.pass_s(15)
    assert keeper._due(), "it is looked at as soon as the lease can be free"
    assert keeper._round(keeper._due()).tables[0].compaction.did_anything
    keeper._stepper.leases.release_all()


# --- what is counted -------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_compaction_that_failed_count(monkeypatch: pytest.MonkeyPatch, clock: PassingClock) -> None:
    sick, well = with_debt(), with_debt()
    size = sum(add.size for add in live_files(sick))
    keeper = Daemon([sick.path, well.path], config=DaemonConfig(bytes_per_hour=2**20), clock=clock)
    keeper._stepper.bytes.take(2**20 - size, clock.monotonic_s())
    refusing(monkeypatch)
    first, second = keeper.step().tables
    assert first.error is not None
    assert keeper.status().bytes_last_hour == 2**20
    assert (second.error, second.did_anything) == (None, False), "nothing is left for it"


def test_a_stall_is_that_of_one_table(monkeypatch: pytest.MonkeyPatch, clock: PassingClock) -> None:
    tables = [with_debt() for _ in range(3)]
    seen: list[bool] = []
    slow_s = [STALLED_S - 1, STALLED_S - 1, STALLED_S + 1]

    def slow(*args: Any, **named: Any) -> Any:
        clock.pass_s(slow_s[len(seen)])
        seen.append(keeper.status().stalled)
        return rewrite.rewrite(*args, **named)

    monkeypatch.setattr(applying, "rewrite", slow)
    keeper = Daemon([table.path for table in tables], clock=clock)
    keeper.step()
    assert seen == [False, False, True]
    clock.pass_s(STALLED_S + 1)
    assert keeper.status().stalled is False, "nothing is being done"


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_the_log_has_no_tail_after_a_checkpoint(clock: PassingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_checkpoints_to_the_daemon(monkeypatch)
    table = memory_table(**{"delta.checkpointInterval": 5})
    for number in range(7):
        put(table, number, part=str(number))
    keeper = Daemon([table.path], clock=clock)
    (step,) = keeper.step().tables
    assert (step.checkpointed, step.compaction.did_anything) == (True, False)
    (sample,) = keeper.status().tables[0].debt
    assert (sample.version, sample.debt) == (table.version, table.refresh().debt())
    assert sample.debt.log_tail == 0


def test_a_table_that_is_gone_has_no_debt(tmp_path: Path, clock: PassingClock) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
    put(table, 1)
    keeper = Daemon([table.path], clock=clock)
    keeper.step()
    before = keeper.status().tables[0]
    assert (before.version, len(before.debt)) == (1, 1)
    Table.drop(table.path)
    keeper.step()
    after = keeper.status().tables[0]
    assert (after.state, after.table_id, after.version, after.debt) == (TableState.MISSING, None, None, ())


def test_upkeep_that_fails_is_shown_until_it_works(monkeypatch: pytest.MonkeyPatch, clock: PassingClock) -> None:
    table = memory_table(**{"delta.checkpointInterval": 2})
    put(table, 1)

    def refused(table: Table) -> None:
        raise PathNotWritableError("no permission", advice="ask", path=table.path)

    monkeypatch.setattr(Table, "checkpoint", refused)
    keeper = Daemon([table.path], clock=clock)
    for _ in range(3):
        assert keeper.step().tables[0].error is None
        (error,) = keeper.status().tables[0].upkeep_errors
        assert (error.chore, error.error) == ("checkpoint", "no permission")
        clock.pass_s(1)
    monkeypatch.undo()
    clock.pass_s(60)
    assert keeper.step().tables[0].checkpointed
    assert keeper.status().tables[0].upkeep_errors == ()


def due_now(keeper: Daemon, clock: PassingClock) -> tuple[str, int]:
    """What the page says is due: the level, and the number of groups."""
    status = keeper.status()
    path, apart = status.tables[0].path, status.tables[0].apart
    due = report_of(keeper.open_table(path), system=clock, due=status.request, apart=apart).plans[0]
    return due.level, len(due.groups)


def test_what_is_due_is_what_the_daemon_would_do(monkeypatch: pytest.MonkeyPatch, clock: PassingClock) -> None:
    table = with_debt()
    waiting = Daemon([table.path], config=DaemonConfig(major=False, growth=100.0), clock=clock)
    assert not waiting.step().did_anything
    assert due_now(waiting, clock) == ("minor", 0)
    keeper = Daemon([table.path], clock=clock)
    assert due_now(keeper, clock) == ("auto", 1)
    refusing(monkeypatch)
    keeper.step()
    assert due_now(keeper, clock) == ("auto", 0), "it leaves the group alone"


# --- what is logged --------------------------------------------------------------------------------------------------


def test_unexpected_errors_of_two_kinds_are_both_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: PassingClock
) -> None:
    """Both are a RetryableError for the caller, with the same code."""
    failures = [ZeroDivisionError("one"), ZeroDivisionError("one again"), KeyError("two"), KeyError("two again")]
    left = iter(failures)

    def fails(*_: object, **__: object) -> Any:
        raise next(left)

    monkeypatch.setattr(table_step, "apply_fresh", fails)
    keeper = Daemon([with_debt().path], clock=clock)
    for _ in failures:
        error = keeper.step().tables[0].error
        assert type(error) is RetryableError
        clock.pass_s(600)
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["ZeroDivisionError" in (record.exc_text or "") for record in logged] == [True, False]
    assert ["KeyError" in (record.exc_text or "") for record in logged] == [False, True]


# --- what is read ----------------------------------------------------------------------------------------------------


@pytest.fixture
def planned_with(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each plan knew the table's history."""
    found: list[bool] = []

    def planning(*args: Any, **named: Any) -> Any:
        found.append(named["history"] is not NO_HISTORY)
        return plan_snapshot(*args, **named)

    monkeypatch.setattr(table_step, "plan_snapshot", planning)
    return found


def test_the_history_is_read_once_there_is_debt(planned_with: list[bool], clock: PassingClock) -> None:
    """A table is planned without its history only while none is known; from then on each look is one plan."""
    table = memory_table()
    put(table, 1)
    keeper = Daemon([table.path], clock=clock)
    keeper.step()
    assert planned_with == [False], "without debt the history is not read"
    put(table, 2)
    keeper.step()
    assert planned_with[1:] == [False, True]
    for number in range(3, 6):
        del planned_with[:]
        put(table, number)
        clock.pass_s(60)
        keeper.step()
        assert planned_with == [True]


def test_another_table_at_the_path_has_no_history_yet(
    tmp_path: Path, planned_with: list[bool], clock: PassingClock
) -> None:
    def replaced() -> None:
        table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
        put(table, 1)
        put(table, 2)

    replaced()
    keeper = Daemon([str(tmp_path / "t")], clock=clock)
    keeper.step()
    assert planned_with == [False, True]
    Table.drop(str(tmp_path / "t"))
    replaced()
    clock.pass_s(60)
    assert keeper.step().tables[0].compaction.did_anything
    assert planned_with[2:] == [False, True]
