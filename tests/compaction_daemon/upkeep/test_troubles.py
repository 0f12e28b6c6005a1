"""Upkeep that fails: reported once, tried again later, and nothing else is kept from working."""

from __future__ import annotations

import pytest

from tests.compaction_daemon.upkeep.support import DAY, HOUR, RETENTIONS, Both, busy, through
from tests.log.faults import Deleting, Refusing
from tests.log.support import memory_store, new_table, numbers, put_commit
from tidelog.compaction_daemon import Upkeep
from tidelog.compaction_daemon.upkeep.due import Chore
from tidelog.compaction_daemon.upkeep.table_upkeep import RECORD_PATH
from tidelog.log import Table
from tidelog.log.errors import (
    PathNotWritableError,
)
from tidelog.log.format.actions import Protocol
from tidelog.log.state.loader import load


def test_a_file_that_cannot_be_deleted_is_reported_once_and_tried_again(clock: Both) -> None:
    inner = memory_store(clock)
    table = busy(inner, clock)
    (stuck, *_) = [path for path, _ in inner.walk() if path.endswith(".parquet") and path[0] != "_"]
    store = Deleting(inner, suffix=stuck)
    failing = Table(store, load(store), clock)
    upkeep = Upkeep(system=clock)
    reports = through(upkeep, failing, clock, hours=48)
    errors = [error for report in reports for error in report.errors if error.is_new]
    assert {error.chore for error in errors} <= {Chore.LISTING, Chore.VACUUM}
    assert len(errors) == len({error.chore for error in errors})
    assert all(error.code == "TIDELOG_STORE_UNAVAILABLE" and stuck in error.error for error in errors)
    assert [path for path, _ in inner.walk() if path == stuck]
    reports = through(upkeep, table, clock, hours=24)
    assert [path for path, _ in inner.walk() if path == stuck] == []
    assert upkeep.run(table).errors == ()


def test_an_idle_table_gets_no_commit_for_each_retry(clock: Both) -> None:
    inner = memory_store(clock)
    busy(inner, clock)
    store = Deleting(inner, suffix=".parquet")
    failing = Table(store, load(store), clock)
    upkeep = Upkeep(system=clock)
    versions = []
    for _ in range(8 * 4):
        clock.ms += DAY // 4
        upkeep.run(failing.refresh())
        versions.append(failing.refresh().version)
    assert upkeep.errors
    # By the fourth day all versions but the newest are old enough.
    assert versions[16:] == [versions[16]] * 16


def test_clean_ups_that_failed_are_forgotten_once_they_are_off(clock: Both) -> None:
    store = Deleting(memory_store(clock), suffix=".parquet")
    table = busy(store, clock)
    upkeep = Upkeep(system=clock)
    through(upkeep, table, clock, hours=48)
    assert upkeep.errors
    table.set_properties({"tidelog.cleanUp": "false"})
    upkeep.due(table)
    assert upkeep.errors == ()


def test_a_checkpoint_of_another_writer_ends_the_trouble(clock: Both) -> None:
    inner = memory_store(clock)
    error = PathNotWritableError("no permission", advice="ask", path="t")
    store = Refusing(inner, suffix=".checkpoint.parquet", error=error)
    table = new_table(store, properties={**RETENTIONS, "delta.checkpointInterval": 2}, system=clock)
    table.insert(numbers([1]))
    upkeep = Upkeep(system=clock)
    assert upkeep.run(table).errors
    Table(inner, load(inner), clock).checkpoint()
    clock.ms += HOUR
    assert upkeep.run(table.refresh()).errors == ()


def test_a_checkpoint_that_fails_is_reported_once_and_not_tried_every_step(clock: Both) -> None:
    inner = memory_store(clock)
    error = PathNotWritableError("no permission", advice="ask", path="t")
    store = Refusing(inner, suffix=".checkpoint.parquet", error=error)
    table = new_table(store, properties={**RETENTIONS, "delta.checkpointInterval": 2}, system=clock)
    for number in range(4):
        table.insert(numbers([number]))
    upkeep = Upkeep(system=clock)
    tried = []
    for _ in range(600):
        report = upkeep.run(table)
        ((found),) = report.errors
        assert (found.chore, found.code, report.checkpoint) == (Chore.CHECKPOINT, error.code, None)
        tried.append((found.is_new, found.retry_at))
        clock.ms += 1000
    assert [is_new for is_new, _ in tried].count(True) == 1
    assert len({retry_at for _, retry_at in tried}) == 4
    whole = Table(inner, load(inner), clock)
    clock.ms += 10 * HOUR
    report = upkeep.run(whole)
    assert (report.checkpoint, report.errors) == (4, ())


def test_a_table_with_features_of_another_engine_gets_no_checkpoint(clock: Both) -> None:
    store = memory_store(clock)
    table = new_table(store, properties={**RETENTIONS, "delta.checkpointInterval": 2}, system=clock)
    table.insert(numbers([1]))
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("somethingNew",))
    put_commit(store, 2, protocol, info={"inCommitTimestamp": clock.ms})
    clock.ms += 10 * DAY
    upkeep = Upkeep(system=clock)
    new = []
    for _ in range(50):
        new += [error for error in upkeep.run(table.refresh()).errors if error.is_new]
        clock.ms += HOUR
    assert {error.code for error in new} == {"TIDELOG_UNSUPPORTED_FEATURE"}
    assert len(new) == len({error.chore for error in new})


@pytest.mark.parametrize("content", [b"", b"[]", b'{"table": 1}', b'{"table": "another", "times": {}, "since": 5}'])
def test_a_record_that_cannot_be_read_or_is_another_tables_does_not_count(clock: Both, content: bytes) -> None:
    store = memory_store(clock)
    table = busy(store, clock)
    store.replace(RECORD_PATH, content)
    assert [report for report in through(Upkeep(system=clock), table, clock, hours=2) if report.vacuum]
