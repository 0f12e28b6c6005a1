"""Clean-up of data files: what goes, what stays, and that a commit in the middle loses nothing."""

from __future__ import annotations

import os
import shutil
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.compaction_daemon.support import z85
from tests.log.faults import Deleting
from tests.log.support import (
    START_MS,
    Clock,
    add,
    bitmap,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_commit,
    put_foreign,
    read_numbers,
    remove,
    reopen,
    stage_compaction,
    vector_file,
)
from tidelog.compaction_daemon import expire, vacuum
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableReplacedError, UnsupportedFeatureError
from tidelog.log.format.actions import AddCDCFile, AddFile, DeletionVectorDescriptor, Protocol, encode_action
from tidelog.log.state import files
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import to_datetime

DAY = 86_400_000
HOUR = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> Table:
    """Two inserts on day 1, compacted on day 2, one more insert on day 3; now it is day 20."""
    made = new_table(memory_store(clock), system=clock)
    clock.ms = START_MS + DAY
    for number in (1, 2):
        made.insert(numbers([number]))
    clock.ms = START_MS + 2 * DAY
    stage_compaction(made).commit()
    clock.ms = START_MS + 3 * DAY
    made.insert(numbers([3]))
    clock.ms = START_MS + 20 * DAY
    return made


def put(table: Table, clock: Clock, path: str, *, days_ago: float, content: bytes = b"x") -> str:
    now = clock.ms
    clock.ms = now - int(days_ago * DAY)
    table.store.put_if_absent(path, content)
    clock.ms = now
    return path


def paths(store: Store) -> set[str]:
    return {path for path, _ in store.walk() if not path.startswith("_delta_log/")}


def test_what_no_version_needs_any_more_goes(table: Table, clock: Clock) -> None:
    replaced = set(table.at(version=2).files()["path"].to_pylist())
    live = set(table.at().files()["path"].to_pylist())
    orphan = put(table, clock, "ab/part-orphan.parquet", days_ago=8, content=b"12345")
    sizes = sum(status.size_bytes for path, status in table.store.walk() if path in replaced | {orphan})
    report = vacuum(table)
    assert paths(table.store) == live
    assert set(report.files) == replaced | {orphan}
    assert (report.data_files, report.bytes_deleted, report.failed) == (3, sizes, ())
    assert (report.earliest_version, report.cutoff) == (4, to_datetime(clock.ms - 7 * DAY))
    assert report.did_anything
    assert read_numbers(reopen(table)) == [1, 2, 3]
    again = vacuum(table)
    assert (again.files, again.did_anything) == ((), False)


def test_a_dry_run_lists_and_deletes_nothing(table: Table) -> None:
    before = paths(table.store)
    dry = vacuum(table, dry_run=True)
    assert paths(table.store) == before
    assert not dry.did_anything
    assert len(dry.files) == 2
    wet = vacuum(table)
    assert {**dry.to_dict(), "dry_run": False} == wet.to_dict()
    assert encode_action(wet.to_dict())


@pytest.mark.parametrize(
    ("days", "left"),
    [
        # The compaction was 18 days ago: a reader at the cut-off sees its inputs until then.
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


def test_the_changes_since_the_cutoff_can_be_read(table: Table) -> None:
    """The feed reads the files that commits named, which a compaction has replaced since."""
    vacuum(table, older_than=timedelta(days=18, hours=12))
    assert sorted(table.changes(after=0).to_arrow()["n"].to_pylist()) == [1, 2, 3]


def test_a_tombstones_own_time_is_not_believed_where_the_log_knows_better(table: Table, clock: Clock) -> None:
    (file, *_) = live_files(table)
    put_foreign(table, remove(file, deletion_timestamp=1))
    table.refresh()
    clock.ms = int(table.at().timestamp.timestamp() * 1000) + DAY
    assert file.path not in vacuum(table, older_than=timedelta(days=1, hours=1)).files
    clock.ms += DAY
    assert file.path in vacuum(table, older_than=timedelta(days=1)).files


def test_a_file_that_came_back_for_a_while_stays_for_the_versions_that_had_it(table: Table, clock: Clock) -> None:
    (file, _) = live_files_at(table, 2)
    put_at(table, {"inCommitTimestamp": clock.ms}, file)
    put_at(table, {"inCommitTimestamp": clock.ms + 1}, remove(file, deletion_timestamp=1))
    vacuum(table)
    assert len(read_numbers(table.at(version=5))) == 4
    assert read_numbers(table.at(version=6)) == [1, 2, 3]


def test_a_tombstone_is_believed_where_the_log_is_gone(clock: Clock) -> None:
    """The log below the checkpoint is cleaned, so only the tombstone tells when the file left the table."""
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


# --- what is young ---------------------------------------------------------------------------------------------------


def test_what_a_running_transaction_wrote_stays(table: Table, clock: Clock) -> None:
    vacuum(table)
    transaction = table.begin().insert(numbers([4]))
    clock.ms += 6 * DAY
    assert vacuum(table).files == ()
    transaction.commit()
    assert read_numbers(reopen(table)) == [1, 2, 3, 4]


def test_the_longest_transaction_counts_where_the_retention_is_shorter(clock: Clock) -> None:
    properties = {"delta.deletedFileRetentionDuration": "1 hour", "tidelog.maxTransactionTime": "2 days"}
    table = new_table(memory_store(clock), properties=properties, system=clock)
    clock.ms += 10 * DAY
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


# --- places ----------------------------------------------------------------------------------------------------------

OWN = [
    "x",
    "notes.txt",
    "p=1/part.parquet",
    "deletion_vector_1.bin",
    "_dv/deletion_vector_2.bin",
    "_change_data/c.parquet",
    "_change_data/p=1/c.parquet",
    "_tidelog/rowmaps/7.arrow",
]
NOT_OWN = [
    "_SUCCESS",
    ".x",
    "ab/.x.crc",
    "_other/x",
    ".other/x",
    "ab/_temporary/0/x",
    "_tidelog/leases/0.json",
    "_tidelog/consumers/c.json",
    "_delta_log/_sidecars/x.parquet",
    "_delta_log/notes",
    "inner/_delta_log/00000000000000000000.json",
    "inner/part.parquet",
    "inner/ab/part.parquet",
]


def test_only_places_of_the_tables_own_are_cleaned(table: Table, clock: Clock) -> None:
    vacuum(table)
    for path in [*OWN, *NOT_OWN]:
        put(table, clock, path, days_ago=8)
    report = vacuum(table)
    assert sorted(report.files) == sorted(OWN)
    assert (report.data_files, report.deletion_vectors, report.change_files, report.row_maps) == (3, 2, 2, 1)
    assert {path for path, _ in table.store.walk()} >= set(NOT_OWN)


@pytest.mark.parametrize(
    "spelled",
    [
        "{root}/ab/a%20b.parquet",
        "file:{root}/ab/a%20b.parquet",
        "file://{root}/ab/a%20b.parquet",
        "file://{root}/../t/./ab/a%20b.parquet",
        "file://{linked}/ab/a%20b.parquet",
        "../t/ab/a%20b.parquet",
        "ab/a%20b.parquet",
        "./ab//a%20b.parquet",
    ],
)
def test_a_live_file_stays_however_the_log_spells_it(tmp_path: Path, spelled: str) -> None:
    root, linked = tmp_path / "t", tmp_path / "linked"
    clock = Clock()
    table = new_table(LocalStore(str(root)), system=clock)
    table.insert(numbers([1]))
    (written,) = live_files(table)
    linked.symlink_to(root)
    (root / "ab").mkdir(exist_ok=True)
    shutil.copy(root / written.path, root / "ab/a b.parquet")
    (root / "ab/orphan.parquet").write_bytes(b"")
    uri = spelled.format(root=root, linked=linked)
    put_foreign(table, remove(written), msgspec.structs.replace(written, path=uri))
    age(root, days=100)
    clock.ms += 1000 * DAY
    clock.ms = max(clock.ms, int((root / "ab/orphan.parquet").stat().st_mtime * 1000) + 50 * DAY)
    table = Table(table.store, load(table.store), clock)
    assert read_numbers(table) == [1]
    assert set(vacuum(table).files) == {written.path, "ab/orphan.parquet"}
    assert read_numbers(reopen(table)) == [1]


def age(root: Path, *, days: int) -> None:
    for path in root.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            moment = path.stat().st_mtime - days * 86_400
            os.utime(path, (moment, moment))


def test_a_file_outside_the_table_is_never_touched(tmp_path: Path) -> None:
    """A shallow clone's files, and what links lead to."""
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    (outside / "part.parquet").write_bytes(b"x")
    clock = Clock()
    table = new_table(LocalStore(str(root)), system=clock)
    foreign = add(f"file://{outside}/part.parquet")
    put_foreign(table, foreign)
    put_foreign(table, remove(foreign, deletion_timestamp=START_MS))
    (root / "link").symlink_to(outside)
    (root / "part.parquet").symlink_to(outside / "part.parquet")
    age(tmp_path, days=100)
    clock.ms += 10_000 * DAY
    assert vacuum(table).files == ()
    assert (outside / "part.parquet").read_bytes() == b"x"


def test_hadoops_hidden_checksums_go_with_their_files_and_names_that_are_no_text_stay(tmp_path: Path) -> None:
    root = tmp_path / "t"
    clock = Clock()
    table = new_table(LocalStore(str(root)), system=clock)
    (root / "ab").mkdir()
    for name in ("part.parquet", ".part.parquet.crc", ".other.crc"):
        (root / "ab" / name).write_bytes(b"x")
    (root / "top.parquet").write_bytes(b"x")
    (root / ".top.parquet.crc").write_bytes(b"x")
    odd = os.path.join(os.fsencode(root), b"\xff\xfe.parquet")  # noqa: PTH118 - bytes
    Path(os.fsdecode(odd)).write_bytes(b"x")
    clock.ms += 10_000 * DAY
    assert set(vacuum(table).files) == {"ab/part.parquet", "top.parquet"}
    assert sorted(path.name for path in (root / "ab").iterdir()) == [".other.crc"]
    assert not (root / ".top.parquet.crc").exists()
    assert Path(os.fsdecode(odd)).exists()


# --- deletion vectors and change data --------------------------------------------------------------------------------


def put_stored_vector(table: Table, clock: Clock, positions: list[int], *, days_ago: int) -> DeletionVectorDescriptor:
    """A deletion vector below `_dv/`, where tidelog keeps them."""
    name = uuid.uuid4()
    blob = bitmap(positions)
    put(table, clock, f"_dv/deletion_vector_{name}.bin", days_ago=days_ago, content=vector_file(blob))
    text = "_dv" + z85(name.bytes)
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=text, offset=1, size_in_bytes=len(blob), cardinality=len(positions)
    )


def vector_path(vector: DeletionVectorDescriptor, store: Store) -> str:
    known = {z85(uuid.UUID(path[-40:-4]).bytes): path for path, _ in store.walk() if path.endswith(".bin")}
    return known[vector.path_or_inline_dv[3:]]


def test_a_deletion_vector_stays_as_long_as_a_version_needs_it(clock: Clock) -> None:
    table = new_table(memory_store(clock), system=clock)
    table.insert(numbers(range(10)))
    (file,) = live_files(table)
    first = put_stored_vector(table, clock, [0], days_ago=0)
    second = put_stored_vector(table, clock, [0, 1], days_ago=0)
    orphan = put_stored_vector(table, clock, [5], days_ago=0)
    with_first = msgspec.structs.replace(file, deletion_vector=first)
    put_foreign(table, remove(file, deletion_timestamp=clock.ms), with_first)
    gone = vector_path(first, table.store), vector_path(orphan, table.store)
    clock.ms += 10 * DAY
    table.refresh()
    # As another writer commits it: with a time of now.
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


def put_at(table: Table, info: dict[str, Any], *actions: Any) -> None:
    put_commit(table.store, table.refresh().version + 1, *actions, info=info)


def test_change_files_stay_while_their_version_is_retained(clock: Clock) -> None:
    table = new_table(memory_store(clock), properties={"delta.enableChangeDataFeed": True}, system=clock)
    for day in (0, 5, 10):
        clock.ms = START_MS + day * DAY
        path = f"_change_data/c-{day}.parquet"
        table.store.put_if_absent(path, b"x")
        cdc = AddCDCFile(path=path, partition_values={}, size=1)
        put_at(table, {"inCommitTimestamp": clock.ms + 1}, cdc)
    clock.ms = START_MS + 13 * DAY
    table = Table(table.store, load(table.store), clock)
    # Changes after day 6 are those of day 10, and the version of day 5 is where they begin.
    report = vacuum(table)
    assert (report.files, report.change_files) == (("_change_data/c-0.parquet", "_change_data/c-5.parquet"), 2)


# --- races and failures ----------------------------------------------------------------------------------------------


def with_deletions(table: Table, clock: Clock, **how: Any) -> tuple[Table, Deleting]:
    store = Deleting(table.store, **how)
    return Table(store, load(store), clock), store


class Racing(Deleting):
    """Runs `also` once, at the end of the first walk: after the looking, before the deleting."""

    def walk(self, folder: str = "") -> Any:
        yield from super().walk(folder)
        also, self._also = self._also, None
        if also:
            also("")


def test_a_file_that_a_commit_names_meanwhile_stays(table: Table, clock: Clock) -> None:
    """A restore of an old version, say, or another writer that takes up an old file."""
    orphan = put(table, clock, "ab/a b.parquet", days_ago=8)
    other = put(table, clock, "ab/other.parquet", days_ago=8)
    replaced = live_files_at(table, 2)

    def take_up(_: str) -> None:
        put_foreign(table, add("ab/a%20b.parquet"), replaced[0])

    store = Racing(table.store, also=take_up)
    report = vacuum(Table(store, load(store), clock))
    assert set(report.files) == {other, replaced[1].path}
    assert orphan in paths(table.store)
    assert replaced[0].path in paths(table.store)


def live_files_at(table: Table, version: int) -> list[AddFile]:
    return files.to_adds(table.at(version=version).files())


def test_the_head_is_looked_at_again_while_files_are_deleted(table: Table, clock: Clock) -> None:
    for number in range(250):
        put(table, clock, f"orphan-{number:03}", days_ago=8)
    put(table, clock, "z-last", days_ago=8)
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
def test_a_table_that_was_replaced_or_outgrew_us_meanwhile_is_left_alone(
    table: Table, clock: Clock, replace: bool
) -> None:
    def meanwhile(_: str) -> None:
        if not replace:
            put_foreign(table, Protocol(min_reader_version=1, min_writer_version=7, writer_features=("rowTracking",)))
            return
        for status in table.store.list("_delta_log"):
            table.store.delete(f"_delta_log/{status.name}")
        new_table(table.store, system=clock)

    before = paths(table.store)
    store = Racing(table.store, also=meanwhile)
    with pytest.raises(TableReplacedError if replace else UnsupportedFeatureError):
        vacuum(Table(store, load(store), clock))
    assert paths(table.store) == before


def test_a_table_of_an_unknown_feature_is_left_alone(table: Table) -> None:
    put_foreign(table, Protocol(min_reader_version=1, min_writer_version=7, writer_features=("somethingNew",)))
    before = paths(table.store)
    with pytest.raises(UnsupportedFeatureError, match="somethingNew"):
        vacuum(table)
    assert paths(table.store) == before


def test_the_check_before_a_vacuum_that_a_table_may_ask_for_is_made(table: Table) -> None:
    features = ("vacuumProtocolCheck", "inCommitTimestamp")
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=features[:1], writer_features=features
    )
    put_foreign(table, protocol)
    assert vacuum(table).did_anything


def test_one_file_that_cannot_be_deleted_does_not_stop_the_others(table: Table, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        put(table, clock, name, days_ago=8)
    vacuum(table, older_than=timedelta(days=9))
    failing, store = with_deletions(table, clock, suffix="b")
    report = vacuum(failing)
    assert sorted(report.files) == ["a", "c"]
    ((path, error),) = report.failed
    assert (path, error.startswith("TIDELOG_STORE_UNAVAILABLE")) == ("b", True)
    assert report.to_dict()["failed"] == [{"path": "b", "error": error}]
    assert report.bytes_deleted == 2
    assert "b" in paths(store)


def test_after_a_crash_the_next_call_ends_the_work(table: Table, clock: Clock) -> None:
    for number in range(5):
        put(table, clock, f"{number}", days_ago=8)

    def crash(path: str) -> None:
        if path == "3":
            raise KeyboardInterrupt

    failing, _ = with_deletions(table, clock, also=crash)
    with pytest.raises(KeyboardInterrupt):
        vacuum(failing)
    assert read_numbers(reopen(table)) == [1, 2, 3]
    vacuum(table)
    assert paths(table.store) == set(table.at().files()["path"].to_pylist())


def test_both_clean_ups_together(table: Table, clock: Clock) -> None:
    table.checkpoint()
    assert expire(table, older_than=timedelta(days=2)).earliest_version == 4
    assert len(vacuum(table).files) == 2
    fresh = Table(table.store, load(table.store), clock)
    assert read_numbers(fresh) == [1, 2, 3]
    fresh.insert(numbers([4]))
    assert read_numbers(reopen(fresh)) == [1, 2, 3, 4]


def test_a_path_will_do(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    table.insert(numbers([1]))
    assert vacuum(table.path).files == ()
