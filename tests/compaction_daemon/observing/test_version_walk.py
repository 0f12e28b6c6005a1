"""The walk over the newest versions: what each did, and the size of the table after it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.compaction_daemon.observing.tables import busy_table
from tests.compaction_daemon.support import delete_rows, memory_table, put
from tidelog.compaction_daemon.observing import version_walk
from tidelog.compaction_daemon.observing.version_walk import VersionEntry, newest_versions, table_size
from tidelog.log import Table


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


def test_a_stream_s_commit_names_its_application() -> None:
    table = memory_table()
    rows = pa.table({"part": ["a"], "n": [1]})
    table.insert(rows, idempotency_key=("loader", 7))
    assert walk(table.refresh())[0].applications == ("loader",)


@pytest.mark.parametrize("written", [5, [], {"over": 3}, {"over": [1, "2"], "rules": 5}, {"over": [1, 2, 3]}])
def test_what_others_wrote_as_a_rebase_is_left_out(written: object) -> None:
    table = memory_table()
    put_record(table, {"rebase": written})
    assert walk(table.refresh())[0].rebased_over is None


def put_record(table: Table, record: dict[str, object]) -> None:
    version = table.refresh().version + 1
    info = {"timestamp": 1, "inCommitTimestamp": table.head.timestamp_ms + 1, "operation": "X", "tidelog": record}
    table.store.put_if_absent(f"_delta_log/{version:020d}.json", json.dumps({"commitInfo": info}).encode())
