"""The records of a race: a rebase in the commitInfo, a loss in the conflict ledger, and no files left behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.log.support import NUMBERS, live_files, memory_store, new_table, numbers, reopen, stage_compaction
from tidelog.compaction_daemon import expire
from tidelog.log import Committed, Superseded, Table, Transaction
from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.conflict_ledger import Lost
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import ConcurrentAppendException
from tidelog.log.format import commit_info
from tidelog.log.state.commits import read_commit


@pytest.fixture
def table() -> Table:
    table = new_table(memory_store(), NUMBERS)
    for number in range(4):
        table.insert(numbers([number, number + 10]))
    return table


def data_files(table: Table) -> set[str]:
    return {path for path, _ in table.store.walk() if path.endswith(".parquet") and not path.startswith("_")}


def live(table: Table) -> set[str]:
    return {file.path for file in live_files(reopen(table))}


def test_a_conflict_is_recorded_and_leaves_no_file(table: Table) -> None:
    updating = table.begin().update("n = 0", {"n": "100"})
    reopen(table).insert(numbers([0, 0]))
    with pytest.raises(ConcurrentAppendException) as raised:
        updating.commit()
    (entry,) = conflict_ledger.read_ledger(table.store)
    assert (entry.outcome, entry.error) == (Lost.CONFLICT, "ConcurrentAppendException")
    assert (entry.base_version, entry.winning_version) == (4, 5)
    assert (entry.earlier, entry.later, entry.operation) == ("INSERT", "UPDATE_DELETE", "UPDATE")
    assert entry.policy == raised.value.fields["policy"] == "delta-table"
    assert entry.wasted_rows == 1
    assert entry.wasted_bytes > 0
    assert entry.wasted_seconds >= 0
    assert ":" in entry.loser
    assert entry.evidence == raised.value.fields["evidence"]
    assert data_files(table) == live(table)


def test_a_superseded_compaction_is_recorded_and_leaves_no_file(table: Table) -> None:
    files = live_files(table)
    losing = stage_compaction(table, files)
    stage_compaction(reopen(table), files).commit()
    assert losing.commit() == Superseded(by=5)
    (entry,) = conflict_ledger.read_ledger(table.store)
    assert (entry.outcome, entry.winning_version, entry.earlier) == (Lost.SUPERSEDED, 5, "MINOR")
    assert (entry.wasted_rows, entry.error) == (8, None)
    assert len(data_files(table)) == len(files) + 1


def test_a_dropped_group_is_recorded(table: Table) -> None:
    files = live_files(table)
    losing = stage_compaction(table, files[:2], files[2:])
    stage_compaction(reopen(table), files[:2]).commit()
    assert isinstance(losing.commit(), Committed)
    (entry,) = conflict_ledger.read_ledger(table.store)
    assert (entry.outcome, entry.winning_version, entry.wasted_rows) == (Lost.DROPPED, 5, 4)
    assert len(data_files(table)) == len(files) + 2


def test_an_image_of_a_row_deleted_by_the_winner_is_not_kept(table: Table) -> None:
    updating = table.begin().update("n = 0", {"n": "100"})
    reopen(table).delete("n = 0")
    outcome = updating.commit()
    assert isinstance(outcome, Committed)
    assert (outcome.version, outcome.metrics["numUpdatedRows"]) == (5, 0), "the row to update was deleted"
    assert data_files(table) >= live(table)
    assert len(data_files(table)) == 4
    assert list(conflict_ledger.read_ledger(table.store)) == []


def test_a_rebase_is_recorded_with_its_rules(table: Table) -> None:
    deleting = table.begin().delete("n IN (0, 1, 77)")
    stage_compaction(reopen(table), live_files(table)).commit()
    reopen(table).insert(numbers([77]))
    outcome = deleting.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (5, 6)
    recorded = commit_info.tidelog(read_commit(table.store, outcome.version).info)["rebase"]
    assert recorded["over"] == [5, 6]
    assert recorded["rules"] == [1, 5]
    assert recorded["ms"] >= 0
    assert "rebase" not in commit_info.tidelog(read_commit(table.store, 6).info)


def test_abort_deletes_the_written_files(table: Table) -> None:
    updating = table.begin().update("n = 0", {"n": "100"})
    assert len(data_files(table)) == 5
    updating.abort()
    updating.abort()
    assert data_files(table) == live(table)


def test_expire_deletes_old_entries(table: Table) -> None:
    files = live_files(table)
    losing = stage_compaction(table, files)
    stage_compaction(reopen(table), files).commit()
    losing.commit()
    entry = next(conflict_ledger.read_ledger(table.store))
    expire(table, older_than=timedelta(days=3))
    assert list(conflict_ledger.read_ledger(table.store)) == [entry]
    (name,) = table.store.names(conflict_ledger.LEDGER_FOLDER)
    table.store.delete(f"{conflict_ledger.LEDGER_FOLDER}/{name}")
    table.store.put_if_absent(f"{conflict_ledger.LEDGER_FOLDER}/{1:013d}{name[13:]}", b"{}")
    assert any(conflict_ledger.LEDGER_FOLDER in path for path in expire(table, dry_run=True).files)
    expire(table)
    assert not table.store.names(conflict_ledger.LEDGER_FOLDER)


@pytest.mark.parametrize("feed", [False, True])
def test_an_operation_that_fails_while_staging_leaves_no_file(feed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), NUMBERS, properties={"delta.enableChangeDataFeed": feed})
    table.insert(numbers(range(4)))
    before = {path for path, _ in table.store.walk()}
    write, calls = DataWriter.write_file, iter(range(10))

    def second_fails(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 1:
            raise OSError(28, "no space")
        return write(*args, **kwargs)

    monkeypatch.setattr(DataWriter, "write_file", second_fails)
    monkeypatch.setattr("tidelog.log.format.properties.size_bytes", lambda *_: 8)
    stages: list[Callable[[Transaction], object]] = [
        lambda transaction: transaction.insert(numbers([5, 6])),
        lambda transaction: transaction.update("n >= 0", {"n": "n + 1"}),
        lambda transaction: transaction.upsert(numbers([1, 9]), keys=["n"]),
        lambda transaction: transaction.overwrite(numbers([1, 9])),
    ]
    for stage in stages:
        calls = iter(range(10))
        with pytest.raises(OSError, match="no space"):
            stage(table.begin())
        assert {path for path, _ in table.store.walk()} == before
