"""When a table was cleaned up and when that is due, as somebody sees it who is no daemon."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.upkeep.support import DAY, HOUR, Both, busy, through
from tests.log.support import memory_store
from tidelog.compaction_daemon import Upkeep
from tidelog.compaction_daemon.observing.clean_ups import CleanUpTime, clean_up_times
from tidelog.compaction_daemon.upkeep.due import CLEAN_UPS
from tidelog.log import Table


@pytest.fixture
def clock() -> Both:
    return Both()


@pytest.fixture
def table(clock: Both) -> Table:
    """Five days old, with retentions of two and three days."""
    return busy(memory_store(clock), clock)


def test_an_old_table_that_was_never_cleaned_up_awaits_a_daemon(table: Table, clock: Both) -> None:
    """A time would move on with each look, because the daemon's first look counts."""
    awaited = tuple(CleanUpTime(chore, None, None, awaits_daemon=True) for chore in CLEAN_UPS)
    assert clean_up_times(table, clock) == awaited
    clock.ms += DAY
    assert clean_up_times(table, clock) == awaited


def test_a_young_table_has_times_that_stay(clock: Both) -> None:
    table = busy(memory_store(clock), clock, days=1)
    times = clean_up_times(table, clock)
    assert all(time.due is not None and time.due.timestamp() * 1000 > clock.ms for time in times)
    clock.ms += HOUR
    assert clean_up_times(table, clock) == times


def test_after_a_daemon_it_has_the_times_of_the_daemon(table: Table, clock: Both) -> None:
    upkeep = Upkeep(system=clock)
    upkeep.run(table)
    through(upkeep, table, clock, hours=3)
    times = clean_up_times(table.refresh(), clock)
    assert all(time.done is not None and not time.awaits_daemon for time in times)
    upcoming = {each.chore: each.at for each in upkeep.run(table).upcoming}
    assert [time.due for time in times] == [upcoming[time.chore] for time in times]
