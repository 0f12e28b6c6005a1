"""What a daemon logs as tables come, go, fail and recover: the truth, once, and no false alarm."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compaction_daemon.support import SCHEMA, ManualClock, put
from tidelog.compaction_daemon import Daemon, DaemonConfig, TableState
from tidelog.compaction_daemon.leases.lease import Heartbeat
from tidelog.compaction_daemon.process import table_step
from tidelog.log import Table
from tidelog.log.errors import ConcurrentAppendException, LeaseLostError


def with_debt(path: Path) -> Table:
    table = Table.create(str(path), SCHEMA, partition_by=["part"])
    put(table, 1)
    put(table, 2)
    return table


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """Returns and forgets what was logged: the events, and whether their table is the one at `t`, or another."""
    caplog.set_level(logging.INFO, "tidelog.compaction_daemon")

    def news() -> list[tuple[str, str]]:
        facts = [record.tidelog for record in caplog.records]  # type: ignore[attr-defined]
        caplog.clear()
        return [(fact["event"], Path(fact["table"]).name) for fact in facts]

    return news


def test_a_first_search_is_no_news_beside_named_tables(
    tmp_path: Path, said: Callable[[], list[tuple[str, str]]]
) -> None:
    named = Table.create(str(tmp_path / "named"), SCHEMA)
    found = Table.create(str(tmp_path / "lake" / "found"), SCHEMA)
    daemon = Daemon([named.path, f"{tmp_path}/lake/*"])
    assert {step.path for step in daemon.step().tables} == {named.path, found.path}
    assert said() == []


def test_a_reload_is_not_taken_for_tables_that_come_and_go(
    tmp_path: Path, said: Callable[[], list[tuple[str, str]]]
) -> None:
    clock = ManualClock()
    old = Table.create(str(tmp_path / "old"), SCHEMA)
    Table.create(str(tmp_path / "lake" / "a"), SCHEMA)
    daemon = Daemon([old.path, f"{tmp_path}/lake/*"], clock=clock)
    daemon.step()
    daemon.reconfigure(DaemonConfig(), [str(tmp_path / "new"), f"{tmp_path}/lake/*"])
    daemon._follow_new_settings()
    daemon.step()
    assert said() == [("missing", "new")]
    Table.create(str(tmp_path / "lake" / "b"), SCHEMA)
    clock.seconds += 60
    daemon.step()
    assert said() == [("found", "b")]


def test_a_table_that_comes_is_told_before_the_work_on_it(
    tmp_path: Path, said: Callable[[], list[tuple[str, str]]]
) -> None:
    clock = ManualClock()
    daemon = Daemon([str(tmp_path / "t")], clock=clock)
    daemon.step()
    with_debt(tmp_path / "t")
    clock.seconds += 600
    (step,) = daemon.step().tables
    assert (step.compaction.did_anything, step.state) == (True, TableState.WORKING)
    assert said() == [("missing", "t"), ("recovered", "t"), ("compacted", "t")]


@pytest.mark.parametrize("gone", [lambda table: Table.drop(table.path), lambda table: shutil.rmtree(table.path)])
def test_a_table_that_is_dropped_under_a_kept_lease_is_told_once(
    gone: Callable[[Table], None], tmp_path: Path, said: Callable[[], list[tuple[str, str]]]
) -> None:
    table = with_debt(tmp_path / "t")
    daemon = Daemon([table.path])
    for watched in daemon._tables:
        daemon._stepper.step(watched, daemon._stepper.look(watched))
    assert daemon.status().tables[0].epoch is not None, "the lease is kept"
    gone(table.refresh())
    with_debt(tmp_path / "t")
    for watched in daemon._tables:
        daemon._stepper.step(watched, daemon._stepper.look(watched))
    daemon._stepper.leases.release_all()
    assert said() == [("compacted", "t"), ("replaced", "t"), ("compacted", "t")]


def test_a_heartbeat_that_fails_or_loses_the_lease_is_not_news(caplog: pytest.LogCaptureFixture) -> None:
    """Work under the lease raises the error; without work it does not matter."""
    caplog.set_level(logging.INFO)
    outcomes: list[Exception] = [OSError("no answer"), LeaseLostError("is gone", advice="none")]
    failures: list[Exception] = []

    def renew() -> None:
        raise outcomes.pop(0)

    heartbeat = Heartbeat(renew, failures.append, interval_s=0.001)
    heartbeat.start()
    heartbeat._thread.join(10)
    assert (outcomes, [str(each) for each in failures]) == ([], ["no answer"])
    assert not caplog.records


def test_a_lease_that_is_lost_during_the_work_ends_no_error(
    tmp_path: Path, said: Callable[[], list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    table = with_debt(tmp_path / "t")
    daemon = Daemon([table.path], clock=clock)
    errors: list[Exception] = [ValueError("a bug"), LeaseLostError("the lease is gone", advice="none")]

    def fails(*_: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(table_step, "apply_fresh", fails)
    daemon.step()
    clock.seconds += 600
    (step,) = daemon.step().tables
    assert (step.error, step.state) == (None, TableState.FAILING)
    status = daemon.status().tables[0]
    assert status.error is not None
    assert status.totals.failures == 1
    assert said() == [("failed", "t"), ("lease_lost", "t")]


def test_only_many_lost_races_in_a_row_are_a_failure(
    tmp_path: Path, said: Callable[[], list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    table = with_debt(tmp_path / "t")
    daemon = Daemon([table.path], clock=clock)

    def loses(*_: object) -> None:
        raise ConcurrentAppendException("a writer was faster", advice="try again")

    def fails(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(table_step, "apply_fresh", fails)
    for _ in range(3):
        daemon.step()
        clock.seconds += 600
    assert said() == [("failed", "t")]

    monkeypatch.setattr(table_step, "apply_fresh", loses)
    states = []
    for _ in range(4):
        (step,) = daemon.step().tables
        assert isinstance(step.error, ConcurrentAppendException)
        states.append((step.state.value, daemon.status().tables[0].totals.failures))
        clock.seconds += 600
    assert states == [("working", 3), ("working", 3), ("failing", 4), ("failing", 5)]
    monkeypatch.undo()
    assert daemon.step().tables[0].error is None
    news = [("recovered", "t"), *[("conflict", "t")] * 4, ("compacted", "t"), ("recovered", "t")]
    assert said() == news
