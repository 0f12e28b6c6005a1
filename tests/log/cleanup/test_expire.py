"""Clean-up of the log: cut-offs, reports and other files in the log folder."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.log.cleanup.support import (
    DAY,
    daily,
    damage,
    log_names,
    require_every_version,
    require_versions_since,
    versions_of,
    written_when_committed,
)
from tests.log.support import START_MS, Clock, add, memory_store, metadata, numbers, put_commit
from tidelog.compaction_daemon import expire
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import Protocol, encode_action
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import to_datetime


@pytest.fixture
def table(clock: Clock) -> Table:
    return daily(memory_store(clock), clock)


def test_files_that_no_version_since_the_cutoff_needs_are_deleted(table: Table) -> None:
    # The version at the cut-off is 8, and the newest checkpoint to rebuild it from is 6.
    report = expire(table, older_than=timedelta(days=1, hours=12))
    assert versions_of(table.store) == versions_of(table.store, ".crc") == [6, 7, 8, 9, 10, 11]
    assert versions_of(table.store, ".checkpoint.parquet") == [6, 9]
    assert (report.earliest_version, report.commits, report.checkpoints, report.others) == (6, 6, 1, 6)
    assert report.cutoff == to_datetime(START_MS + 8 * DAY + DAY // 2)
    assert report.did_anything
    assert report.reason == ""
    assert (report.commit_version, table.version, table.transactions) == (11, 11, {"tidelog/floor": 6})
    require_versions_since(table, 6)


def test_there_is_no_commit_without_a_version_to_delete(table: Table) -> None:
    assert expire(table, older_than=timedelta(days=1, hours=12)).commit_version == 11
    again = expire(table, older_than=timedelta(days=1, hours=12))
    assert (again.commit_version, again.files) == (None, ())
    assert table.refresh().version == 11


def test_a_checkpoint_exactly_at_the_cutoff_is_old_enough(table: Table) -> None:
    assert expire(table, older_than=to_datetime(START_MS + 9 * DAY)).earliest_version == 9
    require_versions_since(table, 9)


def test_a_checkpoint_after_the_cutoff_is_too_young(table: Table) -> None:
    assert expire(table, older_than=to_datetime(START_MS + 9 * DAY - 1)).earliest_version == 6


def test_the_retention_property_ends_at_midnight(clock: Clock) -> None:
    properties = {"delta.enableExpiredLogCleanup": True, "delta.logRetentionDuration": "2 days"}
    table = daily(memory_store(clock), clock, every=1, properties=properties)
    # Now is day 10 at 22:13. Two days before is day 8, whose midnight is just before commit 8.
    assert expire(table).earliest_version == 7
    require_versions_since(table, 7)


def test_a_new_table_is_cleaned_up_though_other_engines_must_not(table: Table, clock: Clock) -> None:
    assert table.properties["delta.enableExpiredLogCleanup"] == "false"
    clock.ms += 100 * DAY
    assert expire(table).earliest_version == 9


def test_a_table_with_clean_up_disabled_needs_an_explicit_age(table: Table, clock: Clock) -> None:
    table.set_properties({"tidelog.cleanUp": False})
    clock.ms += 100 * DAY
    report = expire(table)
    assert (report.files, report.earliest_version, report.did_anything) == ((), 0, False)
    assert "tidelog.cleanUp and delta.enableExpiredLogCleanup are off" in report.reason
    assert expire(table, older_than=timedelta(days=30)).earliest_version == 9


def test_a_table_of_another_writer_is_cleaned_up_by_default(clock: Clock) -> None:
    store = memory_store(clock)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    put_commit(store, 0, protocol, metadata(configuration={}), info={"inCommitTimestamp": None})
    for version in range(1, 5):
        clock.ms += DAY
        put_commit(store, version, add(f"{version}"), info={"inCommitTimestamp": None})
    Table(store, load(store), clock).checkpoint()
    clock.ms += 40 * DAY
    assert expire(Table(store, load(store), clock)).earliest_version == 4


@pytest.mark.parametrize("older_than", [timedelta(0), timedelta(hours=23), "7 days"])
def test_too_short_an_age_is_refused(table: Table, older_than: Any) -> None:
    with pytest.raises(ConfigurationError):
        expire(table, older_than=older_than)
    assert versions_of(table.store) == list(range(11))


def test_a_path_instead_of_a_table(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    assert expire(table.path, older_than=timedelta(days=1)).reason.startswith("no commit is older")


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_reports_the_same_and_deletes_nothing(table: Table) -> None:
    before = log_names(table.store)
    dry = expire(table, older_than=timedelta(days=2), dry_run=True)
    assert log_names(table.store) == before
    assert not dry.did_anything
    real = expire(table, older_than=timedelta(days=2))
    assert dry.files == real.files != ()
    assert {**dry.to_dict(), "dry_run": False, "commit_version": 11} == real.to_dict()
    assert set(before) - set(log_names(table.store)) == {path.removeprefix("_delta_log/") for path in real.files}


def test_the_report_as_a_dict_is_json(table: Table) -> None:
    found = expire(table, older_than=timedelta(days=2)).to_dict()
    assert found["cutoff"] == to_datetime(START_MS + 8 * DAY).isoformat().replace("+00:00", "Z")
    assert isinstance(found["files"], list)
    assert encode_action(found)


def test_a_second_call_finds_nothing(table: Table) -> None:
    expire(table, older_than=timedelta(days=2))
    second = expire(table, older_than=timedelta(days=2))
    assert (second.files, second.reason) == ((), "version 6 is already the oldest one")


@pytest.mark.parametrize(
    ("days", "reason"), [(11, "no commit is older than"), (8, "there is no readable checkpoint at or before")]
)
def test_the_reason_for_finding_nothing(table: Table, days: int, reason: str) -> None:
    report = expire(table, older_than=timedelta(days=days))
    assert report.files == ()
    assert report.reason.startswith(reason)
    require_every_version(table)


# --- other files in the log folder -----------------------------------------------------------------------------------


def test_unknown_files_in_the_log_folder_stay(table: Table) -> None:
    others = ["_delta_log/notes.txt", f"_delta_log/{0:020d}.json.bak", "_delta_log/_staged_commits/x.json"]
    for path in others:
        table.store.put_if_absent(path, b"")
    assert expire(table, older_than=timedelta(days=2)).did_anything
    assert all(table.store.read(path) == b"" for path in others)


def test_unused_sidecars_and_temporary_files_are_deleted_after_a_day(table: Table, clock: Clock) -> None:
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


def test_sidecars_stay_if_a_checkpoint_that_could_name_them_is_unreadable(table: Table, clock: Clock) -> None:
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


def test_hidden_hadoop_checksums_are_deleted_with_their_files(tmp_path: Path) -> None:
    clock = Clock()
    store = LocalStore(str(tmp_path / "t"))
    written_when_committed(daily(store, clock))
    log = tmp_path / "t" / "_delta_log"
    for version in range(11):
        (log / f".{version:020d}.json.crc").write_bytes(b"crc")
    expire(Table(store, load(store), clock), older_than=timedelta(days=2))
    assert sorted(path.name for path in log.glob(".*.crc")) == [f".{version:020d}.json.crc" for version in range(6, 11)]
