"""Clean-up of data files from the log alone: what it finds without a listing, and what it leaves to one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from tests.log.cleanup.support import DAY, Ticking, compacted, live_files_at, paths, put, put_at, put_stored_vector
from tests.log.faults import Around, Deleting
from tests.log.support import (
    START_MS,
    Clock,
    add,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tidelog.compaction_daemon import compact, vacuum
from tidelog.log import Table
from tidelog.log.storage import FileStatus, Store

UUID = "0b54ab34-0d0e-4c55-9a3b-3d2f0f1f7c61"


class NoWalk(Around):
    """A store that refuses to list the table's folder. The folders of the log and of consumers are small."""

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        assert folder == "_tidelog/consumers"
        return super().walk(folder)

    def list(self, folder: str) -> list[FileStatus]:
        assert folder.startswith(("_delta_log", "_tidelog/consumers"))
        return super().list(folder)


def on(store: Store, table: Table, clock: Clock) -> Table:
    return Table(store, table._state, clock)


def data_files(deleted: list[str]) -> list[str]:
    """Without Hadoop's hidden checksums, which may be there or not."""
    return sorted(path for path in deleted if not path.endswith(".crc"))


@pytest.fixture
def table(clock: Clock) -> Table:
    return compacted(clock)


def test_files_that_left_the_table_are_found_without_a_listing(table: Table, clock: Clock) -> None:
    replaced = set(table.at(version=2).files()["path"].to_pylist())
    live = set(table.at().files()["path"].to_pylist())
    orphan = put(table, clock, f"ab/part-{UUID}.parquet", days_ago=18)
    sizes = sum(status.size_bytes for path, status in table.store.walk() if path in replaced)
    report = vacuum(on(NoWalk(table.store), table, clock), listing=False)
    assert (set(report.files), report.listing, report.bytes_deleted) == (replaced, False, sizes)
    assert (report.earliest_version, report.commit_version, report.data_files) == (4, 5, 2)
    assert paths(table.store) == live | {orphan}
    assert read_numbers(reopen(table)) == [1, 2, 3]
    assert vacuum(table.refresh()).files == (orphan,)


def test_a_dry_run_reports_the_same_and_deletes_nothing(table: Table) -> None:
    before = paths(table.store)
    dry = vacuum(table, dry_run=True, listing=False)
    assert (paths(table.store), len(dry.files), reopen(table).version) == (before, 2, 4)
    real = vacuum(table, listing=False)
    assert {**dry.to_dict(), "dry_run": False, "commit_version": 5} == real.to_dict()


def test_it_finds_what_a_listing_finds() -> None:
    """Data files, deletion vectors that were replaced, change files and row maps."""
    clock = Ticking()
    table = new_table(memory_store(clock), properties={"delta.enableChangeDataFeed": True}, system=clock)
    for day in range(1, 6):
        clock.ms = START_MS + day * DAY
        table.insert(numbers(range(10 * day, 10 * day + 10)))
        table.delete(f"n = {10 * day + 1}")
        table.update(f"n = {10 * day + 2}", {"n": "n + 1000"})
        if day % 2 == 0:
            compact(table, "major", cluster_by=["n"], purge=True)
            table.update("n = 20", {"n": "n + 1000"})
    clock.ms = START_MS + 30 * DAY
    rows = read_numbers(table)
    listed = vacuum(table, dry_run=True)
    assert min(listed.data_files, listed.deletion_vectors, listed.change_files, listed.row_maps) > 0
    report = vacuum(table, listing=False)
    assert sorted(report.files) == sorted(listed.files)
    counts = ("data_files", "deletion_vectors", "change_files", "row_maps", "earliest_version")
    assert [getattr(report, name) for name in counts] == [getattr(listed, name) for name in counts]
    assert read_numbers(reopen(table)) == rows


def test_the_next_call_begins_where_the_last_one_ended(table: Table, clock: Clock) -> None:
    assert len(vacuum(table, listing=False).files) == 2
    clock.ms += 10 * DAY
    again = vacuum(table, listing=False)
    assert (again.files, again.commit_version, again.did_anything) == ((), None, False)
    (*_, last) = live_files(table)
    table.overwrite(numbers([9]))
    clock.ms += 8 * DAY
    store = Deleting(table.store)
    report = vacuum(on(store, table, clock), listing=False)
    assert last.path in report.files
    assert data_files(store.deleted) == sorted(report.files)


@pytest.mark.parametrize(
    "path",
    [
        f"file:///elsewhere/part-{UUID}.parquet",
        f"/elsewhere/part-{UUID}.parquet",
        f"s3://elsewhere/part-{UUID}.parquet",
        f"../elsewhere/part-{UUID}.parquet",
        f"ab/%2e%2e/%2e%2e/part-{UUID}.parquet",
        f"ab//part-{UUID}.parquet",
        f"_other/part-{UUID}.parquet",
        f".hidden/part-{UUID}.parquet",
        f"_delta_log/part-{UUID}.parquet",
        f"_tidelog/leases/{UUID}.json",
        "part-00000.parquet",
    ],
)
def test_names_that_may_lead_elsewhere_or_be_used_again_are_left_alone(table: Table, clock: Clock, path: str) -> None:
    """For example the files of a table of which this one is a shallow clone."""
    foreign = add(path)
    put_foreign(table, foreign)
    put_foreign(table, remove(foreign))
    clock.ms += 20 * DAY
    table.refresh()
    store = Deleting(table.store)
    report = vacuum(on(store, table, clock), listing=False)
    assert len(report.files) == 2
    assert data_files(store.deleted) == sorted(report.files)


def test_a_file_that_is_live_again_stays(table: Table, clock: Clock) -> None:
    (file, _) = live_files_at(table, 2)
    put_at(table, {"inCommitTimestamp": clock.ms}, file)
    clock.ms += 20 * DAY
    report = vacuum(Table(table.store, reopen(table)._state, clock), listing=False)
    assert file.path not in report.files
    assert len(report.files) == 1


def test_a_vector_file_that_another_vector_shares_stays(clock: Clock) -> None:
    table = new_table(memory_store(clock), system=clock)
    table.insert(numbers(range(10)))
    (file,) = live_files(table)
    first = put_stored_vector(table, clock, [0], days_ago=0)
    clock.ms += 1
    with_first = msgspec.structs.replace(file, deletion_vector=first)
    put_foreign(table, remove(file), with_first)
    second = msgspec.structs.replace(first, offset=99)
    put_foreign(table, remove(with_first), msgspec.structs.replace(file, deletion_vector=second))
    clock.ms += 20 * DAY
    assert vacuum(Table(table.store, reopen(table)._state, clock), listing=False).files == ()


def test_only_retained_commits_are_searched(table: Table) -> None:
    """What the commits before them removed is found by a listing."""
    table.checkpoint()
    table.expire(older_than=timedelta(days=2))
    assert vacuum(table, listing=False).files == ()
    assert len(vacuum(table).files) == 2


def test_a_file_that_cannot_be_deleted_is_reported(table: Table, clock: Clock) -> None:
    (first, second) = sorted(table.at(version=2).files()["path"].to_pylist())
    store = Deleting(table.store, suffix=first)
    report = vacuum(on(store, table, clock), listing=False)
    assert (report.files, [path for path, _ in report.failed]) == ((second,), [first])
    assert vacuum(table.refresh()).files == (first,)
