"""Time travel by ID version and by time, the history, and commit times."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.log.faults import Counting
from tests.log.support import (
    START_MS,
    Clock,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    reopen,
    stage_compaction,
)
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.errors import ConfigurationError, HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddCDCFile
from tidelog.log.system import to_datetime

SECOND = 1000


def at(seconds: float) -> dt.datetime:
    return to_datetime(START_MS + int(seconds * SECOND))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> Table:
    """A table with versions 1 to 3: version n was committed n x 10 seconds after version 0 and has the rows 1 to n."""
    table = new_table(memory_store(), system=clock)
    for number in (1, 2, 3):
        clock.ms += 10 * SECOND
        table.insert(numbers([number]))
    return table


# --- by version ------------------------------------------------------------------------------------------------------


def test_at_a_version_has_the_rows_of_that_version(table: Table) -> None:
    for version in range(4):
        snapshot = table.at(version=version)
        assert snapshot.version == version
        assert snapshot.timestamp == at(version * 10)
        assert read_numbers(snapshot) == list(range(1, version + 1))
    assert table.at().version == 3


@pytest.mark.parametrize("version", [4, 100, -1])
def test_a_version_outside_the_history_is_an_error_with_the_range(table: Table, version: int) -> None:
    with pytest.raises(HistoryExpiredError, match="0 to 3") as raised:
        table.at(version=version)
    assert (raised.value.fields["earliest_version"], raised.value.fields["latest_version"]) == (0, 3)


def test_an_expired_version_is_an_error_with_the_range(table: Table) -> None:
    table.checkpoint()
    for version in range(3):
        table.store.delete(filenames.commit_path(version))
    with pytest.raises(HistoryExpiredError, match="3 to 3"):
        table.at(version=2)


# --- by time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "version"), [(0, 0), (9.999, 0), (10, 1), (10.001, 1), (19.999, 1), (20, 2), (29, 2), (30, 3)]
)
def test_at_a_time_is_the_newest_version_at_or_before_it(table: Table, seconds: float, version: int) -> None:
    assert table.at(timestamp=at(seconds)).version == version
    assert table.at(timestamp=at(seconds).isoformat()).version == version


def test_a_time_can_have_any_time_zone(table: Table) -> None:
    east = dt.timezone(dt.timedelta(hours=5, minutes=30))
    assert table.at(timestamp=at(20).astimezone(east)).version == 2
    assert table.at(timestamp=at(20).astimezone(east).isoformat()).version == 2
    assert table.at(timestamp=at(20).isoformat().replace("+00:00", "Z")).version == 2


def test_fractions_of_a_millisecond_round_down(table: Table) -> None:
    assert table.at(timestamp=at(20) - dt.timedelta(microseconds=1)).version == 1
    assert table.at(timestamp=at(20) + dt.timedelta(microseconds=999)).version == 2


@pytest.mark.parametrize("moment", [dt.datetime(2023, 11, 14, 22), "2023-11-14T22:00:00"])  # noqa: DTZ001
def test_a_time_without_a_time_zone_is_an_error(table: Table, moment: Any) -> None:
    for use in (
        lambda: table.at(timestamp=moment),
        lambda: table.changes(mode="append", after=moment),
        lambda: table.changes(mode="append", until=moment),
    ):
        with pytest.raises(ConfigurationError, match="zone"):
            use()


@pytest.mark.parametrize("moment", ["yesterday", "", "2023-13-01T00:00:00Z"])
def test_a_string_that_is_not_a_time_is_an_error(table: Table, moment: str) -> None:
    with pytest.raises(ConfigurationError, match="ISO"):
        table.at(timestamp=moment)


def test_a_time_in_the_future_is_an_error_with_the_range(table: Table, clock: Clock) -> None:
    clock.ms += 5 * SECOND
    assert table.at(timestamp=at(35)).version == 3
    with pytest.raises(HistoryExpiredError, match="0 to 3"):
        table.at(timestamp=at(35.001))


def test_a_time_before_the_first_version_is_an_error_with_the_range(table: Table) -> None:
    with pytest.raises(HistoryExpiredError, match="0 to 3"):
        table.at(timestamp=at(-0.001))


def test_a_time_before_the_retained_history_is_an_error(table: Table) -> None:
    table.checkpoint()
    for version in range(3):
        table.store.delete(filenames.commit_path(version))
    with pytest.raises(HistoryExpiredError, match="3 to 3"):
        table.at(timestamp=at(25))
    assert table.at(timestamp=at(30)).version == 3


def test_a_version_and_a_time_together_are_an_error(table: Table) -> None:
    with pytest.raises(ConfigurationError):
        table.at(version=1, timestamp=at(10))


def test_looking_up_a_time_does_not_list_the_log(clock: Clock) -> None:
    """Listing a log of a hundred thousand commits takes longer than searching it."""
    store = Counting(memory_store())
    table = new_table(store, system=clock)
    for number in (1, 2, 3):
        clock.ms += 10 * SECOND
        table.insert(numbers([number]))
    store.lists = 0
    assert table.timeline.snapshot_version(at(25)) == 2
    assert table.timeline.interval_end(at(5)) == 0
    assert table.latest_version(4) == 0
    assert [commit.version for commit, _ in table.timeline.between(0, 3)] == [1, 2, 3]
    assert store.lists == 0


def test_a_missing_commit_in_an_interval_is_expired_history(table: Table) -> None:
    table.store.delete(filenames.commit_path(2))
    with pytest.raises(HistoryExpiredError, match="3 to 3"):
        list(table.timeline.between(0, 3))
    assert [commit.version for commit, _ in table.timeline.between(2, 3)] == [3]


# --- time versions ---------------------------------------------------------------------------------------------------


def test_history_is_newest_first(table: Table) -> None:
    records = table.history()
    assert [record.version for record in records] == [3, 2, 1, 0]
    assert [record.timestamp for record in records] == [at(30), at(20), at(10), at(0)]
    assert [record.time_version for record in records] == [at(30), at(20), at(10), None]
    assert [record.operation_class for record in records] == [OperationClass.INSERT] * 3 + [OperationClass.NONE]
    assert [record.data_change for record in records] == [True, True, True, False]
    assert records[0].metrics["numOutputRows"] == "1"
    assert [record.version for record in table.history(2)] == [3, 2]
    assert table.history(0) == []


def test_history_covers_the_retained_commits_up_to_the_loaded_version(table: Table) -> None:
    reopen(table).insert(numbers([4]))
    assert table.history()[0].version == 3
    table.refresh().checkpoint()
    for version in range(2):
        table.store.delete(filenames.commit_path(version))
    assert [record.version for record in table.history()] == [4, 3, 2]


def test_the_nth_most_recent_version_and_time(table: Table) -> None:
    assert [table.latest_version(n) for n in (1, 2, 4)] == [3, 2, 0]
    assert [table.latest_timestamp(n) for n in (1, 2, 3)] == [at(30), at(20), at(10)]
    assert table.latest_version() == 3
    assert table.latest_timestamp() == at(30)
    with pytest.raises(HistoryExpiredError, match="5 commits"):
        table.latest_version(5)
    with pytest.raises(HistoryExpiredError, match="4 data-changing"):
        table.latest_timestamp(4)
    for use in (table.latest_version, table.latest_timestamp):
        with pytest.raises(ConfigurationError):
            use(0)


def test_a_compaction_has_an_id_version_and_no_time_version(table: Table, clock: Clock) -> None:
    clock.ms += 10 * SECOND
    outcome = stage_compaction(table).commit()
    assert isinstance(outcome, Committed)
    assert (outcome.version, outcome.timestamp) == (4, at(40))
    clock.ms += 10 * SECOND
    table.insert(numbers([4]))
    clock.ms += 10 * SECOND
    stage_compaction(table).commit()

    for seen in (table, reopen(table)):
        assert seen.version == 6
        assert seen.time_version == at(50)
        records = seen.history(3)
        assert [record.time_version for record in records] == [None, at(50), None]
        assert [record.operation_class for record in records] == ["MINOR", "INSERT", "MINOR"]
        assert [seen.latest_timestamp(n) for n in (1, 2, 3, 4)] == [at(50), at(30), at(20), at(10)]
        assert [seen.latest_version(n) for n in (1, 2, 3)] == [6, 5, 4]
    # A compaction does not change the rows at any version or time.
    assert read_numbers(table.at(version=4)) == read_numbers(table.at(version=3)) == [1, 2, 3]
    assert table.at(timestamp=at(45)).version == 4
    assert read_numbers(table.at(timestamp=at(45))) == [1, 2, 3]
    assert table.at(version=4).num_files == 1
    assert table.at(version=3).num_files == 3


@pytest.mark.parametrize("without", ["nothing", "checksums", "checksums and commits"])
def test_the_time_version_is_known_without_checksums_and_old_commits(table: Table, clock: Clock, without: str) -> None:
    clock.ms += 10 * SECOND
    stage_compaction(table).commit()
    table.checkpoint()
    if "checksums" in without:
        for version in range(5):
            table.store.delete(filenames.checksum_path(version))
    if "commits" in without:
        for version in range(3):
            table.store.delete(filenames.commit_path(version))
    assert reopen(table).time_version == at(30)


def test_change_files_alone_make_a_time_version(table: Table) -> None:
    version = put_foreign(table, AddCDCFile(path="x", partition_values={}, size=1))
    table.refresh()
    assert table.history(1)[0].time_version == table.at(version=version).timestamp == table.time_version


# --- clocks ----------------------------------------------------------------------------------------------------------


def test_commit_times_increase_when_the_clock_steps_back(table: Table, clock: Clock) -> None:
    clock.ms -= 3600 * SECOND
    assert table.insert(numbers([4])).timestamp == at(30.001)
    assert table.insert(numbers([5])).timestamp == at(30.002)
    clock.ms = START_MS + 60 * SECOND
    assert table.insert(numbers([6])).timestamp == at(60)
    stamps = [record.timestamp for record in table.history()]
    assert stamps == sorted(set(stamps), reverse=True)


def test_a_reader_with_a_slow_clock_can_read_at_the_newest_commit_time(table: Table, clock: Clock) -> None:
    clock.ms -= 3600 * SECOND
    assert table.at(timestamp=at(30)).version == 3


def test_commits_in_the_same_millisecond_differ_by_one(clock: Clock) -> None:
    table = new_table(memory_store(), system=clock)
    stamps = [table.insert(numbers([number])).timestamp for number in range(5)]
    assert stamps == [at(0.001 * (number + 1)) for number in range(5)]
