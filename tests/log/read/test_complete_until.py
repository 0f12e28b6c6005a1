"""`complete_until`: the time up to which the changes of an interval are complete."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.log.support import START_MS, Clock, memory_store, new_table, numbers, put_commit, reopen, stage_compaction
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.system import to_datetime


def at(version: float) -> dt.datetime:
    """The commit time of `version`; a half is a time between two commits."""
    return to_datetime(START_MS + int(version * 1000))


@pytest.fixture
def table() -> Table:
    """Version 0 creates the table, 1 and 4 insert, 2 sets a property, 3 is a compaction, 5 is empty."""
    clock = Clock()
    table = new_table(memory_store(), system=clock)
    for version in range(1, 5):
        clock.ms += 1000
        match version:
            case 2:
                table.set_properties({"mine": "1"})
            case 3:
                stage_compaction(table).commit()
                table.refresh()
            case _:
                table.insert(numbers([version]))
    put_commit(table.store, 5, info={"inCommitTimestamp": START_MS + 5000})
    clock.ms += 10_000
    return table.refresh()


def test_without_an_end_it_is_the_time_of_the_newest_commit_whatever_that_did(table: Table) -> None:
    for after in (None, 3, 5, at(5), at(1.5)):
        assert table.changes(after=after).complete_until == at(5)


def test_an_end_limits_it(table: Table) -> None:
    for version in range(6):
        assert table.changes(until=version).complete_until == at(version)
        assert table.changes(until=at(version)).complete_until == at(version)


def test_a_time_between_two_commits_is_complete_until_then(table: Table) -> None:
    assert table.changes(until=at(2.5)).complete_until == at(2.5)
    assert table.changes(after=2, until=at(2.5).isoformat()).complete_until == at(2.5)
    assert table.changes(until=at(-7)).complete_until == at(-7)


def test_a_time_after_the_newest_commit_is_not(table: Table) -> None:
    """A writer whose clock is behind can still commit before it."""
    changes = table.changes(until=at(7))
    assert changes.complete_until == at(5)
    put_commit(table.store, 6, info={"inCommitTimestamp": START_MS + 6000})
    assert table.changes(until=at(7)).complete_until == at(6)


def test_an_empty_table_is_complete_until_it_was_made() -> None:
    table = new_table(memory_store(), system=Clock())
    assert table.changes().complete_until == at(0)
    assert table.changes(until=-1).complete_until == to_datetime(START_MS - 1)


def test_the_next_interval_can_start_there(table: Table) -> None:
    """Whatever the ends: nothing is lost, nothing comes twice."""
    for end in (-1, 0, 1, 2, 3, 4, 5, at(-1), at(0.5), at(1), at(3.5), at(5), at(6)):
        first = table.changes(until=end)
        rest = table.changes(after=first.complete_until)
        found = [*first.to_arrow()["n"].to_pylist(), *rest.to_arrow()["n"].to_pylist()]
        assert found == [1, 4], end


def test_no_commit_up_to_it_is_missing(table: Table) -> None:
    times = {record.version: record.timestamp for record in table.history()}
    for end in (0, 1, 2, 3, 4, 5, at(0.5), at(1), at(3.5), at(5), at(6)):
        changes = table.changes(until=end)
        last = table.timeline.interval_end(end)
        assert all((stamp <= changes.complete_until) == (version <= last) for version, stamp in times.items()), end


def test_an_expired_version_is_complete_until_the_next_one(table: Table) -> None:
    table.checkpoint()
    for version in range(3):
        table.store.delete(filenames.commit_path(version))
    table = reopen(table)
    changes = table.changes(after=2, until=2)
    assert changes.count() == 0
    assert changes.complete_until == to_datetime(START_MS + 2999)
    with pytest.raises(HistoryExpiredError):
        table.changes(after=1)


@pytest.mark.parametrize("enabled", [True, False])
def test_later_commits_have_later_times(enabled: bool) -> None:
    """Also if the clock stands still or goes back, and if the times are those of files."""
    clock: Any = Clock()
    table = new_table(memory_store(clock), system=clock, properties={"delta.enableInCommitTimestamps": enabled})
    positions = []
    for number in range(4):
        table.insert(numbers([number]))
        positions.append(table.changes().complete_until)
        clock.ms -= 500
    assert positions == sorted(set(positions))
    for number, position in enumerate(positions):
        assert table.changes(after=position).to_arrow()["n"].to_pylist() == list(range(number + 1, 4))
