"""Tombstones: how long they stay, who deletes them, and what happens without them."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.cleanup.support import AT_ONCE
from tests.log.operations.test_upsert_order import KEYED, SCHEMA, held, put, record
from tests.log.support import START_MS, Clock, memory_store, new_table, put_commit
from tidelog.compaction_daemon import expire, vacuum
from tidelog.log import Table
from tidelog.log.data import tombstone_cache, tombstones
from tidelog.log.errors import ConfigurationError, CorruptLogError, HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.format.schema import to_schema_string
from tidelog.log.format.tombstone_list import TOMBSTONES, TombstoneFile
from tidelog.log.state.loader import load
from tidelog.log.state.tombstones import lost_tombstones, tombstones_of

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, **properties: Any) -> Table:
    return new_table(memory_store(clock), SCHEMA, properties={**KEYED, **properties}, system=clock)


def again(table: Table, clock: Clock) -> Table:
    """The table at its newest version, by the same clock."""
    return Table(table.store, load(table.store), clock)


def listed(table: Table) -> tuple[TombstoneFile, ...]:
    return tombstones_of(table.store, load(table.store).head, 0)


def stored(table: Table) -> set[str]:
    return {path for path, _ in table.store.walk(tombstones.TOMBSTONE_FOLDER)}


def buried(table: Table) -> dict[int, int]:
    """The order of each tombstone, by its key."""
    metadata = load(table.store).head.metadata
    columns = tombstones.tombstone_columns(metadata, table.path, ["k"], ["at"])
    rows = [row for file in listed(table) for row in tombstones.read_tombstones(table.store, file, columns)]
    return {
        k: at for found in rows for k, at in zip(*(column.to_pylist() for column in found.columns[:2]), strict=True)
    }


def test_files_of_about_one_size_are_merged(clock: Clock) -> None:
    table = made(clock)
    lengths = []
    for number in range(40):
        put(table, record(number % 30, number, op="d"))
        lengths.append(len(listed(table)))
    assert max(lengths) < 16
    assert buried(table) == {number % 30: number for number in range(40)}
    put(table, *(record(k, k + 5) for k in range(30)))
    assert set(held(table)) == set(range(10, 30))


def test_a_merge_holds_no_more_rows_than_of_eight_large_files() -> None:
    """An upsert by Spark can leave hundreds of files."""
    columns = tombstones.TombstoneColumns("id", pa.schema([("k", pa.int64())]), pa.schema([("at", pa.int64())]))
    files = [TombstoneFile(f"{number}", 300_000, 0, ("k",), ("at",)) for number in range(100)]
    chosen = tombstones.files_to_merge(files, columns)
    assert len(chosen) >= 8
    assert sum(file.rows for file in chosen) <= 8 * tombstones.MERGED_ROWS


def test_old_tombstones_go_with_the_retention(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    clock.ms += 8 * DAY_MS
    put(table, record(2, 10, op="d"))
    assert buried(table) == {2: 10}
    put(table, record(1, 5))
    assert held(table) == {1: (5, "v5")}
    longer = made(clock, **{"tidelog.tombstoneRetention": "9 days"})
    put(longer, record(1, 10, op="d"))
    clock.ms += 8 * DAY_MS
    put(longer, record(2, 10, op="d"))
    put(longer, record(1, 5))
    assert held(longer) == {}


def test_merging_leaves_old_ones_out(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    clock.ms += 6 * DAY_MS
    for number in range(6):
        put(table, record(2 + number, 10, op="d"))
    clock.ms += 6 * DAY_MS
    for number in range(8):
        put(table, record(20 + number, 10, op="d"))
    assert set(buried(table)) == {*range(2, 8), *range(20, 28)}


def test_merging_keeps_the_time_of_each_deletion(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    clock.ms += 6 * DAY_MS
    table.insert([{"k": 1, "at": 1, "v": "unordered"}])
    put(table, record(1, 5, op="d"))
    for number in range(10):
        put(table, record(20 + number, 1, op="d"))
    clock.ms += 3 * DAY_MS
    for number in range(8):
        put(table, record(40 + number, 1, op="d"))
    put(table, record(1, 4))
    assert held(table) == {}
    put(table, record(1, 6))
    assert held(table) == {1: (6, "v6")}


def test_files_that_are_gone_stop_no_merge(clock: Clock) -> None:
    table = made(clock)
    for number in range(8):
        put(table, record(number, 10, op="d"))
    for path in stored(table):
        table.store.delete(path)
    tombstone_cache.uncache_others(table.store, [])
    for number in range(12):
        put(table, record(100 + number, 10, op="d"))
    put(table, record(100, 5))
    assert held(table) == {}


def test_a_restore_takes_back_what_came_after_it_was_staged(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10))
    table.insert([{"k": 9, "at": 1, "v": ""}])
    staged = table.begin().restore(version=1)
    put(again(table, clock), record(2, 10, op="d"))
    staged.commit()
    put(again(table, clock), record(2, 5))
    assert set(held(table)) == {1, 2}


def test_threads_share_what_was_read(clock: Clock) -> None:
    table = made(clock)
    for number in range(40):
        put(table, record(number, 10, op="d"))
    tombstone_cache.uncache_others(table.store, [])

    def late(worker: int) -> int:
        return put(again(table, clock), record(worker, 5))["numSourceRowsOutdated"]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(late, range(40))) == [1] * 40


def test_a_vacuum_from_the_log_finds_what_has_left_the_list(clock: Clock) -> None:
    table = made(clock, **AT_ONCE)
    put(table, record(1, 10, op="d"))
    table.insert([{"k": 1, "at": 1, "v": ""}])
    table.truncate()
    clock.ms += DAY_MS
    put(table, record(3, 1))
    clock.ms += DAY_MS
    assert vacuum(table, listing=False).commit_version, "so the next one looks at later commits"
    clock.ms += 8 * DAY_MS
    put(table, record(2, 10, op="d"))
    clock.ms += 60_000
    put(table, record(3, 2))
    clock.ms += 60_000
    vacuum(table, listing=False)
    assert stored(table) == {file.path for file in listed(table)}


def test_a_restore_takes_tombstones_back(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10))
    put(table, record(2, 10, op="d"))
    put(table, record(1, 20, op="d"))
    table.restore(version=2)
    put(table, record(1, 15), record(2, 5))
    assert held(table) == {1: (15, "v15")}
    table.restore(version=1)
    put(table, record(2, 5))
    assert held(table) == {1: (10, "v10"), 2: (5, "v5")}


def test_a_restore_knows_tombstones_whose_commit_has_expired(clock: Clock) -> None:
    table = made(clock, **{"delta.logRetentionDuration": "1 day", "tidelog.tombstoneRetention": "30 days"})
    put(table, record(1, 10, op="d"))
    for number in range(5):
        clock.ms += DAY_MS
        put(table, record(2, number))
        table.checkpoint()
    restorable = table.version
    for number in range(3):
        put(table, record(10 + number, 20, op="d"))
        table.checkpoint()
    clock.ms += DAY_MS // 2
    assert expire(table).commits > 2
    table.restore(version=restorable)
    put(table, record(1, 5), record(11, 15))
    assert set(held(table)) == {2, 11}


def test_a_restore_without_its_tombstones_is_refused(clock: Clock) -> None:
    table = made(clock, **AT_ONCE)
    for number in range(9):
        put(table, record(number, 10, op="d"))
        clock.ms += 1000
    put(table, record(50, 1))
    for number in range(9):
        put(table, record(100 + number, 10, op="d"))
        clock.ms += 60_000
    put(table, record(50, 2))
    clock.ms += 60_000
    vacuum(table)
    with pytest.raises(HistoryExpiredError, match="_tidelog/tombstones/"):
        table.restore(version=10)
    (gone,) = [file.path for file in listed(table)][:1]
    table.restore(version=table.version - 1)
    assert gone in {file.path for file in listed(table)}


def test_a_new_table_at_the_path_knows_none_of_the_old_one(clock: Clock) -> None:
    store = memory_store(clock)
    table = new_table(store, SCHEMA, properties=KEYED, system=clock)
    put(table, record(1, 10, op="d"))
    Table.drop(store.url)
    assert stored(table) == set()
    again = Table.create(store.url, SCHEMA, properties=KEYED)
    put(again, record(1, 5))
    assert held(again) == {1: (5, "v5")}


@pytest.mark.parametrize("listing", [True, False])
def test_a_vacuum_keeps_what_counts_and_deletes_the_rest(clock: Clock, *, listing: bool) -> None:
    table = made(clock, **AT_ONCE)
    for number in range(20):
        put(table, record(number, 10, op="d"))
        clock.ms += 1000
    files = {file.path for file in listed(table)}
    assert files < stored(table)
    clock.ms += 60_000
    put(table, record(99, 1))  # so that the newest version has nothing to do with tombstones
    clock.ms += 60_000
    vacuum(table, listing=listing)
    assert stored(table) == files
    put(table, *(record(number, 5) for number in range(20)))
    assert set(held(table)) == {99}


def test_a_vacuum_keeps_what_a_version_that_can_be_restored_needs(clock: Clock) -> None:
    table = made(clock, **{"tidelog.tombstoneRetention": "30 days"})
    for number in range(9):
        put(table, record(number, 10, op="d"))
        clock.ms += 1000
    old = {file.path for file in listed(table)}
    clock.ms += 8 * DAY_MS
    put(table, record(50, 1))
    restorable = table.version
    clock.ms += 1000
    for number in range(80):
        put(table, record(100 + number, 10, op="d"))
        clock.ms += 1000
    assert not old & {file.path for file in listed(table)}
    clock.ms += 6 * DAY_MS
    vacuum(table)
    assert old <= stored(table)
    table.restore(version=restorable)
    put(table, record(0, 5))
    assert set(held(table)) == {50}


@pytest.mark.parametrize("listing", [True, False])
def test_what_a_lost_race_wrote_is_deleted(clock: Clock, *, listing: bool) -> None:
    table = made(clock, **AT_ONCE)
    put(table, record(1, 10))
    staged = table.begin().upsert([record(1, 11, op="d")], delete_where="op = 'd'")
    put(again(table, clock), record(1, 12))
    with pytest.raises(Exception, match="lost to version"):
        staged.commit()
    assert stored(table) == set()
    aborted = again(table, clock).begin().upsert([record(1, 13, op="d")], delete_where="op = 'd'")
    assert len(stored(table)) == 1
    aborted.abort()
    assert stored(table) == set()
    assert vacuum(table, listing=listing).failed == ()


def test_an_expire_keeps_the_commit_that_names_tombstones(clock: Clock) -> None:
    table = made(clock, **{"delta.logRetentionDuration": "1 day"})
    put(table, record(1, 10, op="d"))
    for number in range(5):
        clock.ms += DAY_MS
        put(table, record(2, number))
        table.checkpoint()
    expire(table)
    put(table, record(1, 5))
    assert set(held(table)) == {2}
    clock.ms += 4 * DAY_MS
    put(table, record(2, 10))
    table.checkpoint()
    clock.ms += 2 * DAY_MS
    put(table, record(2, 11))
    table.checkpoint()
    assert expire(table).commits > 1
    put(table, record(1, 5))
    assert set(held(table)) == {1, 2}


def test_a_file_that_is_gone_is_said_in_the_log(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    (path,) = stored(table)
    table.store.delete(path)
    with caplog.at_level(logging.WARNING):
        put(table, record(1, 5))
    assert path in caplog.text
    assert held(table) == {1: (5, "v5")}


def test_nothing_is_missed_once_all_tombstones_are_too_old(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    table = made(clock, **{"delta.logRetentionDuration": "1 day"})
    put(table, record(1, 10, op="d"))
    for number in range(12):
        clock.ms += DAY_MS
        put(table, record(2, number))
        table.checkpoint()
    assert expire(table).commits > 5
    assert lost_tombstones(table.store, load(table.store).head, 0) == []
    with caplog.at_level(logging.WARNING):
        put(table, record(1, 5))
    assert caplog.text == ""
    assert set(held(table)) == {1, 2}
    table.restore(version=table.version - 1)
    assert set(held(table)) == {2}


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"x" * len(content)])
def test_a_damaged_file_is_an_error(clock: Clock, damage: Any) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    (path,) = stored(table)
    table.store.replace(path, damage(table.store.read(path)))
    with pytest.raises(CorruptLogError, match=path):
        put(table, record(1, 5))
    put(table, record(1, 5), order_by=())
    assert held(table) == {1: (5, "v5")}


def test_a_file_of_another_table_is_an_error(clock: Clock) -> None:
    table, other = made(clock), made(clock)
    for each in (table, other):
        put(each, record(1, 10, op="d"))
    (path,), (others,) = stored(table), stored(other)
    table.store.replace(path, other.store.read(others))
    with pytest.raises(CorruptLogError, match="rows of the table"):
        put(table, record(1, 5))


def test_a_list_that_cannot_be_read_is_an_error(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    path = filenames.commit_path(1)
    table.store.replace(path, table.store.read(path).replace(b'"rows":1', b'"rows":"one"'))
    with pytest.raises(CorruptLogError, match="the list of tombstones in version 1"):
        put(again(table, clock), record(1, 5))
    put(again(table, clock), record(1, 5), order_by=())


def test_progress_that_can_expire_is_refused(clock: Clock) -> None:
    table = made(clock, **{"delta.setTransactionRetentionDuration": "1 day"})
    with pytest.raises(ConfigurationError, match="setTransactionRetentionDuration"):
        put(table, record(1, 10))
    with pytest.raises(ConfigurationError, match="tidelog's own"):
        table.insert([{"k": 1, "at": 1, "v": ""}], idempotency_key=(TOMBSTONES, 7))


@pytest.mark.parametrize("is_cached", [True, False])
def test_tombstones_of_other_types_do_not_count(clock: Clock, *, is_cached: bool) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    if is_cached:
        put(table, record(1, 5))
    texts = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.string())])
    replaced = msgspec.structs.replace(load(table.store).head.metadata, schema_string=to_schema_string(texts))
    put_commit(table.store, load(table.store).head.version + 1, replaced, info={"inCommitTimestamp": clock.ms + 9})
    foreign = again(table, clock)
    foreign.upsert([{"k": "one", "at": 5, "v": ""}])
    assert foreign.scan().count() == 1


def test_tombstones_of_another_order_do_not_count(clock: Clock) -> None:
    table = made(clock)
    put(table, record(1, 10, op="d"))
    put(table, record(1, 5, "a"), order_by="v")
    assert held(table) == {1: (5, "a")}


def test_key_and_order_can_be_one_column(clock: Clock) -> None:
    table = new_table(memory_store(clock), SCHEMA, system=clock)
    table.upsert([record(1, 10, op="d")], keys=["k", "at"], order_by="at", delete_where="op = 'd'")
    table.upsert([{"k": 1, "at": 10, "v": "v10"}], keys=["at", "k"], order_by="at")
    assert held(table) == {1: (10, "v10")}


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.decimal128(30, 2), pa.timestamp("us", "UTC")])
def test_large_files_are_read_where_the_keys_can_be(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    monkeypatch.setattr(tombstones, "_FEW_ROWS", 10)
    monkeypatch.setattr(tombstones, "_GROUP_ROWS", 10)
    schema = pa.schema([("k", kind), ("at", pa.int64())])
    table = new_table(memory_store(clock), schema, properties=KEYED, system=clock)
    keys = pa.array(range(0, 1000, 2)).cast(kind)
    table.upsert(pa.table({"k": keys, "at": [10] * 500}), delete_where="at = 10")
    asked = pa.table({"k": pa.array([-1, 518, 520, 999, 2000]).cast(kind), "at": [5] * 5})
    assert table.upsert(asked).metrics["numSourceRowsOutdated"] == 2
    assert table.scan().count() == 3
    assert listed(table)[0].newest_ms == START_MS + 1
