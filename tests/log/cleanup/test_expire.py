"""Clean-up of the log: what goes, what stays, and that a crash or a damaged checkpoint costs nothing."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import numbers_of
from tests.log.faults import Deleting
from tests.log.support import (
    START_MS,
    Clock,
    add,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_commit,
    put_foreign,
    read_numbers,
    reopen,
)
from tidelog.compaction_daemon import expire
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    HistoryExpiredError,
    StoreUnavailableError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from tidelog.log.format import filenames
from tidelog.log.format.actions import Protocol, encode_action
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import to_datetime
from tidelog.streaming.datasource.feed_planner import FeedPlanner
from tidelog.streaming.datasource.offsets import Offset
from tidelog.streaming.sink.ledger import BatchStatus, Ledger
from tidelog.streaming.sink.micro_batch import MicroBatch

DAY = 86_400_000


def daily(
    store: Store, clock: Clock, *, days: int = 10, every: int = 3, properties: Mapping[str, object] | None = None
) -> Table:
    """Version n is the insert of n at day n, with a checkpoint every few versions."""
    table = new_table(store, system=clock, properties=properties)
    for day in range(1, days + 1):
        clock.ms = START_MS + day * DAY
        table.insert(numbers([day]))
        if day % every == 0:
            table.checkpoint()
    return table


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> Table:
    return daily(memory_store(clock), clock)


def log_names(store: Store) -> list[str]:
    return [status.name for status in store.list("_delta_log")]


def versions_of(store: Store, suffix: str = ".json") -> list[int]:
    return [int(name[:20]) for name in log_names(store) if name[20:] == suffix]


def reads_all(table: Table, earliest: int, days: int = 10) -> None:
    fresh = reopen(table)
    assert read_numbers(fresh) == list(range(1, days + 1))
    for version in range(earliest, days + 1):
        assert read_numbers(fresh.at(version=version)) == list(range(1, version + 1))
        assert fresh.at(version=version).timestamp == to_datetime(START_MS + version * DAY)
    with pytest.raises(HistoryExpiredError) as gone:
        fresh.at(version=earliest - 1)
    assert gone.value.earliest_version == earliest


def test_what_no_version_since_the_cutoff_needs_goes(table: Table) -> None:
    # The version at the cut-off is 8; 6 is the newest checkpoint that it can be rebuilt from.
    report = expire(table, older_than=timedelta(days=1, hours=12))
    assert versions_of(table.store) == versions_of(table.store, ".crc") == [6, 7, 8, 9, 10]
    assert versions_of(table.store, ".checkpoint.parquet") == [6, 9]
    assert (report.earliest_version, report.commits, report.checkpoints, report.others) == (6, 6, 1, 6)
    assert report.cutoff == to_datetime(START_MS + 8 * DAY + DAY // 2)
    assert report.did_anything
    assert report.reason == ""
    reads_all(table, 6)


def test_the_version_of_a_commit_at_the_cutoff_itself_can_be_its_checkpoint(table: Table) -> None:
    assert expire(table, older_than=to_datetime(START_MS + 9 * DAY)).earliest_version == 9
    reads_all(table, 9)


def test_a_commit_after_the_cutoff_cannot(table: Table) -> None:
    assert expire(table, older_than=to_datetime(START_MS + 9 * DAY - 1)).earliest_version == 6


def test_the_property_counts_in_whole_days(clock: Clock) -> None:
    properties = {"delta.enableExpiredLogCleanup": True, "delta.logRetentionDuration": "2 days"}
    table = daily(memory_store(clock), clock, every=1, properties=properties)
    # Now is day 10 at 22:13; two days before is day 8, and its midnight lies just before commit 8.
    assert expire(table).earliest_version == 7
    reads_all(table, 7)


def test_a_table_that_wants_no_clean_up_gets_one_only_by_an_explicit_age(table: Table, clock: Clock) -> None:
    clock.ms += 100 * DAY
    report = expire(table)
    assert (report.files, report.earliest_version, report.did_anything) == ((), 0, False)
    assert "delta.enableExpiredLogCleanup is false" in report.reason
    assert expire(table, older_than=timedelta(days=30)).earliest_version == 9


def test_another_writers_table_is_cleaned_by_default(clock: Clock) -> None:
    store = memory_store(clock)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    put_commit(store, 0, protocol, metadata(configuration={}), info={"inCommitTimestamp": None})
    for version in range(1, 5):
        clock.ms += DAY
        put_commit(store, version, add(f"{version}"), info={"inCommitTimestamp": None})
    Table(store, load(store), clock).checkpoint()
    clock.ms += 40 * DAY
    assert expire(Table(store, load(store), clock)).earliest_version == 4


def test_a_dry_run_says_the_same_and_deletes_nothing(table: Table) -> None:
    before = log_names(table.store)
    dry = expire(table, older_than=timedelta(days=2), dry_run=True)
    assert log_names(table.store) == before
    assert not dry.did_anything
    wet = expire(table, older_than=timedelta(days=2))
    assert dry.files == wet.files != ()
    assert {**dry.to_dict(), "dry_run": False} == wet.to_dict()
    assert set(before) - set(log_names(table.store)) == {path.removeprefix("_delta_log/") for path in wet.files}


def test_the_report_is_plain(table: Table) -> None:
    found = expire(table, older_than=timedelta(days=2)).to_dict()
    assert found["cutoff"] == to_datetime(START_MS + 8 * DAY).isoformat()
    assert isinstance(found["files"], list)
    assert encode_action(found)


def test_a_second_call_finds_nothing(table: Table) -> None:
    expire(table, older_than=timedelta(days=2))
    again = expire(table, older_than=timedelta(days=2))
    assert (again.files, again.reason) == ((), "version 6 is already the oldest one")


@pytest.mark.parametrize(
    ("days", "reason"), [(11, "no commit is older than"), (8, "there is no readable checkpoint at or before")]
)
def test_why_nothing_is_found(table: Table, days: int, reason: str) -> None:
    report = expire(table, older_than=timedelta(days=days))
    assert report.files == ()
    assert report.reason.startswith(reason)
    reads_all_from_zero(table)


def reads_all_from_zero(table: Table) -> None:
    for version in range(11):
        assert read_numbers(reopen(table).at(version=version)) == list(range(1, version + 1))


# --- checkpoints that cannot be trusted ------------------------------------------------------------------------------


def damage(table: Table, version: int, how: str) -> None:
    path = filenames.checkpoint_path(version)
    content = table.store.read(path)
    match how:
        case "empty":
            content = b""
        case "cut":
            content = content[: len(content) // 2]
        case "garbage in the middle":
            content = content[:2000] + bytes(500) + content[2500:]
        case "of another version":
            content = table.store.read(filenames.checkpoint_path(version - 3))
        case "gone":
            table.store.delete(path)
            return
        case other:
            raise AssertionError(other)
    table.store.replace(path, content)


@pytest.mark.parametrize("how", ["empty", "cut", "garbage in the middle", "of another version", "gone"])
def test_a_damaged_checkpoint_makes_no_commit_go(table: Table, how: str) -> None:
    damage(table, 6, how)
    report = expire(table, older_than=timedelta(days=2))
    assert report.earliest_version == 3
    for version in range(3, 11):
        if version not in (6, 7, 8) or how != "of another version":
            assert read_numbers(reopen(table).at(version=version)) == list(range(1, version + 1))


def test_an_incomplete_checkpoint_makes_no_commit_go(table: Table) -> None:
    part = f"_delta_log/{8:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    table.store.put_if_absent(part, table.store.read(filenames.checkpoint_path(9)))
    assert expire(table, older_than=timedelta(days=2)).earliest_version == 6
    assert part.removeprefix("_delta_log/") in log_names(table.store)


def test_no_sound_checkpoint_no_clean_up(table: Table) -> None:
    for version in (3, 6):
        damage(table, version, "cut")
    assert expire(table, older_than=timedelta(days=2)).files == ()
    reads_all_from_zero(table)


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_crash_after_any_deletion_leaves_a_readable_table_and_the_next_call_ends_the_work(clock: Clock) -> None:
    allowed, total = 0, 1
    while allowed < total:
        clock.ms = START_MS
        store = memory_store(clock)
        table = daily(store, clock)
        # Something of every kind, and a pointer that names a checkpoint which goes.
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
        assert versions_of(store) == [6, 7, 8, 9, 10]
        reads_all(table, 6)
        allowed += 1
    assert total == 16


def check_readable(store: Store) -> None:
    """No version is half there: it reads its rows, or it is said to be gone."""
    found = versions_of(store)
    assert found == list(range(found[0], 11)), "a hole"
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


def test_a_pointer_to_a_checkpoint_that_stays_is_kept(table: Table) -> None:
    expire(table, older_than=timedelta(days=2))
    assert "_last_checkpoint" in log_names(table.store)


# --- what else lies there --------------------------------------------------------------------------------------------


def test_other_files_of_the_log_folder_stay(table: Table) -> None:
    others = ["_delta_log/notes.txt", f"_delta_log/{0:020d}.json.bak", "_delta_log/_staged_commits/x.json"]
    for path in others:
        table.store.put_if_absent(path, b"")
    assert expire(table, older_than=timedelta(days=2)).did_anything
    assert all(table.store.read(path) == b"" for path in others)


def test_sidecars_and_temporary_files_that_nobody_names_go_after_a_day(table: Table, clock: Clock) -> None:
    now = clock.ms
    temporary = f"_delta_log/.{uuid.uuid4()}.tmp"
    put_v2_checkpoint(table, 10, "named.parquet")
    for at, paths in {
        now - 3 * DAY: ["_delta_log/_sidecars/old.parquet", temporary],
        now: ["_delta_log/_sidecars/young.parquet", f"_delta_log/.{uuid.uuid4()}.tmp"],
    }.items():
        clock.ms = at
        for path in paths:
            table.store.put_if_absent(path, b"")
    clock.ms = now
    report = expire(table, older_than=timedelta(days=9, hours=12))
    assert set(report.files) == {"_delta_log/_sidecars/old.parquet", temporary}


def test_sidecars_stay_while_a_checkpoint_that_might_name_them_cannot_be_read(table: Table, clock: Clock) -> None:
    clock.ms -= 3 * DAY
    put_v2_checkpoint(table, 10, "named.parquet")
    clock.ms += 3 * DAY
    damage(table, 9, "cut")
    assert expire(table, older_than=timedelta(days=9, hours=12)).files == ()


def put_v2_checkpoint(table: Table, version: int, sidecar: str) -> None:
    lines = [
        {"checkpointMetadata": {"version": version}},
        {"sidecar": {"path": sidecar, "sizeInBytes": 1, "modificationTime": 1}},
    ]
    name = f"_delta_log/{version:020d}.checkpoint.{uuid.uuid4()}.json"
    table.store.put_if_absent(name, b"\n".join(encode_action(line) for line in lines))
    table.store.put_if_absent(f"_delta_log/_sidecars/{sidecar}", b"")


# --- commit times ----------------------------------------------------------------------------------------------------


def test_without_in_commit_timestamps_no_commit_time_changes(tmp_path: Path) -> None:
    """A copy left the file times out of order; a commit whose time rests on the one before it cannot be the first."""
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
    # The version at the cut-off (day 5.5) is 4 by its time of day 5 and 2 ms; 3 and 4 lean on 2.
    assert report.earliest_version == 2
    assert {version: reopen(table).at(version=version).timestamp for version in range(2, 7)} == {
        version: time for version, time in times.items() if version >= 2
    }


# --- readers and writers beside it -----------------------------------------------------------------------------------


def test_a_feed_that_lags_behind_is_told(table: Table, clock: Clock) -> None:
    behind, abreast = (FeedPlanner(Table(table.store, load(table.store)), clock) for _ in range(2))
    expire(table, older_than=timedelta(days=2))
    with pytest.raises(HistoryExpiredError) as gone:
        behind.advance(Offset(table.id, 4), 10, None)
    assert (gone.value.earliest_version, gone.value.latest_version) == (6, 10)
    with pytest.raises(HistoryExpiredError):
        table.changes(after=4)
    assert abreast.advance(Offset(table.id, 5), 10, None) == Offset(table.id, 10)
    assert sorted(table.changes(after=5).to_arrow()["n"].to_pylist()) == [6, 7, 8, 9, 10]


def test_a_reader_and_a_writer_that_were_there_before_go_on(table: Table) -> None:
    other, old = Table(table.store, load(table.store)), table.at(version=7)
    transaction = other.begin().insert(numbers([11]))
    expire(table, older_than=timedelta(days=2))
    assert read_numbers(old) == list(range(1, 8))
    transaction.commit()
    assert numbers_of(table) == list(range(1, 12))


def test_what_a_stream_wrote_last_is_still_known(clock: Clock) -> None:
    """The ledger's entries are in the checkpoint: a replayed batch is skipped after the clean-up as before it."""
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
    assert fresh.insert(numbers([4]), idempotency_key=("job", 4)).version == fresh.version == 6


def test_a_table_of_an_unknown_feature_is_left_alone(table: Table) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("catalogManaged",))
    put_foreign(table, protocol)
    before = log_names(table.store)
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
        expire(table, older_than=timedelta(days=2))
    assert log_names(table.store) == before


def test_another_table_in_its_place_is_left_alone(table: Table, clock: Clock) -> None:
    mine = Table(table.store, load(table.store), clock)
    for path, _ in list(table.store.walk()):
        table.store.delete(path)
    daily(table.store, clock)
    with pytest.raises(TableReplacedError):
        expire(mine, older_than=timedelta(days=2))
    assert versions_of(table.store) == list(range(11))


@pytest.mark.parametrize("older_than", [timedelta(0), timedelta(hours=23), "7 days"])
def test_too_short_an_age_is_refused(table: Table, older_than: Any) -> None:
    with pytest.raises(ConfigurationError):
        expire(table, older_than=older_than)
    assert versions_of(table.store) == list(range(11))


def test_a_path_will_do(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    assert expire(table.path, older_than=timedelta(days=1)).reason.startswith("no commit is older")


def test_hadoops_hidden_checksums_go_with_their_files(tmp_path: Path) -> None:
    clock = Clock()
    store = LocalStore(str(tmp_path / "t"))
    daily(store, clock)
    log = tmp_path / "t" / "_delta_log"
    for version in range(11):
        (log / f".{version:020d}.json.crc").write_bytes(b"crc")
    expire(Table(store, load(store), clock), older_than=timedelta(days=2))
    assert sorted(path.name for path in log.glob(".*.crc")) == [f".{version:020d}.json.crc" for version in range(6, 11)]
