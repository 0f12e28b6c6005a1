"""DELETE, UPDATE, OVERWRITE and RESTORE, rebased over winners."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.log.conflict.tables import SCHEMA, data, filled, rows
from tests.log.support import Clock, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.compaction_daemon import compact, stage, vacuum
from tidelog.log import Committed, OperationClass, Superseded, Table, predicate
from tidelog.log.commit.race import Race
from tidelog.log.conflict.staged import Reads, Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    HistoryExpiredError,
)
from tidelog.log.state.commits import commits_after
from tidelog.log.state.loader import load


@pytest.mark.parametrize(
    ("staged", "winner"),
    [
        (lambda table: table.begin().truncate(), lambda table: table.truncate()),
        (lambda table: table.begin().delete("k = 1"), lambda table: table.delete("k = 1")),
        (lambda table: table.begin().restore(version=1), lambda table: table.restore(version=1)),
    ],
    ids=["truncate", "delete", "restore"],
)
def test_a_transaction_with_nothing_left_to_do_reports_zeros(
    staged: Callable[[Table], Any], winner: Callable[[Table], Any]
) -> None:
    table = filled((1, 1), (2, 2))
    transaction = staged(reopen(table))
    winner(table)
    outcome = transaction.commit()
    assert outcome.version == table.version
    assert set(outcome.metrics.values()) == {0}


def test_metrics_of_an_overwrite_count_the_files_that_its_commit_removed() -> None:
    table = filled((1, 1), (2, 2))
    overwriting = reopen(table).begin().overwrite(data((9, 9)))
    for number in range(3, 6):
        table.insert(data((number, number)))
    outcome = overwriting.commit()
    assert isinstance(outcome, Committed)
    assert outcome.metrics["numRemovedFiles"] == 5


@pytest.mark.parametrize(
    ("winner", "is_lost"),
    [
        (lambda table: table.delete("k = 1"), True),
        (lambda table: table.update("k = 1", {"v": "9"}), True),
        (lambda table: table.delete("k = 2"), False),
        (lambda table: table.insert(data((3, 3))), False),
        (lambda table: compact(table, "minor"), False),
    ],
    ids=["delete", "update", "delete elsewhere", "insert", "compaction"],
)
def test_an_insert_that_depends_on_rows_that_are_there_loses_to_a_deletion(
    winner: Callable[[Table], Any], is_lost: bool
) -> None:
    table = filled((1, 1), (2, 2))
    inserting = reopen(table).begin()
    adds = tuple(inserting.writer.write(pa.Table.from_pylist(data((7, 7)), SCHEMA)))
    reads = Reads(predicate.parse("k = 1 OR k = 7", SCHEMA))
    inserting.stage(Staged("MERGE", OperationClass.UPDATE_DELETE, adds=adds, reads=reads, sees_deletes=True))
    winner(table)
    if is_lost:
        with pytest.raises(ConcurrentDeleteReadException, match="that this transaction may have read"):
            inserting.commit()
    else:
        assert isinstance(inserting.commit(), Committed)


# --- rows that winners added ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("appends", [[data((1, 0), (2, 0))], [data((1, 0)), data((2, 0))]])
def test_a_blind_append_that_another_winner_changed_is_not_ordered_later(appends: list[list[dict[str, int]]]) -> None:
    table = filled((0, 0), **{"tidelog.conflictPolicy": "write-serializable"})
    deleting = reopen(table).begin().delete("v >= 0")
    for append in appends:
        table.insert(append)
    table.update("k = 1", {"v": "v + 10"})
    assert isinstance(deleting.commit(), Committed)
    assert rows(table) == [], "the rows that a DELETE at the end would leave"


@pytest.mark.parametrize("compacts", [False, True])
def test_a_blind_append_alone_is_ordered_later(compacts: bool) -> None:
    table = filled((0, 0), (3, 0), **{"tidelog.conflictPolicy": "write-serializable"})
    deleting = reopen(table).begin().delete("v >= 0")
    table.insert(data((1, 0)))
    if compacts:
        assert isinstance(stage(reopen(table), "minor").commit(), Committed)
    assert isinstance(deleting.commit(), Committed)
    assert rows(table) == [(1, 0)]


def test_a_merge_without_keys_does_not_precede_a_blind_append() -> None:
    table = filled((1, 1), **{"tidelog.conflictPolicy": "write-serializable"})
    merging = reopen(table).begin()
    adds = tuple(merging.writer.write(pa.Table.from_pylist(data((7, 7)), SCHEMA)))
    reads = Reads(predicate.parse("k > 5", SCHEMA))
    merging.stage(Staged("MERGE", OperationClass.UPDATE_DELETE, adds=adds, reads=reads, sees_appends=True))
    table.insert(data((7, 0)))
    with pytest.raises(ConcurrentAppendException, match="new rows match"):
        merging.commit()


def test_files_that_match_by_partition_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["v"])
    table.insert(data((0, 1), (0, 2)))
    deleting = reopen(table).begin().delete("v = 1")
    monkeypatch.setattr("tidelog.log.commit.race.MAX_READ_FILES", 2)
    for number in range(5):
        table.insert(data((number, 1), (number, 2)))
    table.delete("k = 3")
    assert isinstance(deleting.commit(), Committed)
    assert rows(table) == [(0, 2), (0, 2), (1, 2), (2, 2), (4, 2)]


def test_too_many_files_to_read_are_a_conflict_and_the_statement_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled((0, 1))
    deleting = reopen(table).begin().delete("v = 1")
    monkeypatch.setattr("tidelog.log.commit.race.MAX_READ_FILES", 2)
    for number in range(5):
        table.insert(data((number, 1), (number, 2)))
    with pytest.raises(ConcurrentAppendException, match="too many new rows to check"):
        deleting.commit()
    table.delete("v = 1")
    assert [v for _, v in rows(table)] == [2] * 5


def test_too_many_files_that_match_by_partition_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.commit.race.MAX_ANSWERED_FILES", 5)
    for count in (5, 6):
        table = new_table(memory_store(), SCHEMA, partition_by=["v"])
        table.insert(data((0, 1)))
        deleting = reopen(table).begin().delete("v = 1")
        for number in range(count):
            table.insert(data((number, 1), (number, 2)))
        if count == 5:
            assert isinstance(deleting.commit(), Committed)
            continue
        with pytest.raises(ConcurrentAppendException, match="too many new rows to check"):
            deleting.commit()
        table.delete("v = 1")
        assert [v for _, v in rows(table)] == [2] * count


def test_a_race_keeps_no_answers_about_files_that_are_gone() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["v"])
    table.insert(data((0, 1)))
    base = load(table.store)
    staged = reopen(table).begin().delete("v = 1")._staged
    assert staged is not None
    race = Race(table.store, base, staged, metadata_retry=True)
    for number in range(6):
        before = table.version
        table.insert(data((number, 1)))
        if number % 2:
            table.delete("v = 1")
        for winner in commits_after(table.store, before):
            race.judge([winner])
        assert len(race._answers) <= 2


# --- files that a clean-up deleted ------------------------------------------------------------------------------------


def test_a_restore_fails_if_a_vacuum_deleted_its_files() -> None:
    clock = Clock()
    table = new_table(memory_store(clock), SCHEMA, system=clock)
    table.insert(data((1, 1)))
    clock.ms += 1
    table.truncate()
    restoring = table.begin().restore(version=1)
    clock.ms += 30 * 24 * 3_600_000
    reopened = Table(table.store, load(table.store), clock)
    reopened.insert(data((2, 2)))
    assert vacuum(reopened, older_than=timedelta(days=2)).data_files == 1
    with pytest.raises(HistoryExpiredError, match="vacuum"):
        restoring.commit()
    assert rows(table) == [(2, 2)]


@pytest.fixture
def table() -> Table:
    """Three files of four rows each."""
    made = new_table(memory_store())
    for first in (0, 4, 8):
        made.insert(numbers(range(first, first + 4)))
    return made


def data_files(table: Table) -> set[str]:
    return {path for path, _ in table.store.walk() if not path.startswith("_delta_log/")}


def test_a_missing_row_map_is_a_conflict_and_the_statement_then_succeeds(table: Table) -> None:
    transaction = reopen(table).begin().update("n IN (1, 6)", {"n": "n + 100"})
    compacting = stage(reopen(table), "minor")
    compact(table, "major", cluster_by=["n"])
    for path in data_files(table):
        if path.startswith("_tidelog/rowmaps/"):
            table.store.delete(path)
    with pytest.raises(ConcurrentDeleteDeleteException, match="without lineage to follow"):
        transaction.commit()
    assert isinstance(compacting.commit(), Superseded)
    assert reopen(table).version == table.refresh().version
    assert read_numbers(table) == list(range(12))
    table.update("n IN (1, 6)", {"n": "n + 100"})
    assert read_numbers(table)[-2:] == [101, 106]
