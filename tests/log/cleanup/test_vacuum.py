"""Clean-up of data files: what is deleted and what stays."""

from __future__ import annotations

import io
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compaction_daemon.support import z85
from tests.log.cleanup.support import DAY, HOUR, compacted, live_files_at, paths, put, put_at, put_stored_vector
from tests.log.support import (
    START_MS,
    Clock,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_commit,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tests.randomness import EXAMPLES
from tidelog.compaction_daemon import expire, vacuum
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import AddCDCFile, DeletionVectorDescriptor, encode_action
from tidelog.log.format.paths import to_storage_path
from tidelog.log.operations.convert import convert
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime


@pytest.fixture
def table(clock: Clock) -> Table:
    return compacted(clock)


def test_files_that_no_version_needs_are_deleted(table: Table, clock: Clock) -> None:
    replaced = set(table.at(version=2).files()["path"].to_pylist())
    live = set(table.at().files()["path"].to_pylist())
    orphan = put(table, clock, "ab/part-orphan.parquet", days_ago=18, content=b"12345")
    sizes = sum(status.size_bytes for path, status in table.store.walk() if path in replaced | {orphan})
    report = vacuum(table)
    assert paths(table.store) == live
    assert set(report.files) == replaced | {orphan}
    assert (report.data_files, report.bytes_deleted, report.failed) == (3, sizes, ())
    assert (report.earliest_version, report.cutoff) == (4, to_datetime(clock.ms - 7 * DAY))
    assert (report.did_anything, report.commit_version) == (True, 5)
    assert read_numbers(reopen(table)) == [1, 2, 3]
    second = vacuum(table)
    assert (second.files, second.did_anything, second.commit_version) == ((), False, None)


@pytest.mark.parametrize("listing", [True, False])
def test_files_in_partition_folders_are_deleted_even_if_the_column_begins_with_an_underscore(
    clock: Clock, listing: bool
) -> None:
    store = memory_store(clock)
    content = io.BytesIO()
    pq.write_table(numbers([1]), content)
    store.put_if_absent("_day=a%2Fb/old.parquet", content.getvalue())
    convert(store, [pa.field("_day", pa.string())], {"delta.enableChangeDataFeed": True}, clock)
    table = Table(store, load(store), clock)
    for n in range(2):
        table.insert([{"n": n, "_day": "c %"}])
    table.update("_day = 'c %'", {"n": "n + 10"})
    clock.ms += 8 * DAY
    table.insert([{"n": 5, "_day": None}])
    clock.ms += 8 * DAY
    live = {to_storage_path(path) for path in table.at().files()["path"].to_pylist()}
    report = vacuum(table, listing=listing)
    folders = {path.rpartition("/")[0] for path in report.files if not path.startswith("_dv/")}
    assert folders == {"_change_data/_day=c %25", "_day=c %25"}
    assert report.failed == ()
    assert paths(store) == live
    assert read_numbers(reopen(table)) == [1, 5, 10, 11]


def test_a_dry_run_reports_the_same_and_deletes_nothing(table: Table) -> None:
    before = paths(table.store)
    dry = vacuum(table, dry_run=True)
    assert paths(table.store) == before
    assert not dry.did_anything
    assert (len(dry.files), reopen(table).version) == (2, 4)
    real = vacuum(table)
    assert {**dry.to_dict(), "dry_run": False, "commit_version": 5} == real.to_dict()
    assert encode_action(real.to_dict())


@pytest.mark.parametrize(
    ("days", "left"),
    [
        # The compaction was 18 days ago. With an earlier cut-off its inputs are still needed.
        (18.5, [2, 3, 4]),
        (18, [3, 4]),
        (17.5, [3, 4]),
        (2, [4]),
    ],
)
def test_every_version_since_the_cutoff_keeps_its_files(table: Table, days: float, left: list[int]) -> None:
    expected = {version: read_numbers(table.at(version=version)) for version in left}
    report = vacuum(table, older_than=timedelta(days=days))
    assert report.earliest_version == left[0]
    assert {version: read_numbers(reopen(table).at(version=version)) for version in left} == expected
    assert len(report.files) == (0 if left[0] == 2 else 2)


def test_changes_since_the_cutoff_can_be_read(table: Table) -> None:
    """The feed reads the files that the commits named, although a compaction has replaced them."""
    vacuum(table, older_than=timedelta(days=18, hours=12))
    assert sorted(table.changes(after=0).to_arrow()["n"].to_pylist()) == [1, 2, 3]


def test_the_time_of_a_commit_counts_more_than_that_of_its_tombstones(table: Table, clock: Clock) -> None:
    (file, *_) = live_files(table)
    put_foreign(table, remove(file, deletion_timestamp=1))
    table.refresh()
    clock.ms = int(table.at().timestamp.timestamp() * 1000) + DAY
    assert file.path not in vacuum(table, older_than=timedelta(days=1, hours=1)).files
    clock.ms += DAY
    assert file.path in vacuum(table, older_than=timedelta(days=1)).files


def test_a_file_that_was_live_again_stays_for_those_versions(table: Table, clock: Clock) -> None:
    (file, _) = live_files_at(table, 2)
    put_at(table, {"inCommitTimestamp": clock.ms}, file)
    put_at(table, {"inCommitTimestamp": clock.ms + 1}, remove(file, deletion_timestamp=1))
    vacuum(table)
    assert len(read_numbers(table.at(version=5))) == 4
    assert read_numbers(table.at(version=6)) == [1, 2, 3]


def test_the_time_of_a_tombstone_counts_if_its_commit_is_gone(clock: Clock) -> None:
    """Only the tombstone in the checkpoint still says when the file was removed."""
    table = new_table(memory_store(clock), system=clock)
    table.insert(numbers([1]))
    (file,) = live_files(table)
    clock.ms += 2 * DAY
    put_foreign(table, remove(file, deletion_timestamp=clock.ms))
    table.refresh().checkpoint()
    for version in (0, 1):
        for kind in ("json", "crc"):
            table.store.delete(f"_delta_log/{version:020d}.{kind}")
    table.store.delete(f"_delta_log/{2:020d}.json")
    put_commit(table.store, 2, info={"inCommitTimestamp": clock.ms})
    clock.ms += 2 * DAY
    table = Table(table.store, load(table.store), clock)
    assert vacuum(table, older_than=timedelta(days=3)).files == ()
    assert vacuum(table, older_than=timedelta(days=1)).files == (file.path,)


def test_expire_and_vacuum_together(table: Table, clock: Clock) -> None:
    table.checkpoint()
    assert expire(table, older_than=timedelta(days=2)).earliest_version == 4
    assert len(vacuum(table).files) == 2
    fresh = Table(table.store, load(table.store), clock)
    assert read_numbers(fresh) == [1, 2, 3]
    fresh.insert(numbers([4]))
    assert read_numbers(reopen(fresh)) == [1, 2, 3, 4]


def test_a_path_instead_of_a_table(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    table.insert(numbers([1]))
    assert vacuum(table.path).files == ()


# --- the age of files ------------------------------------------------------------------------------------------------


def test_files_of_a_running_transaction_stay(table: Table, clock: Clock) -> None:
    vacuum(table)
    transaction = table.begin().insert(numbers([4]))
    clock.ms += 6 * DAY
    assert vacuum(table).files == ()
    transaction.commit()
    assert read_numbers(reopen(table)) == [1, 2, 3, 4]


def test_the_retention_is_at_least_the_longest_transaction(clock: Clock) -> None:
    properties = {"delta.deletedFileRetentionDuration": "1 hour", "tidelog.maxTransactionTime": "2 days"}
    table = new_table(memory_store(clock), properties=properties, system=clock)
    clock.ms += 8 * DAY - HOUR
    table.insert(numbers([1]))
    clock.ms += 2 * DAY + HOUR
    put(table, clock, "young", days_ago=1.9)
    put(table, clock, "old", days_ago=2.1)
    assert vacuum(table).files == ("old",)
    with pytest.raises(ConfigurationError, match=r"tidelog\.maxTransactionTime"):
        vacuum(table, older_than=timedelta(days=1.5))


@pytest.mark.parametrize("older_than", [timedelta(0), timedelta(hours=23), timedelta(days=-3), 168])
def test_too_short_an_age_is_refused(table: Table, older_than: Any) -> None:
    before = paths(table.store)
    with pytest.raises(ConfigurationError):
        vacuum(table, older_than=older_than)
    assert paths(table.store) == before


# --- deletion vectors and change data --------------------------------------------------------------------------------


def vector_path(vector: DeletionVectorDescriptor, store: Store) -> str:
    known = {z85(uuid.UUID(path[-40:-4]).bytes): path for path, _ in store.walk() if path.endswith(".bin")}
    return known[vector.path_or_inline_dv[3:]]


def test_a_deletion_vector_stays_while_a_version_needs_it(clock: Clock) -> None:
    table = new_table(memory_store(clock), system=clock)
    table.insert(numbers(range(10)))
    (file,) = live_files(table)
    first = put_stored_vector(table, clock, [0], days_ago=0)
    second = put_stored_vector(table, clock, [0, 1], days_ago=0)
    orphan = put_stored_vector(table, clock, [5], days_ago=0)
    clock.ms += 1
    with_first = msgspec.structs.replace(file, deletion_vector=first)
    put_foreign(table, remove(file, deletion_timestamp=clock.ms), with_first)
    gone = vector_path(first, table.store), vector_path(orphan, table.store)
    clock.ms += 10 * DAY
    table.refresh()
    # Another writer's commit has the current time.
    stamp = {"inCommitTimestamp": clock.ms}
    put_at(table, stamp, remove(with_first), msgspec.structs.replace(file, deletion_vector=second))
    clock.ms += DAY
    table = Table(table.store, load(table.store), clock)
    assert vacuum(table, older_than=timedelta(days=2)).files == (gone[1],)
    assert read_numbers(table.at(version=2)) == list(range(1, 10))
    clock.ms += 7 * DAY
    report = vacuum(table)
    assert (report.files, report.deletion_vectors, report.data_files) == ((gone[0],), 1, 0)
    assert read_numbers(reopen(table)) == list(range(2, 10))


def test_change_files_stay_while_their_version_is_retained(clock: Clock) -> None:
    table = new_table(memory_store(clock), properties={"delta.enableChangeDataFeed": True}, system=clock)
    for day in (0, 5, 10):
        clock.ms = START_MS + day * DAY
        path = f"_change_data/c-{day}.parquet"
        table.store.put_if_absent(path, b"x")
        clock.ms += 1
        cdc = AddCDCFile(path=path, partition_values={}, size=1)
        put_at(table, {"inCommitTimestamp": clock.ms + 1}, cdc)
    clock.ms = START_MS + 13 * DAY
    table = Table(table.store, load(table.store), clock)
    # The cut-off is day 6, so only the change file of day 10 is needed.
    report = vacuum(table)
    assert (report.files, report.change_files) == (("_change_data/c-0.parquet", "_change_data/c-5.parquet"), 2)


@pytest.mark.parametrize("folder", ["cp", "a/b=1/cp", ""])
@pytest.mark.parametrize("lacks", [None, "metadata", "offsets", "commits"])
def test_a_streaming_checkpoint_is_left_and_reported(
    table: Table, clock: Clock, folder: str, lacks: str | None
) -> None:
    names = ["metadata", "offsets/0", "commits/0", "sources/0/0", "state/0/0/1.delta"]
    inside = [f"{folder}/{name}" if folder else name for name in names if name.split("/")[0] != lacks]
    for path in inside:
        put(table, clock, path, days_ago=18, content=b"v1")
    other = [
        put(table, clock, path, days_ago=18, content=b"v1") for path in ("other/metadata", "cp-2/offsets/x", "more/0")
    ]
    for dry_run in (True, False):
        report = vacuum(table, dry_run=dry_run)
        assert report.checkpoints == (folder or ".",)
        assert set(other) <= set(report.files)
        assert not set(inside) & set(report.files)
    assert set(inside) <= {path for path, _ in table.store.walk()}
    assert report.to_dict()["checkpoints"] == [folder or "."]
    assert vacuum(table).files == ()


# The folders that are drawn, and what is in them. Any two of the first three make a streaming checkpoint of a folder.
_FOLDERS = ["", "cp", "cp/inner", "a/b=1/cp", "cp2"]
_TELLING = {"metadata": "metadata", "offsets": "offsets/10", "commits": "commits/9"}
_PARTS = {**_TELLING, "sources": "sources/0/0", "state": "state/0/1/left/2.delta", "rows": "part-1.parquet"}


@settings(max_examples=EXAMPLES // 4)
@given(st.dictionaries(st.sampled_from(_FOLDERS), st.sets(st.sampled_from(list(_PARTS)), min_size=1)))
def test_of_any_folders_the_streaming_checkpoints_are_left(found: dict[str, set[str]]) -> None:
    clock = Clock()
    table = compacted(clock)
    checkpoints = {folder for folder, parts in found.items() if len(parts & _TELLING.keys()) > 1}
    left, others = set[str](), set[str]()
    for folder, parts in found.items():
        for part in parts:
            path = put(table, clock, f"{folder}/{_PARTS[part]}".lstrip("/"), days_ago=18)
            is_inside = any(path.startswith(f"{outer}/") for outer in checkpoints - {""})
            is_of_table = "" in checkpoints and folder == "" and part != "rows"
            (left if is_inside or is_of_table else others).add(path)
    report = vacuum(table)
    assert report.checkpoints == tuple(sorted(folder or "." for folder in checkpoints))
    assert {path for path in report.files if path in left | others} == others
    assert left <= paths(table.store)
    assert read_numbers(reopen(table)) == [1, 2, 3]
