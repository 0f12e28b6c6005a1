"""DELETE, UPDATE and OVERWRITE while other writers commit: what is rebased, and what is a conflict."""

from __future__ import annotations

import pytest

from tests.log.operations.changing_rows import KINDS, filled, keys, lose_once, rows
from tests.log.support import live_files, stage_compaction
from tidelog.log import Committed, Table
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
)


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def has_vectors(table: Table) -> bool:
    return table.properties.get("delta.enableDeletionVectors") == "true"


def test_a_statement_retries_after_a_conflict(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_once(table, lambda other: other.insert([{"k": 50, "part": "a", "v": 1, "price": None}]), monkeypatch)
    assert table.delete("k > 4").metrics["numDeletedRows"] == 9
    assert keys(table) == [0, 1, 2, 3, 4]


def test_changes_of_different_rows_of_a_file_all_commit(table: Table) -> None:
    deleting, updating = table.begin().delete("k = 1"), table.begin().update("k = 2", {"v": "0"})
    table.delete("k = 3")
    if not has_vectors(table):
        with pytest.raises((ConcurrentDeleteDeleteException, ConcurrentAppendException)):
            updating.commit()
        return
    deleting.commit()
    assert isinstance(updating.commit(), Committed)
    assert keys(table.refresh()) == [0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert table.scan("k = 2").to_arrow()["v"].to_pylist() == [0]


def test_a_concurrent_append_that_matches_is_deleted_or_a_conflict(table: Table) -> None:
    deleting, updating = table.begin().delete("k = 1"), table.begin().update("k = 2", {"v": "0"})
    table.insert([{"k": number, "part": "z", "v": None, "price": None} for number in (1, 2)])
    if has_vectors(table):
        deleting.commit()
        assert keys(table.refresh()) == [0, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    else:
        with pytest.raises(ConcurrentAppendException, match="new rows match what the operation read: 1 in"):
            deleting.commit()
    with pytest.raises(ConcurrentAppendException, match="new rows match what the operation read: 1 in"):
        updating.commit()


def test_a_concurrent_append_that_cannot_match_is_harmless(table: Table) -> None:
    deleting = table.begin().delete("k = 1 AND part = 'a'")
    table.insert(rows(range(1, 2), "z"))
    table.insert(rows(range(20, 22), "a"))
    deleting.commit()
    assert keys(table.refresh()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20, 21]


def test_an_overwrite_replaces_concurrent_changes(table: Table) -> None:
    overwriting = table.begin().overwrite(rows(range(100, 102)), where="part = 'a'")
    table.insert(rows(range(20, 22)))
    table.delete("k = 3")
    outcome = overwriting.commit()
    assert keys(table.refresh()) == [6, 7, 8, 9, 10, 11, 12, 100, 101]
    assert getattr(outcome, "retried", False) is True


def test_a_compaction_and_a_delete_of_the_same_file(table: Table) -> None:
    group = [add for add in live_files(table) if add.partition_values["part"] == "a"]
    compacting = stage_compaction(table, group)
    table.delete("k = 0")
    compacting.commit()
    assert keys(table.refresh()) == list(range(1, 13))
    deleting = table.begin().delete("k = 6")
    stage_compaction(table, [add for add in live_files(table) if add.partition_values["part"] == "b"]).commit()
    if not has_vectors(table):
        with pytest.raises(ConcurrentDeleteDeleteException):
            deleting.commit()
        return
    deleting.commit()
    assert keys(table.refresh()) == [1, 2, 3, 4, 5, *range(7, 13)]
