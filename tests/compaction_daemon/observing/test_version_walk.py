"""The walk over the newest versions: what each did, and the size of the table after it."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pytest

from tests.compaction_daemon.observing.tables import OTHER_QUERY, QUERY, SCHEMA, busy_table, put_rows, streamed
from tests.compaction_daemon.support import delete_rows, memory_table, put
from tests.compaction_daemon.upkeep.support import Both
from tests.log.support import memory_store, new_table
from tidelog.compaction_daemon import compact
from tidelog.compaction_daemon.observing import version_walk
from tidelog.compaction_daemon.observing.version_walk import (
    StreamBatch,
    Throughput,
    VersionEntry,
    newest_versions,
    streams_of,
    table_size,
    throughput_of,
)
from tidelog.log import Table
from tidelog.log.format.actions import SetTransaction


def walk(table: Table, limit: int = 500) -> list[VersionEntry]:
    return list(newest_versions(table, table_size(table, table.at()), limit))


@pytest.fixture(scope="module")
def busy() -> Table:
    return busy_table()


def test_the_size_at_each_version_is_that_of_its_snapshot(busy: Table) -> None:
    found = walk(busy)
    assert [entry.commit.version for entry in found] == list(range(busy.version, -1, -1))
    for entry in found:
        assert entry.size == table_size(busy, busy.at(version=entry.commit.version)), entry.commit.version
    assert {entry.size.dead_rows > 0 for entry in found} == {True, False}


def test_an_entry_has_the_commit_of_the_history(busy: Table) -> None:
    assert [entry.commit for entry in walk(busy)] == busy.history()


def test_a_rebased_compaction_says_over_what(busy: Table) -> None:
    found = [entry for entry in walk(busy) if entry.rebased_over]
    assert len(found) == 2
    for entry in found:
        assert entry.commit.operation_class == "MINOR"
        assert entry.rebased_over == (entry.commit.version - 1, entry.commit.version - 1)
        assert entry.rebase_rules


def test_a_compaction_says_what_it_should_have_cost_and_did(busy: Table) -> None:
    found = [entry for entry in walk(busy) if entry.cost]
    assert [entry.commit.operation_class for entry in found] == ["MAJOR", "MINOR", "MINOR", "MINOR", "MINOR"]
    for entry in found:
        assert entry.cost is not None
        assert entry.cost.predicted.seconds > 0
        assert (entry.cost.actual.bytes_read, entry.cost.actual.bytes_written) == (
            entry.bytes_removed,
            entry.bytes_added,
        )


def test_the_walk_ends_at_its_limit(busy: Table) -> None:
    assert [entry.commit.version for entry in walk(busy, 5)] == [busy.version - number for number in range(5)]


def test_the_walk_ends_when_it_has_read_many_actions(busy: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_walk, "MAX_ACTIONS", 20)
    assert 0 < len(walk(busy)) < 20
    monkeypatch.setattr(version_walk, "MAX_ACTIONS", 1)
    assert [entry.commit.version for entry in walk(busy)] == [busy.version], "the newest one is always there"


def test_the_walk_ends_where_the_history_was_deleted() -> None:
    table = memory_table()
    for number in range(12):
        put(table, number)
    table.checkpoint()
    for version in range(5):
        table.store.delete(f"_delta_log/{version:020d}.json")
    found = walk(Table.open(table.path))
    assert [entry.commit.version for entry in found] == list(range(12, 4, -1))
    assert [entry.size.files for entry in found] == list(range(12, 4, -1))


def test_dead_rows_of_another_engine_are_taken_back() -> None:
    table = memory_table()
    put(table, 1, 2, 3)
    delete_rows(table, [0, 1])
    found = walk(table.refresh())
    assert [entry.size.dead_rows for entry in found] == [2, 0, 0]
    assert [entry.size.rows for entry in found] == [1, 3, 0]


def test_a_file_counts_as_small_by_the_target_size_of_today() -> None:
    table = memory_table()
    put(table, 1, 2, 3)
    assert walk(table.refresh())[0].size.small_files == 1
    table.set_properties({"tidelog.targetFileSize": 100})
    assert [entry.size.small_files for entry in walk(table.refresh())] == [0, 0, 0]


def test_a_micro_batch_says_which_it_is_how_many_rows_it_wrote_and_how_long_it_took() -> None:
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    streamed(table, 7, rows=40, ms=1250, name="clicks to orders")
    entry = walk(table.refresh())[0]
    app_id = f"tidelog/{QUERY}/orders"
    assert entry.applications == (app_id, f"{app_id}/offsets")
    assert entry.batch == StreamBatch(app_id, 7, QUERY, "orders", 1.25, "clicks to orders")
    assert entry.rows_written == 40


@pytest.mark.parametrize("ms", [None, -1, "5", 1e9, 2**62, [1]])
def test_a_time_that_others_wrote_otherwise_is_unknown(ms: object) -> None:
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    streamed(table, 7, ms=ms)
    (stream,) = streams_of(walk(table.refresh()))
    assert (stream.seconds, stream.max_seconds, stream.last_batch, stream.throughput.rows) == (None, None, 7, 40)


def test_another_application_s_write_is_a_batch_and_tidelog_s_own_entries_are_none() -> None:
    table = memory_table()
    rows = pa.table({"part": ["a"], "n": [1]})
    table.insert(rows, idempotency_key=("loader", 7))
    table.begin().insert(rows).note(transactions=[SetTransaction("tidelog/floor", 3)]).commit()
    compact(table.refresh())
    found = walk(table.refresh())
    assert [entry.batch for entry in found] == [None, None, StreamBatch("loader", 7), None]
    assert [entry.rows_written for entry in found] == [None, 1, 1, None]


@pytest.mark.parametrize(
    ("metrics", "rows"),
    [
        ({"numOutputRows": "12"}, 12),
        ({"numSourceRows": "5", "numOutputRows": "9"}, 5),
        ({"numOutputRows": "-1"}, 3),
        ({"numOutputRows": "9" * 500}, 3),
        ({"numOutputRows": "many"}, 3),
        ({}, 3),
    ],
)
def test_rows_are_those_of_the_metrics_or_else_those_added(metrics: dict[str, str], rows: int) -> None:
    table = memory_table()
    put(table, 1, 2, 3)  # by the log alone: the commit has no metrics
    put_record(table.refresh(), {}, metrics=metrics, adds_of=table.version)
    assert walk(table.refresh())[0].rows_written == rows


def test_the_throughput_of_streams_and_of_the_table() -> None:
    clock = Both()
    table = new_table(memory_store(clock), SCHEMA, system=clock)
    for number in range(4):
        clock.ms += 10_000
        streamed(table, number, rows=40 + number, ms=100 * (number + 1))
        clock.ms += 10_000
        streamed(table, 90 + number, query_id=OTHER_QUERY, sink="events", rows=5, ms=None)
    put_rows(table.refresh(), 1, rows=1000)
    table.delete("id = 1")
    entries = walk(table.refresh())
    events, orders = streams_of(entries)
    assert (orders.query_id, orders.sink, orders.last_batch) == (QUERY, "orders", 3)
    assert (orders.seconds, orders.max_seconds) == (0.25, 0.4)
    assert (orders.throughput.commits, orders.throughput.rows) == (4, 166)
    assert orders.throughput.rows_per_second == pytest.approx((41 + 42 + 43) / 60, rel=0.01)
    assert (events.sink, events.last_batch, events.seconds, events.throughput.rows) == ("events", 93, None, 20)
    whole = throughput_of(entries)
    assert (whole.commits, whole.rows) == (9, 166 + 20 + 1000), "a delete writes no rows"
    assert whole.bytes == sum(entry.bytes_added for entry in entries if entry.rows_written)
    assert whole.last == entries[1].commit.timestamp


def test_a_pause_does_not_count_as_slow() -> None:
    clock = Both()
    table = new_table(memory_store(clock), SCHEMA, system=clock)
    for number, seconds in enumerate([10, 10, 10, 3 * 86_400, 10, 10]):
        clock.ms += 1000 * seconds
        streamed(table, number, rows=50)
    assert throughput_of(walk(table.refresh())).rows_per_second == pytest.approx(5.0, rel=0.01)


def test_one_commit_has_no_rate_and_no_commit_has_no_times() -> None:
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    assert throughput_of(walk(table)) == Throughput(0, 0, 0, None, None, None)
    streamed(table, 0)
    (stream,) = streams_of(walk(table.refresh()))
    assert stream.throughput.rows_per_second is None


def test_the_newest_streams_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_walk, "MAX_STREAMS", 2)
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    for sink in ("a", "b", "c", "a"):
        streamed(table, 1, sink=sink)
    found = streams_of(walk(table.refresh()))
    assert [(stream.sink, stream.throughput.commits) for stream in found] == [("a", 2), ("c", 1)]


@pytest.mark.parametrize("written", [5, [], {"over": 3}, {"over": [1, "2"], "rules": 5}, {"over": [1, 2, 3]}])
def test_what_others_wrote_as_a_rebase_is_left_out(written: object) -> None:
    table = memory_table()
    put_record(table, {"rebase": written})
    assert walk(table.refresh())[0].rebased_over is None


def put_record(
    table: Table, record: dict[str, object], *, metrics: dict[str, str] | None = None, adds_of: int | None = None
) -> None:
    """A commit with this record of tidelog, and with the added files of another version, if asked for."""
    version = table.refresh().version + 1
    info = {"timestamp": 1, "inCommitTimestamp": table.head.timestamp_ms + 1, "operation": "X", "tidelog": record}
    lines = [json.dumps({"commitInfo": info | {"operationMetrics": metrics or {}}})]
    if adds_of is not None:
        known = table.store.read(f"_delta_log/{adds_of:020d}.json").decode().splitlines()
        lines += [line.replace(".parquet", "-again.parquet") for line in known if line.startswith('{"add"')]
    table.store.put_if_absent(f"_delta_log/{version:020d}.json", "\n".join(lines).encode())
