"""Upkeep of one table: what is done when, and what a call costs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.compaction_daemon.upkeep.support import DAY, HOUR, RETENTIONS, Both, Requests, busy, through
from tests.log.faults import Deleting
from tests.log.support import memory_store, new_table, numbers, read_numbers, reopen
from tidelog.compaction_daemon import Upkeep
from tidelog.compaction_daemon.upkeep.due import Chore
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.data import key_runs
from tidelog.log.errors import (
    StoreUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from tidelog.log.format.actions import encode_action
from tidelog.log.operations.drop_table import drop
from tidelog.log.operations.tend_index import IndexReport
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import REAL_SYSTEM


def test_a_busy_table_is_expired_and_vacuumed_once_a_day(clock: Both) -> None:
    store = memory_store(clock)
    table = busy(store, clock, days=6)
    upkeep = Upkeep(system=clock)
    assert not upkeep.run(table).did_anything
    reports = through(upkeep, table, clock, hours=2)
    (expiry,) = [report.expiry for report in reports if report.expiry]
    assert expiry.commits > 0
    assert sum(len(report.vacuum.files) for report in reports if report.vacuum) >= 3
    for day in range(6, 12):
        table.overwrite(numbers([day]))
        table.checkpoint()
        reports = through(upkeep, table, clock, hours=24)
        assert [bool(report.expiry) for report in reports].count(True) <= 1
    assert read_numbers(reopen(table)) == [11]
    left = [path for path, _ in store.walk() if path.endswith(".parquet") and not path.startswith("_delta_log")]
    assert len(left) <= 4
    assert len([status for status in store.list("_delta_log") if status.name.endswith("0.json")]) < 6


def test_nothing_due_sends_no_request(clock: Both) -> None:
    store = Requests(memory_store(clock))
    table = new_table(store, properties=RETENTIONS, system=clock)
    table.insert(numbers([1]))
    upkeep = Upkeep(system=clock)
    before = store.count
    for _ in range(100):
        assert not upkeep.run(table).did_anything
        assert upkeep.due(table) == ()
    assert store.count == before


def test_a_key_index_is_tended_after_every_eighth_commit(clock: Both) -> None:
    store = Requests(memory_store(clock))
    table = new_table(store, properties={**RETENTIONS, "tidelog.primaryKey": "n"}, system=clock)
    upkeep = Upkeep(system=clock)
    reports = []
    for number in range(20):
        table.insert(numbers([number]))
        reports.append(upkeep.run(table))
        assert upkeep.due(table) == ()
    tended = {place: report.key_index for place, report in enumerate(reports) if report.key_index is not None}
    assert tended == {0: IndexReport(runs=1), 8: IndexReport(merged=9, runs=1), 16: IndexReport(merged=8, runs=2)}
    assert [report.did_anything for report in reports].count(True) == 2
    before = store.count
    assert not upkeep.run(table).did_anything
    assert store.count == before


@pytest.mark.parametrize("clean_up", [True, False])
def test_tending_a_key_index_goes_on_in_the_next_call(
    clock: Both, monkeypatch: pytest.MonkeyPatch, *, clean_up: bool
) -> None:
    monkeypatch.setattr(key_runs, "BLOCK", 1)
    monkeypatch.setattr(key_runs, "_MERGED_ENTRIES", 1)
    properties = {**RETENTIONS, "tidelog.primaryKey": "n", "tidelog.cleanUp": clean_up}
    table = new_table(memory_store(clock), properties=properties, system=clock)
    for number in range(8):
        table.insert(numbers([number]))
    upkeep = Upkeep(system=clock, budget_s=0)
    reports = []
    while upkeep.due(table):
        reports.append(upkeep.run(table))
    assert [report.running for report in reports[:-1]] == [Chore.KEY_INDEX] * (len(reports) - 1)
    assert len(reports) > 8
    assert reports[-1].key_index == IndexReport(merged=8, runs=1)
    upkeep.run(table)
    table.upsert(numbers([3]))
    assert sorted(read_numbers(table)) == list(range(8))


def test_a_table_that_does_not_change_comes_to_rest(clock: Both) -> None:
    """All that is left is a listing once a week, for files that no commit names."""
    store = Requests(memory_store(clock))
    table = busy(store, clock)
    upkeep = Upkeep(system=clock)
    through(upkeep, table, clock, hours=24 * 14)
    version, before = table.version, store.count
    for _ in range(7):
        clock.ms += DAY
        upkeep.run(table)
    assert table.refresh().version == version
    # The horizon is where it can be. Only the listing has sent requests.
    assert store.count - before < 60
    (listing,) = [each for each in upkeep.run(table).upcoming if each.at is not None]
    assert listing.chore is Chore.LISTING


def test_a_second_daemon_and_a_restart_repeat_nothing(clock: Both) -> None:
    store = memory_store(clock)
    table = busy(store, clock)
    first, second = Upkeep(system=clock), Upkeep(system=clock)
    second.run(Table(store, load(store), clock))
    through(first, table, clock, hours=2)
    requests = Requests(store)
    again = Table(requests, load(requests), clock)
    before = requests.count
    for other in (second, Upkeep(system=clock)):
        for _ in range(4):
            other.run(again)
            clock.ms += HOUR // 2
            assert not other.run(again).did_anything
    # Each has read the record, and found that it was done.
    assert 2 <= requests.count - before <= 8


def test_the_property_turns_clean_up_off_and_checkpoints_stay(clock: Both) -> None:
    store = memory_store(clock)
    table = busy(store, clock, **{"tidelog.cleanUp": False, "delta.checkpointInterval": 3})
    before = {path for path, _ in store.walk()}
    upkeep = Upkeep(system=clock)
    assert through(upkeep, table, clock, hours=200) == []
    assert {path for path, _ in store.walk()} == before
    report = upkeep.run(table)
    assert (report.clean_up, [each.chore for each in report.upcoming]) == (False, [Chore.CHECKPOINT])
    for number in range(3):
        table.insert(numbers([number]))
    assert upkeep.run(table.refresh()).checkpoint == table.version
    table.set_properties({"tidelog.cleanUp": True})
    assert [report for report in through(upkeep, table, clock, hours=2) if report.expiry]


def test_another_engines_table_is_left_alone_until_its_user_says_otherwise(clock: Both) -> None:
    store = memory_store(clock)
    table = busy(store, clock, **{"tidelog.cleanUp": True})
    table.set_properties({"tidelog.cleanUp": None, "delta.enableExpiredLogCleanup": None})
    before = {path for path, _ in store.walk()}
    assert through(Upkeep(system=clock), table, clock, hours=200) == []
    assert {path for path, _ in store.walk()} == before


def test_a_daemon_that_does_not_clean_up_at_all(clock: Both) -> None:
    table = busy(memory_store(clock), clock)
    upkeep = Upkeep(system=clock, clean_up=False)
    assert through(upkeep, table, clock, hours=200) == []
    assert upkeep.run(table).clean_up is False


def test_a_long_clean_up_goes_on_in_the_next_calls(clock: Both) -> None:
    store = memory_store(clock)
    table = new_table(store, properties=RETENTIONS, system=clock)
    for number in range(250):
        table.store.put_if_absent(f"orphan-{number}", b"")
    clock.ms += 1000
    table.overwrite(numbers([1]))
    clock.ms += 3 * DAY
    upkeep = Upkeep(system=clock)
    upkeep.run(table)
    clock.ms += HOUR
    clock.per_look_s = 10.0
    reports = [upkeep.run(table)]
    while reports[-1].running is not None or upkeep.due(table):
        reports.append(upkeep.run(table))
        assert len(reports) < 20
    assert sum(report.running is Chore.LISTING for report in reports) == 3
    assert sum(report.files_deleted for report in reports) == 250
    assert not [path for path, _ in store.walk() if path.startswith("orphan")]


def test_what_a_killed_daemon_left_is_deleted_by_the_next_one(clock: Both) -> None:
    store = memory_store(clock)
    table = busy(store, clock)
    upkeep = Upkeep(system=clock)
    through(upkeep, table, clock, hours=2)
    for number in range(150):
        table.insert(numbers([number]))
    table.overwrite(numbers([7]))
    table.checkpoint()
    # Late enough to delete these, and too soon for the next listing.
    clock.ms += 2 * DAY + HOUR
    files = len(list(store.walk()))
    clock.per_look_s = 10.0
    while upkeep.run(table.refresh()).running is not Chore.VACUUM:
        assert upkeep.due(table)
    while len(list(store.walk())) >= files:
        assert upkeep.run(table).running is Chore.VACUUM
    del upkeep
    clock.per_look_s = 0.0
    # The log says that a vacuum was begun, so the next one is tomorrow's. It begins where the last one that ended was.
    reports = through(Upkeep(system=clock), table, clock, hours=36)
    assert any(report.vacuum and not report.vacuum.listing for report in reports)
    assert len(list(store.walk())) < files - 150
    assert read_numbers(reopen(table)) == [7]


def test_consumers_that_lag_hold_it_back(clock: Both) -> None:
    store = memory_store(clock)
    table = busy(store, clock, days=3)
    consumer = claim(store, table.head, "slow", owner="me", position=2, system=clock)
    consumer.confirm()
    table.overwrite(numbers([9]))
    clock.ms += DAY
    upkeep = Upkeep(system=clock)
    held: set[str] = set()
    for _ in range(6):
        consumer.heartbeat_if_due()
        for report in through(upkeep, table, clock, hours=24):
            held.update(report.held_by)
    assert held == {"slow"}
    assert read_numbers(reopen(table).at(version=2)) == [1]
    for _ in range(5):
        consumer.advance(table.version)
        through(upkeep, table, clock, hours=24)
    assert reopen(table).changes(after=table.version).to_arrow().num_rows == 0
    assert upkeep.run(table).held_by == ()
    assert len([path for path, _ in store.walk() if path.endswith(".parquet") and path[0] != "_"]) == 1


def test_a_checkpoint_that_another_writer_made_counts(clock: Both) -> None:
    store = memory_store(clock)
    table = new_table(store, properties={"delta.checkpointInterval": 3}, system=clock)
    upkeep = Upkeep(system=clock)
    made = []
    for number in range(12):
        table.insert(numbers([number]))
        if number == 5:
            reopen(table).checkpoint()
        report = upkeep.run(table.refresh())
        made += [] if report.checkpoint is None else [report.checkpoint]
    assert made == [2, 5, 9, 12]


def test_a_pointer_to_a_version_that_does_not_exist_is_not_believed(clock: Both) -> None:
    store = memory_store(clock)
    table = new_table(store, properties={"delta.checkpointInterval": 3}, system=clock)
    for number in range(4):
        table.insert(numbers([number]))
    store.replace("_delta_log/_last_checkpoint", b'{"version":99999,"size":1}')
    assert Upkeep(system=clock).run(table).checkpoint == 4


def test_a_dropped_and_a_replaced_table(tmp_path: Any) -> None:
    clock = Both()
    store = LocalStore(str(tmp_path / "t"), system=clock)
    table = busy(store, clock)
    upkeep = Upkeep(system=clock)
    upkeep.run(table)
    clock.ms += HOUR
    Table.drop(table.path)
    with pytest.raises(TableNotFoundError):
        upkeep.run(table)
    Table.create(table.path, pa.schema([("n", pa.int64())]), properties=RETENTIONS)
    with pytest.raises(TableReplacedError):
        upkeep.run(table)
    again = Table(store, load(store), clock)
    again.insert(numbers([5]))
    report = upkeep.run(again)
    assert (report.errors, report.running) == ((), None)
    assert read_numbers(reopen(again)) == [5]


def test_files_that_a_dropped_table_left_are_deleted_in_the_next_one(tmp_path: Any) -> None:
    """A drop was interrupted before it deleted the files, and the path got another table."""
    clock = Both()
    store = LocalStore(str(tmp_path / "t"))
    clock.ms = REAL_SYSTEM.now_ms()
    table = new_table(store, properties=RETENTIONS, system=clock)
    table.insert(numbers([1]))
    (file,) = table.at().files()["path"].to_pylist()
    failing = Deleting(store, allowed=0)
    with pytest.raises(StoreUnavailableError):
        drop(failing, clock)
    again = new_table(store, properties=RETENTIONS, system=clock)
    again.insert(numbers([2]))
    upkeep = Upkeep(system=clock)
    through(upkeep, again, clock, hours=24 * 12)
    assert not (tmp_path / "t" / file).exists()
    assert read_numbers(reopen(again)) == [2]


def test_the_report_as_json(clock: Both) -> None:
    table = busy(memory_store(clock), clock)
    upkeep = Upkeep(system=clock)
    for report in [upkeep.run(table), *through(upkeep, table, clock, hours=2)]:
        found = report.to_dict()
        assert found["retentions"][0]["property"] == "delta.logRetentionDuration"
        assert found["upcoming"][0].keys() == {"chore", "at", "why"}
        assert encode_action(found)
