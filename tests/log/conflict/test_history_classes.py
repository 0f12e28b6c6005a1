"""The classes of commits in a table's history, and the states that it loads to find them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.conflict.actions import NEW, SCHEMA, A, B, at
from tests.log.support import START_MS, add, memory_store, new_table, numbers, put_commit, put_foreign, remove, reopen
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.state.loader import LogState, load


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The versions whose states the history loads."""
    from tidelog.log import commit_records  # noqa: PLC0415 - what is patched

    found: list[int | None] = []

    def counted(store: Any, version: int | None = None) -> LogState:
        found.append(version)
        return load(store, version)

    monkeypatch.setattr(commit_records, "load", counted)
    return found


def classes(table: Table, limit: int | None = None) -> list[str]:
    return [str(record.operation_class) for record in reopen(table).history(limit)]


def test_a_history_of_tidelogs_own_commits_loads_no_state(loads: list[int | None]) -> None:
    table = new_table(memory_store())
    for number in range(3):
        table.insert(numbers([number]))
    table.truncate()
    put_foreign(table, add("x"))
    assert classes(table) == ["INSERT", "OVERWRITE", "INSERT", "INSERT", "INSERT", "NONE"]
    assert loads == []


def test_a_history_of_other_engines_commits_loads_one_state(loads: list[int | None]) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["p"])
    put_foreign(table, A, B, at("c", "2"))
    put_foreign(table, remove(A), remove(B), NEW)
    put_foreign(table, at("e", "1"))
    put_foreign(table, remove(NEW))
    put_foreign(table, remove(at("c", "2")), at("f", "2"))
    assert classes(table) == ["OVERWRITE", "UPDATE_DELETE", "INSERT", "OVERWRITE", "INSERT", "NONE"]
    assert loads == [5]
    loads.clear()
    assert classes(table, 2) == ["OVERWRITE", "UPDATE_DELETE"]
    assert loads == [5]


def test_a_restore_by_another_engine_is_an_overwrite_in_the_history(loads: list[int | None]) -> None:
    table = new_table(memory_store())
    put_foreign(table, add("a"), add("b"))
    put_foreign(table, remove(add("b")))
    put_foreign(table, add("b"), load(table.store).head.metadata)
    put_foreign(table, add("c"), load(table.store).head.metadata)
    assert classes(table)[:3] == ["INSERT", "OVERWRITE", "UPDATE_DELETE"]
    assert loads == [3, 2, 2]


def test_a_history_classifies_commits_after_their_state_expired(loads: list[int | None]) -> None:
    store = memory_store()
    table = new_table(store)
    put_foreign(table, add("a"))
    put_foreign(table, remove(add("a")), add("b"))
    put_foreign(table, remove(add("b")), add("c"))
    reopen(table).checkpoint()
    for version in (0, 1):
        store.delete(f"_delta_log/{version:020d}.json")
    put_commit(store, 4, add("d"), info={"inCommitTimestamp": load(store).head.timestamp_ms + 1})
    assert classes(table) == ["INSERT", "OVERWRITE", "OVERWRITE"], (
        "one state is enough for all commits before the checkpoint"
    )
    assert loads == [3]
    put_commit(store, 5, remove(add("c")), remove(add("d")), info={"inCommitTimestamp": START_MS * 2})
    reopen(table).checkpoint()
    loads.clear()
    assert classes(table) == ["OVERWRITE", "INSERT", "OVERWRITE", "OVERWRITE"]
    assert loads == [5]


def test_a_history_without_any_state_uses_only_the_actions(
    loads: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.log import commit_records  # noqa: PLC0415 - what is patched

    table = new_table(memory_store())
    put_foreign(table, add("a"))
    put_foreign(table, remove(add("a")), add("b"))
    put_foreign(table, remove(add("b")), add("c"), load(table.store).head.metadata)

    def gone(store: Any, version: int | None = None) -> LogState:
        loads.append(version)
        raise HistoryExpiredError("gone", path=store.url)

    monkeypatch.setattr(commit_records, "load", gone)
    assert classes(table) == ["UPDATE_DELETE", "UPDATE_DELETE", "INSERT", "NONE"]
    assert loads == [2, 3], "one load for the commits, one for a possible RESTORE"
