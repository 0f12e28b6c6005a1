"""Clean-up of data files: commits, replacements and failures while it runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.lanes import full_but
from tests.log.cleanup.support import AT_ONCE, DAY, Ticking, compacted, live_files_at, paths, put
from tests.log.faults import Deleting, Paused
from tests.log.support import Clock, add, memory_store, new_table, numbers, put_foreign, read_numbers, reopen
from tidelog.compaction_daemon import vacuum
from tidelog.log import Table, VacuumReport
from tidelog.log.cleanup.pieces import finished
from tidelog.log.cleanup.vacuum import vacuum_files
from tidelog.log.consumers.claims import claim
from tidelog.log.errors import TableReplacedError, UnsupportedFeatureError
from tidelog.log.format.actions import Protocol
from tidelog.log.state.loader import load


@pytest.fixture
def table(clock: Clock) -> Table:
    return compacted(clock)


def with_deletions(table: Table, clock: Clock, **how: Any) -> tuple[Table, Deleting]:
    store = Deleting(table.store, **how)
    return Table(store, load(store), clock), store


class Racing(Deleting):
    """Runs `also` once, after the first walk over the table and before any deletion."""

    def walk(self, folder: str = "") -> Any:
        yield from super().walk(folder)
        if folder:
            return
        also, self._also = self._also, None
        if also:
            also("")


def test_a_file_named_by_a_commit_in_the_meantime_stays(table: Table, clock: Clock) -> None:
    """For example by a restore of an old version, or by another writer that adds an old file."""
    orphan = put(table, clock, "ab/a b.parquet", days_ago=18)
    other = put(table, clock, "ab/other.parquet", days_ago=18)
    replaced = live_files_at(table, 2)

    def add_old_files(_: str) -> None:
        put_foreign(table, add("ab/a%20b.parquet"), replaced[0])

    store = Racing(table.store, also=add_old_files)
    report = vacuum(Table(store, load(store), clock))
    assert set(report.files) == {other, replaced[1].path}
    assert orphan in paths(table.store)
    assert replaced[0].path in paths(table.store)


def test_commits_during_the_deletion_are_noticed(table: Table, clock: Clock) -> None:
    for number in range(250):
        put(table, clock, f"orphan-{number:03}", days_ago=18)
    put(table, clock, "z-last", days_ago=18)
    done: list[str] = []

    def commit_once(_: str) -> None:
        if not done:
            done.append("")
            put_foreign(table, add("z-last"))

    racing, store = with_deletions(table, clock, also=commit_once)
    report = vacuum(racing)
    assert len(report.files) == 252
    assert "z-last" in paths(store)


@pytest.mark.parametrize("replace", [True, False])
def test_a_table_that_is_replaced_or_gets_an_unknown_feature_in_the_meantime_is_refused(
    table: Table, clock: Clock, replace: bool
) -> None:
    def change_the_table(_: str) -> None:
        if not replace:
            put_foreign(table, Protocol(min_reader_version=1, min_writer_version=7, writer_features=("somethingNew",)))
            return
        for status in table.store.list("_delta_log"):
            table.store.delete(f"_delta_log/{status.name}")
        new_table(table.store, system=clock)

    before = paths(table.store)
    store = Racing(table.store, also=change_the_table)
    with pytest.raises(TableReplacedError if replace else UnsupportedFeatureError):
        vacuum(Table(store, load(store), clock))
    assert {path for path in paths(table.store) if not path.startswith("_tidelog/conflicts/")} == before


def test_a_table_with_an_unknown_feature_is_refused(table: Table) -> None:
    put_foreign(table, Protocol(min_reader_version=1, min_writer_version=7, writer_features=("somethingNew",)))
    before = paths(table.store)
    with pytest.raises(UnsupportedFeatureError, match="somethingNew"):
        vacuum(table)
    assert paths(table.store) == before


def test_a_table_with_the_vacuum_protocol_check_is_cleaned_up(table: Table) -> None:
    features = ("vacuumProtocolCheck", "inCommitTimestamp")
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=features[:1], writer_features=features
    )
    put_foreign(table, protocol)
    assert vacuum(table).did_anything


def test_a_file_that_cannot_be_deleted_does_not_stop_the_vacuum(table: Table, clock: Clock) -> None:
    vacuum(table)
    for name in ("a", "b", "c"):
        put(table, clock, name, days_ago=18)
    failing, store = with_deletions(table, clock, suffix="b")
    report = vacuum(failing)
    assert sorted(report.files) == ["a", "c"]
    ((path, error),) = report.failed
    assert (path, error.startswith("TIDELOG_STORE_UNAVAILABLE")) == ("b", True)
    assert report.to_dict()["failed"] == [{"path": "b", "error": error}]
    assert report.bytes_deleted == 2
    assert "b" in paths(store)


@pytest.mark.parametrize("listing", [True, False])
def test_a_retry_announces_no_horizon_while_nothing_else_is_old_enough(clock: Clock, *, listing: bool) -> None:
    store = memory_store(clock)
    table = new_table(store, system=clock, properties=AT_ONCE)
    for number in range(3):
        table.overwrite(numbers([number]))
        clock.ms += DAY
    failing = Table((stuck := Deleting(store, suffix=".parquet")), load(stuck), clock)

    def tried(table: Table) -> VacuumReport:
        pieces = vacuum_files(table.store, table.id, clock, lambda _: None, listing=listing, since=0)
        return finished(pieces)

    first = tried(failing)
    assert (first.commit_version, len(first.failed)) == (table.version + 1, 2)
    for _ in range(3):
        clock.ms += DAY
        again = tried(failing)
        assert (again.commit_version, again.failed) == (None, first.failed)
    table.refresh().overwrite(numbers([3]))
    clock.ms += DAY
    more = tried(failing)
    assert (more.commit_version, len(more.failed)) == (table.version + 1, 3)
    clock.ms += DAY
    done = tried(table)
    assert (done.commit_version, sorted(done.files)) == (None, sorted(path for path, _ in more.failed))
    assert read_numbers(table) == [3]


def test_a_retry_announces_a_horizon_for_a_file_that_came_later(table: Table, clock: Clock) -> None:
    vacuum(table)
    put(table, clock, "a", days_ago=18)
    failing, _ = with_deletions(table, clock, suffix="a")
    assert vacuum(failing).commit_version is None, "it is as old as the horizon"
    put(table, clock, "b", days_ago=8)
    for number in range(2):
        table.refresh().insert(numbers([number]))
        clock.ms += 8 * DAY
    assert vacuum(failing.refresh()).commit_version == table.refresh().version


def test_after_a_crash_the_next_call_continues(table: Table, clock: Clock) -> None:
    for number in range(5):
        put(table, clock, f"{number}", days_ago=18)

    def crash(path: str) -> None:
        if path == "3":
            raise KeyboardInterrupt

    failing, _ = with_deletions(table, clock, also=crash)
    with pytest.raises(KeyboardInterrupt):
        vacuum(failing)
    assert read_numbers(reopen(table)) == [1, 2, 3]
    vacuum(table)
    assert paths(table.store) == set(table.at().files()["path"].to_pylist())


@pytest.mark.parametrize("listing", full_but([False], [False, True]))
@pytest.mark.parametrize("is_held", [False, True], ids=["", "with a consumer"])
def test_an_expire_in_any_pause_of_a_vacuum(listing: bool, is_held: bool) -> None:
    """It deletes commits that the vacuum was about to read. Then the vacuum begins again with those that are left."""

    def run(before: int) -> int:
        clock = Ticking()
        table = new_table(memory_store(clock), properties=AT_ONCE, system=clock)
        for number in range(6):
            table.overwrite(numbers([number]))
            if number == 3 and is_held:
                claim(table.store, table.head, "c", owner="me", position=2, system=clock).confirm()
        table.checkpoint()
        table.insert(numbers([6]))

        def expire_now() -> None:
            other = Table(table.store, load(table.store), clock)
            other.expire(older_than=timedelta(0))

        paused = Paused(table.store, before=before, meanwhile=expire_now)
        seen = Table(paused, load(table.store), clock)
        paused.calls = 0
        report = seen.vacuum(older_than=timedelta(0), listing=listing)
        assert read_numbers(reopen(table)) == [5, 6]
        assert report.earliest_version in ([2] if is_held else [7, 8])
        if is_held:
            assert table.refresh().changes(after=2).count() > 0
        return paused.calls

    for before in range(run(-1)):
        run(before)
