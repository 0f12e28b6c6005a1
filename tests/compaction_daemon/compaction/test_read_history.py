"""Which partitions plans take for hot, when clocks differ and when not all commits are read."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.support import SCHEMA, PassingClock, put
from tests.log.support import memory_store, new_table
from tidelog.compaction_daemon import Daemon, plan, read_history
from tidelog.compaction_daemon.compaction import compaction
from tidelog.compaction_daemon.planning.compaction_planner import plan_snapshot
from tidelog.compaction_daemon.planning.history import MIN_QUIET_MS, History
from tidelog.compaction_daemon.planning.request import DUE, Budget
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.system import System

BUDGET = Budget(10**9)


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


def written(*parts: str, minutes_off: float = 0.0, clock: PassingClock) -> Table:
    """A table with a commit for each of these partitions, by a writer whose clock is so far ahead of the other.

    In-commit timestamps would never go back, so they would hide the clock of a writer that commits after a daemon.
    """

    class Writer(System):
        def now_ms(self) -> int:
            return clock.now_ms() + round(60_000 * minutes_off)

    writer = Writer()
    properties = {"tidelog.clusterBy": "n", "delta.enableInCommitTimestamps": "false"}
    table = new_table(memory_store(writer), SCHEMA, partition_by=["part"], properties=properties, system=writer)
    for number, part in enumerate(parts):
        put(table, number, part=part)
    return table


def reopened(table: Table, clock: PassingClock) -> Table:
    return Table.open(table.path, system=clock)


def levels(table: Table, past: History, clock: PassingClock) -> dict[str | None, str]:
    found = plan_snapshot(table.at(), DUE, history=past, now_ms=clock.now_ms(), budget=BUDGET)
    return {group.partition_values["part"]: group.level for group in found.groups}


@pytest.mark.parametrize("minutes", [-4.9, -2, 2, 60])
def test_a_writers_clock_may_differ_by_minutes(minutes: float, clock: PassingClock) -> None:
    table = reopened(written("a", "a", minutes_off=minutes, clock=clock), clock)
    assert levels(table, read_history(table), clock) == {"a": "minor"}
    assert {group.level for group in plan(table, "auto", growth=2.0).groups} == {"minor"}


def test_what_is_seen_for_the_first_time_counts_by_the_clock_of_the_daemon(clock: PassingClock) -> None:
    table = written(minutes_off=-120, clock=clock)
    table.set_properties({"tidelog.clusterBy": None})
    put(table, *range(1000))
    put(table, 1)
    keeper = Daemon([table.path], clock=clock)
    assert not keeper.step().did_anything, "the small file alone is not worth a rewrite of both"
    put(table, *range(1000))
    clock.pass_s(1)
    assert keeper.step().tables[0].compaction.levels == ("minor",)


@pytest.mark.parametrize("minutes", [-120, 120])
def test_a_kept_history_waits_no_longer_for_a_clock_that_is_wrong(minutes: float, clock: PassingClock) -> None:
    table = written("b", minutes_off=minutes, clock=clock)
    reading = reopened(table, clock)
    known = read_history(reading)
    put(table, 1)
    put(table, 2)
    known = read_history(reading.refresh(), known)
    assert levels(reading, known, clock)["a"] == "minor"
    clock.pass_s(MIN_QUIET_MS / 1000)
    assert levels(reading, read_history(reading, known), clock)["a"] == "major"


def test_a_partition_whose_commits_were_not_read_is_hot(monkeypatch: pytest.MonkeyPatch, clock: PassingClock) -> None:
    monkeypatch.setattr(compaction, "FIRST_COMMITS", 3)
    table = reopened(written("a", "a", "b", "c", "d", clock=clock), clock)
    past = read_history(table)
    assert {scope[0][1] for scope in past.scopes} == {"b", "c", "d"}
    assert levels(table, past, clock) == {"a": "minor"}
    clock.pass_s(MIN_QUIET_MS / 1000)
    assert levels(table, read_history(table, past), clock)["a"] == "major"


def test_the_whole_history_names_every_partition(clock: PassingClock) -> None:
    table = written("a", clock=clock)
    assert read_history(table).is_whole
    put(table, 1, part="b")
    assert read_history(table, read_history(table)).is_whole


def test_after_too_many_new_commits_the_history_begins_anew(
    monkeypatch: pytest.MonkeyPatch, clock: PassingClock
) -> None:
    monkeypatch.setattr(compaction, "FIRST_COMMITS", 2)
    monkeypatch.setattr(compaction, "MAX_NEW_COMMITS", 3)
    table = written("a", clock=clock)
    known = read_history(table)
    for number in range(3):
        put(table, number, part="b")
    assert len(read_history(table, known).scopes) == 2
    put(table, 3, part="b")
    anew = read_history(table, known)
    assert (len(anew.scopes), anew.version, anew.is_whole) == (1, 5, False)
    assert anew == read_history(table)


def test_commits_that_are_cleaned_up_are_left_out(clock: PassingClock) -> None:
    table = written("a", "b", "c", clock=clock)
    known = read_history(table)
    put(table, 3, part="d")
    put(table, 4, part="e")
    table.store.delete(filenames.commit_path(4))
    for past in (read_history(table), read_history(table, known)):
        assert {scope[0][1] for scope in past.scopes} == {"e"}
        assert not past.is_whole
    table.store.delete(filenames.commit_path(5))
    past = read_history(table)
    assert (past.version, past.scopes) == (5, {})
    assert levels(table, past, clock) == {}, "nobody knows who wrote, so every partition is hot"
    clock.pass_s(MIN_QUIET_MS / 1000)
    assert set(levels(table, past, clock).values()) == {"major"}
