"""Clean-up of the log is safe with damaged checkpoints, crashes, and readers and writers at work."""

from __future__ import annotations

import os
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from tests.compaction_daemon.support import numbers_of
from tests.log.cleanup.support import (
    DAY,
    daily,
    damage,
    log_names,
    require_every_version,
    require_versions_since,
    versions_of,
)
from tests.log.faults import Deleting
from tests.log.support import START_MS, Clock, add, memory_store, new_table, numbers, put_foreign, read_numbers, reopen
from tidelog.compaction_daemon import expire
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError, StoreUnavailableError, TableReplacedError, UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.format.actions import Protocol, encode_action
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import to_datetime, utc_text
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.limits import NO_LIMITS
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.query_columns import QueryColumns
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch


@pytest.fixture
def table(clock: Clock) -> Table:
    return daily(memory_store(clock), clock)


# --- puts into a hole ------------------------------------------------------------------------------------------------


def _put_into_hole(table: Table, version: int) -> None:
    """As a writer does that slept through the clean-up; it is told that the state of its commit is unknown."""
    content = table.store.read(filenames.commit_path(10)).replace(b'"INSERT"', b'"LATE"')
    table.store.put_if_absent(filenames.commit_path(version), content)


@pytest.mark.parametrize("late", [(5,), (4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("is_refreshed", [True, False])
def test_what_is_put_into_a_hole_is_in_no_history(
    table: Table, clock: Clock, late: tuple[int, ...], is_refreshed: bool
) -> None:
    assert expire(Table(table.store, load(table.store), clock), older_than=timedelta(days=3)).earliest_version == 6
    for version in late:
        _put_into_hole(table, version)
    seen = reopen(table) if is_refreshed else table
    assert [record.version for record in seen.history()] == [*range(seen.version, 5, -1)]
    if is_refreshed:
        with pytest.raises(HistoryExpiredError, match="6 to 11"):
            seen.changes(after=at_day(5))
        with pytest.raises(HistoryExpiredError):
            seen.latest_timestamp(6)
    for after in (-1, 0, 2, 3, 4):
        with pytest.raises(HistoryExpiredError, match="available versions are"):
            seen.changes(after=after, until=10).to_arrow()
    for after in (5, 6):
        inserted = seen.changes(after=after, until=10).to_arrow()["n"].to_pylist()
        assert inserted == list(range(after + 1, 11))
    with pytest.raises(HistoryExpiredError):
        seen.at(version=5)
    clock.ms += 20 * DAY
    table.refresh().checkpoint()
    expire(table, older_than=timedelta(days=3))
    assert not [version for version in versions_of(table.store) if version in late]


def at_day(day: int) -> str:
    return utc_text(to_datetime(START_MS + day * DAY))


# --- damaged checkpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["empty", "cut", "garbage in the middle", "of another version", "gone"])
def test_no_commit_is_deleted_because_of_a_damaged_checkpoint(table: Table, how: str) -> None:
    damage(table, 6, how)
    report = expire(table, older_than=timedelta(days=2))
    assert report.earliest_version == 3
    for version in range(3, 11):
        if version not in (6, 7, 8) or how != "of another version":
            assert read_numbers(reopen(table).at(version=version)) == list(range(1, version + 1))


def test_no_commit_is_deleted_because_of_an_incomplete_checkpoint(table: Table) -> None:
    part = f"_delta_log/{8:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    table.store.put_if_absent(part, table.store.read(filenames.checkpoint_path(9)))
    assert expire(table, older_than=timedelta(days=2)).earliest_version == 6
    assert part.removeprefix("_delta_log/") in log_names(table.store)


def test_nothing_is_deleted_without_an_intact_checkpoint(table: Table) -> None:
    for version in (3, 6):
        damage(table, version, "cut")
    assert expire(table, older_than=timedelta(days=2)).files == ()
    require_every_version(table)


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_after_a_crash_the_table_is_readable_and_the_next_call_continues(clock: Clock) -> None:
    allowed, total = 0, 1
    while allowed < total:
        clock.ms = START_MS
        store = memory_store(clock)
        table = daily(store, clock)
        # Files of every kind, and a pointer to a checkpoint that will be deleted.
        store.put_if_absent(f"_delta_log/{2:020d}.{5:020d}.compacted.json", b"")
        store.put_if_absent(f"_delta_log/.{1:020d}.json.crc", b"crc")
        store.replace(filenames.LAST_CHECKPOINT, encode_action({"version": 3, "size": 5}))
        total = len(expire(table, older_than=timedelta(days=2), dry_run=True).files)
        failing = Deleting(store, allowed=allowed)
        with pytest.raises(StoreUnavailableError):
            expire(Table(failing, load(failing), clock), older_than=timedelta(days=2))
        assert len(failing.deleted) == allowed
        check_readable(store)
        report = expire(Table(store, load(store), clock), older_than=timedelta(days=2))
        assert report.earliest_version == 6
        assert versions_of(store) == [6, 7, 8, 9, 10, 11]
        require_versions_since(table, 6)
        allowed += 1
    assert total == 16


def check_readable(store: Store) -> None:
    """Every version has all its rows or is a HistoryExpiredError."""
    found = versions_of(store)
    assert found == list(range(found[0], found[-1] + 1)), "there is a gap"
    table = Table(store, load(store))
    earliest = 11
    for version in range(11):
        try:
            rows = read_numbers(table.at(version=version))
        except HistoryExpiredError:
            assert version < earliest < 12
            assert version < 6
            continue
        assert rows == list(range(1, version + 1))
        assert [record.version for record in table.history()][-1] <= version
    pointer = [name for name in log_names(store) if name == "_last_checkpoint"]
    assert not pointer or f"{3:020d}.checkpoint.parquet" in log_names(store)


def test_a_pointer_to_a_retained_checkpoint_is_kept(table: Table) -> None:
    expire(table, older_than=timedelta(days=2))
    assert "_last_checkpoint" in log_names(table.store)


# --- commit times ----------------------------------------------------------------------------------------------------


def test_commit_times_do_not_change_without_in_commit_timestamps(tmp_path: Path) -> None:
    """After a copy left the file times out of order, a commit whose time depends on the one before cannot be first."""
    store = LocalStore(str(tmp_path / "t"))
    clock = Clock(START_MS + 10 * DAY)
    table = new_table(store, properties={"delta.enableInCommitTimestamps": False}, system=clock)
    for number in range(1, 7):
        table.insert(numbers([number]))
        table.checkpoint()
    days = [0, 1, 5, 3, 4, 6, 7]
    for version, day in enumerate(days):
        moment = (START_MS + day * DAY) / 1000
        os.utime(tmp_path / "t" / filenames.commit_path(version), (moment, moment))
    times = {version: reopen(table).at(version=version).timestamp for version in range(7)}
    report = expire(Table(store, load(store), clock), older_than=timedelta(days=4, hours=12))
    # The version at the cut-off (day 5.5) is 4, at day 5 and 2 ms. The times of 3 and 4 depend on 2.
    assert report.earliest_version == 2
    assert {version: reopen(table).at(version=version).timestamp for version in range(2, 7)} == {
        version: time for version, time in times.items() if version >= 2
    }


# --- readers and writers ---------------------------------------------------------------------------------------------


def test_a_feed_that_lags_behind_gets_an_error(table: Table, clock: Clock) -> None:
    behind, current = (
        FeedPlanner(Table(table.store, load(table.store)), clock, QueryColumns(None, None, None)) for _ in range(2)
    )
    expire(table, older_than=timedelta(days=2))
    with pytest.raises(HistoryExpiredError) as gone:
        behind.advance(Offset(table.id, 4), 10, NO_LIMITS)
    assert (gone.value.earliest_version, gone.value.latest_version) == (6, 10)
    with pytest.raises(HistoryExpiredError):
        table.changes(after=4)
    assert current.advance(Offset(table.id, 5), 10, NO_LIMITS).version == 10
    assert sorted(table.changes(after=5).to_arrow()["n"].to_pylist()) == [6, 7, 8, 9, 10]


def test_earlier_readers_and_writers_continue(table: Table) -> None:
    other, old = Table(table.store, load(table.store)), table.at(version=7)
    transaction = other.begin().insert(numbers([11]))
    expire(table, older_than=timedelta(days=2))
    assert read_numbers(old) == list(range(1, 8))
    transaction.commit()
    assert numbers_of(table) == list(range(1, 12))


def test_the_progress_of_streams_is_kept(clock: Clock) -> None:
    """The sink's ledger entries are in the checkpoint, so a replayed batch is still skipped."""
    table = new_table(memory_store(clock), system=clock)
    ledger = Ledger("default", MicroBatch(query_id=str(uuid.uuid4()), batch_id=7, fingerprint=99, run_id="r"))
    entries = ledger.entries({}, clock.ms)
    put_foreign(table, add("x"), *entries)
    for number in range(5):
        clock.ms += DAY
        table.insert(numbers([number]), idempotency_key=("job", number))
    table.checkpoint()
    clock.ms += 5 * DAY
    assert expire(table, older_than=timedelta(days=3)).earliest_version == 6
    for status in table.store.list("_delta_log"):
        if status.name.endswith(".crc"):
            table.store.delete(f"_delta_log/{status.name}")
    fresh = Table(table.store, load(table.store), clock)
    assert ledger.judge(fresh.transactions) is BatchStatus.SKIP
    assert fresh.insert(numbers([4]), idempotency_key=("job", 4)).version == fresh.version == 7


def test_a_table_with_an_unknown_feature_is_refused(table: Table) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("catalogManaged",))
    put_foreign(table, protocol)
    before = log_names(table.store)
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
        expire(table, older_than=timedelta(days=2))
    assert log_names(table.store) == before


def test_another_table_at_the_path_is_refused(table: Table, clock: Clock) -> None:
    mine = Table(table.store, load(table.store), clock)
    for path, _ in list(table.store.walk()):
        table.store.delete(path)
    daily(table.store, clock)
    with pytest.raises(TableReplacedError):
        expire(mine, older_than=timedelta(days=2))
    assert versions_of(table.store) == list(range(11))
