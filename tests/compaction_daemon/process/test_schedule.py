"""When a table is looked at next."""

from __future__ import annotations

import pytest

from tidelog.compaction_daemon.process.watched_tables import RETRY_LIMIT_S, Schedule

START = Schedule(interval_s=1.0, idle_interval_s=60.0)


def waits(schedule: Schedule, steps: int, how: str) -> list[float]:
    """How long it waits after each of so many looks that ended in this way."""
    found, now_s = [], 0.0
    for _ in range(steps):
        schedule = getattr(schedule, how)(now_s)
        found.append(schedule.due_s - now_s)
        now_s = schedule.due_s
    return found


def test_a_quiet_table_is_looked_at_less_and_less_often() -> None:
    assert waits(START, 8, "quieter") == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_table_that_fails_is_tried_less_and_less_often_but_always_again() -> None:
    assert waits(START, 10, "failed") == [2, 4, 8, 16, 32, 64, 128, 256, RETRY_LIMIT_S, RETRY_LIMIT_S]
    assert max(waits(START, 10_000, "failed")) == RETRY_LIMIT_S


def test_a_table_with_work_left_is_looked_at_at_once() -> None:
    assert waits(START, 3, "worked") == [0, 0, 0]


@pytest.mark.parametrize(("how", "wait_s"), [("worked", 0.0), ("changed", 1.0)])
@pytest.mark.parametrize("before", ["quieter", "failed"])
def test_news_end_a_long_wait(how: str, wait_s: float, before: str) -> None:
    slow = START
    for _ in range(5):
        slow = getattr(slow, before)(0.0)
    quick = getattr(slow, how)(100.0)
    assert quick.due_s == 100.0 + wait_s
    assert quick.quieter(200.0).due_s == 201.0


def test_an_interval_above_the_limits_is_kept() -> None:
    assert waits(Schedule(3600.0, 60.0), 3, "quieter") == [3600, 3600, 3600]
    assert waits(Schedule(3600.0, 60.0), 3, "failed") == [3600, 3600, 3600]


def test_it_is_due_from_its_time_on() -> None:
    later = START.at(10.0)
    assert [later.is_due(now_s) for now_s in (9.9, 10.0, 11.0)] == [False, True, True]
