"""A purge: deleted rows leave the newest version, and the disk at the dates that its report names."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import run
from tests.compaction_daemon.support import delete_rows, live_files, memory_table, numbers_of
from tests.compaction_daemon.support import put as put_numbers
from tests.compaction_daemon.upkeep.support import DAY, HOUR, RETENTIONS, Both, through
from tests.log.faults import Refusing
from tests.log.support import memory_store, new_table
from tidelog.compaction_daemon import Budget, Plan, Upkeep, compact, plan
from tidelog.compaction_daemon.rewriting import rewrite
from tidelog.log import Table
from tidelog.log.cleanup import retention
from tidelog.log.consumers.claims import claim
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.storage import Store

PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("part", pa.string())])
# The least name of each file, so that the statistics of files and of the log have it in clear text.
SECRET = "aaa-secret"


def people(first: int, *, part: str = "a") -> pa.Table:
    """Ten people, one of whom asks to be deleted."""
    names = [SECRET, *(f"person {number}" for number in range(first + 1, first + 10))]
    ids = list(range(first, first + 10))
    return pa.table({"id": ids, "name": names, "part": [part] * 10}, schema=PEOPLE)


def people_table(clock: Both, store: Store | None = None, *, clean_up: str = "true") -> Table:
    """A table of two files with a secret each, which a DELETE then marks as deleted."""
    properties = {**RETENTIONS, "delta.enableChangeDataFeed": "true", "tidelog.cleanUp": clean_up}
    table = new_table(store or memory_store(clock), PEOPLE, properties=properties, system=clock)
    for first in (0, 10):
        table.insert(people(first))
        clock.ms += HOUR
    table.update(f"name = '{SECRET}'", {"part": "'b'"})
    table.delete(f"name = '{SECRET}'")
    clock.ms += HOUR
    return table


def partitioned(clock: Both) -> Table:
    """A table of two partitions with a file each, from which a row was deleted."""
    table = new_table(memory_store(clock), PEOPLE, partition_by=["part"], properties=RETENTIONS, system=clock)
    for part in ("a", "b"):
        table.insert(people(0, part=part))
    table.delete(f"name = '{SECRET}'")
    return table


def holding(store: Store) -> list[str]:
    """The files that hold the secret in clear text."""
    found = [path for path, _ in store.walk()] + [f"_delta_log/{status.name}" for status in store.list("_delta_log")]
    return sorted({path for path in found if SECRET.encode() in store.read(path)})


@pytest.fixture
def clock() -> Both:
    return Both()


def test_nothing_holds_deleted_rows_from_the_dates_of_the_report_on(clock: Both) -> None:
    table = people_table(clock)
    before = holding(table.store)
    folders = [path.partition("/")[0] for path in before]
    assert folders.count("_delta_log") == 4  # two inserts, an update and a delete
    assert "_change_data" in folders
    assert len({*folders}) == 5  # and three data files
    report = compact(table, "major", purge=True)
    purge = report.purge
    assert report.version == 5
    assert purge is not None
    assert purge.is_complete
    assert (purge.version, purge.closing_version, purge.files_left, purge.held_by) == (5, 6, 0, ())
    assert table.history(limit=1)[0].operation == "PURGE"
    assert purge.files_expire is not None
    assert purge.history_expires is not None

    clock.ms = round(purge.files_expire.timestamp() * 1000) - 1
    table.vacuum()
    assert any(path.endswith(".parquet") for path in holding(table.store))
    clock.ms += 1
    table.vacuum()
    assert {path.partition("/")[0] for path in holding(table.store)} == {"_delta_log"}

    clock.ms = round(purge.history_expires.timestamp() * 1000) - 1
    table.expire()
    assert holding(table.store)
    clock.ms += 1
    table.expire()
    assert holding(table.store) == []
    assert table.refresh().scan().count() == 18


def test_a_daemon_has_done_all_by_the_date_of_the_report(clock: Both) -> None:
    table = people_table(clock)
    upkeep = Upkeep(system=clock)
    upkeep.run(table)
    # What a writer leaves that is killed before its commit.
    DataWriter(table.store, table.head.metadata, clock).write(table.at(version=1).scan().to_arrow())
    purge = compact(table, "major", purge=True).purge
    assert purge is not None
    assert purge.gone_by is not None
    hours = (purge.gone_by - datetime.fromtimestamp(clock.ms / 1000, UTC)) // timedelta(hours=1)
    through(upkeep, table, clock, hours=hours + 1)
    assert holding(table.store) == []


def test_without_clean_up_nobody_does_it_by_itself(clock: Both) -> None:
    purge = compact(people_table(clock, clean_up="false"), "major", purge=True).purge
    assert purge is not None
    assert purge.files_expire is not None
    assert purge.gone_by is None


def test_a_kept_plan_of_one_partition_closes_the_purge_of_that_partition(clock: Both) -> None:
    table = partitioned(clock)
    kept = plan(table, "major", where="part = 'a'", purge=True)
    purge = compact(table, plan=Plan.from_json(kept.to_json())).purge
    assert purge is not None
    assert (purge.files_left, purge.is_complete) == (0, True)


def test_a_purge_of_a_purged_table_commits_nothing(clock: Both) -> None:
    table = people_table(clock)
    first = compact(table, "major", purge=True).purge
    clock.ms += DAY
    again = compact(table, "major", purge=True)
    assert (again.version, table.refresh().version) == (None, 6)
    assert first is not None
    assert again.purge is not None
    assert (again.purge.closing_version, again.purge.files_expire) == (6, first.files_expire)


def test_a_later_version_gets_a_new_closing_one(clock: Both) -> None:
    table = people_table(clock)
    compact(table, "major", purge=True)
    table.insert(people(20))
    table.delete("id >= 20")
    purge = compact(table, "major", purge=True).purge
    assert purge is not None
    assert purge.version == table.refresh().version - 1
    assert purge.closing_version == table.version


def test_a_purge_that_leaves_files_names_no_date(clock: Both) -> None:
    table = partitioned(clock)
    report = compact(table, "major", purge=True, budget=Budget(size_bytes=1))
    purge = report.purge
    assert purge is not None
    assert not purge.is_complete
    assert (purge.files_left, purge.closing_version, purge.files_expire, purge.gone_by) == (1, None, None, None)
    assert report.groups_left == 1
    assert compact(table, "major", purge=True).purge.is_complete  # type: ignore[union-attr]


def test_a_purge_is_about_the_partitions_that_were_asked_for(clock: Both) -> None:
    table = partitioned(clock)
    purge = compact(table, "major", where="part = 'a'", purge=True).purge
    assert purge is not None
    assert purge.is_complete
    purge = compact(table, "major", where="part = 'c'", purge=True).purge
    assert purge is not None
    assert purge.is_complete
    assert sum(file.deletion_vector is not None for file in live_files(table)) == 1


def test_a_file_with_a_single_dead_row_is_rewritten_even_if_it_becomes_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table()
    put_numbers(table, *range(100))
    delete_rows(table, [7])
    monkeypatch.setattr(rewrite, "fits", lambda *_: False)
    report = compact(table, "major", purge=True)
    assert report.purge is not None
    assert report.purge.is_complete
    assert numbers_of(table) == [number for number in range(100) if number != 7]
    assert live_files(table)[0].deletion_vector is None


def test_a_kept_plan_of_a_purge_has_a_report_as_well(clock: Both) -> None:
    table = people_table(clock)
    kept = plan(table, "major", purge=True)
    purge = compact(table, plan=kept.from_json(kept.to_json())).purge
    assert purge is not None
    assert purge.is_complete
    assert compact(table, "major").purge is None


def test_consumers_that_lag_are_named(clock: Both) -> None:
    table = people_table(clock)
    claim(table.store, table.head, "late", owner="me", position=1, system=clock)
    purge = compact(table, "major", purge=True).purge
    assert purge is not None
    assert purge.held_by == ("late",)


def test_an_error_of_the_closing_commit_is_in_the_report(clock: Both) -> None:
    inner = memory_store(clock)
    table = people_table(clock, inner)
    error = StoreUnavailableError("the store is down", advice="try again", path=inner.url)
    broken = Table(Refusing(inner, suffix=".checkpoint.parquet", error=error), table._state, clock)
    report = compact(broken, "major", purge=True)
    assert report.version == 5
    assert report.purge is not None
    assert not report.purge.is_complete
    assert "the store is down" in str(report.purge.stopped)
    assert report.purge.gone_by is None
    purge = compact(table, "major", purge=True).purge
    assert purge is not None
    assert (purge.closing_version, purge.is_complete) == (6, True)
    assert table.commits_since_checkpoint() == 0


def test_the_command_line_prints_the_dates() -> None:
    table = memory_table()
    put_numbers(table, *range(100))
    delete_rows(table, [7])
    ended = run("compact", table.path, "--level", "major", "--purge")
    assert ended.exit_code == 0
    _, dates, daemon = ended.stdout.splitlines()
    assert f"{table.path}: rows deleted up to version 3 are in no file of the newest version; vacuum deletes" in dates
    assert "a daemon that keeps running has done all of it by" in daemon
    ended = run("compact", table.path, "--level", "major", "--purge", "--json")
    assert ended.exit_code == 4
    assert json.loads(ended.stdout)["purge"]["closing_version"] == 4


DURATIONS = st.integers(1, 72).map(lambda hours: f"{hours} hours")


@given(at_ms=st.integers(DAY * 300, DAY * 302), log=DURATIONS, files=DURATIONS, longest=DURATIONS)
def test_the_dates_are_when_the_cut_offs_reach_a_time(at_ms: int, log: str, files: str, longest: str) -> None:
    configuration = {
        "delta.logRetentionDuration": log,
        "delta.deletedFileRetentionDuration": files,
        "tidelog.maxTransactionTime": longest,
    }
    due_ms = retention.history_expires_ms(at_ms, configuration)
    assert retention.log_cutoff_ms(None, due_ms, configuration) >= at_ms
    assert retention.log_cutoff_ms(None, due_ms - 1, configuration) < at_ms
    due_ms = retention.files_expire_ms(at_ms, configuration)
    assert retention.data_cutoff_ms(None, due_ms, configuration) == at_ms
