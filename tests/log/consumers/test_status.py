"""The list of consumers, and their lags."""

from __future__ import annotations

import pytest

from tests.log.consumers.support import DAY, Watch, claimed, clean_up, confirmed, only, status_of
from tests.log.support import START_MS, memory_store, new_table, numbers, stage_compaction
from tidelog.log import Table
from tidelog.log.consumers.consumer_status import Lag, consumers
from tidelog.log.format.actions import Commit
from tidelog.log.state.commits import read_commit
from tidelog.log.system import to_datetime


def test_a_status_in_full(table: Table, clock: Watch) -> None:
    consumer = claimed(table, clock)
    assert only(table, clock).is_confirmed is False
    clock.ms += 1000
    consumer.advance(8)
    found = only(table, clock)
    size = _bytes(read_commit(table.store, 9)) + _bytes(read_commit(table.store, 10))
    assert found.lag == Lag(versions=2, seconds=3 * DAY / 1000 + 1, files=4, bytes=size)
    assert found.to_dict() == {
        "name": "c",
        "owner": "me",
        "position": 8,
        "position_time": "2023-11-22T22:13:20Z",
        "heartbeat": "2023-11-26T22:13:21Z",
        "is_live": True,
        "is_confirmed": True,
        "state": "live",
        "lag": {"versions": 2, "seconds": 3 * 86_400.0 + 1, "files": 4, "bytes": size, "is_complete": True},
    }


def _bytes(commit: Commit) -> int:
    return sum(add.size for add in commit.adds) + sum(remove.size or 0 for remove in commit.removes)


def test_a_consumer_at_the_end_has_no_lag(table: Table, clock: Watch) -> None:
    confirmed(table, clock, position=10)
    assert only(table, clock).lag == Lag()


def test_compactions_are_no_lag(clock: Watch) -> None:
    table = new_table(memory_store(clock), system=clock)
    for number in range(4):
        table.insert(numbers([number]))
    confirmed(table, clock, position=4)
    stage_compaction(table).commit()
    clock.ms += DAY
    assert only(table, clock).lag == Lag()
    table.insert(numbers([5]))
    lag = only(table, clock).lag
    assert lag is not None
    assert (lag.versions, lag.seconds, lag.files) == (1, 0.0, 1)


def test_cdc_files_count_instead_of_the_others(clock: Watch) -> None:
    table = new_table(memory_store(clock), system=clock, properties={"delta.enableChangeDataFeed": True})
    table.insert(numbers([1, 2, 3]))
    confirmed(table, clock, position=1)
    table.update("n = 1", {"n": "7"})
    lag = only(table, clock).lag
    assert lag is not None
    assert (lag.versions, lag.files) == (1, len(read_commit(table.store, 2).cdc))


def test_what_lags_far_behind_has_at_least_so_much(table: Table, clock: Watch) -> None:
    confirmed(table, clock, "far", position=3)
    confirmed(table, clock, "near", position=7)
    lags = [found.lag for found in consumers(table.store, table.refresh().head, clock, max_commits=3)]
    assert [(lag.versions, lag.is_complete) for lag in lags if lag] == [(3, False), (3, True)]


def test_silent_and_withdrawn_ones_are_listed(table: Table, clock: Watch) -> None:
    consumer = confirmed(table, clock)
    clock.ms += 7 * DAY
    assert (only(table, clock).state, only(table, clock).is_live) == ("silent", False)
    clean_up(table)
    assert only(table, clock).lag is None, "commits that it needs are gone"
    with pytest.raises(Exception, match="has passed"):
        consumer.advance(4)
    assert (only(table, clock).state, only(table, clock).is_live) == ("withdrawn", False)


def test_a_table_without_consumers(table: Table, clock: Watch) -> None:
    assert status_of(table, clock) == {}


def test_the_heartbeat_is_the_time_of_the_file(table: Table, clock: Watch) -> None:
    confirmed(table, clock)
    assert only(table, clock).heartbeat == to_datetime(START_MS + 12 * DAY)
