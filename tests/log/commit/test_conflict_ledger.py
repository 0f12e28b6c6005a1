"""The conflict ledger."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.log.support import NUMBERS, START_MS, Clock, memory_store
from tidelog.log import Table
from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.conflict_ledger import LEDGER_FOLDER, MAX_TEXT, Lost, LostRace
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.storage import Store, open_store
from tidelog.log.storage.memory import MemoryStore


def entry(when_ms: int = START_MS, **more: Any) -> LostRace:
    values: dict[str, Any] = {
        "base_version": 3,
        "winning_version": 5,
        "policy": "delta-table",
        "earlier": "INSERT",
        "later": "UPDATE_DELETE",
        "operation": "DELETE",
        "outcome": Lost.CONFLICT,
        "error": "ConflictError",
        "evidence": "it wrote a.parquet",
        "wasted_rows": 7,
        "wasted_bytes": 1024,
        "wasted_seconds": 0.5,
        "loser": "host:17",
    }
    return LostRace(when_ms=when_ms, **{**values, **more})


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return memory_store() if request.param == "memory" else open_store(str(tmp_path / "t"))


def append(store: Store, *entries: LostRace) -> None:
    for each in entries:
        conflict_ledger.append(store, Clock(), each)


def read(store: Store, limit: int | None = None) -> list[LostRace]:
    return list(conflict_ledger.read_ledger(store, limit))


def test_entries_are_read_newest_first(store: Store) -> None:
    assert read(store) == []
    times = [5, START_MS, 12, START_MS + 1, 10**13 - 1]
    append(store, *(entry(when_ms) for when_ms in times))
    assert read(store) == [entry(when_ms) for when_ms in sorted(times, reverse=True)]
    assert read(store, 2) == [entry(10**13 - 1), entry(START_MS + 1)]
    assert read(store, 0) == []


def test_entries_of_the_same_moment_are_all_kept(store: Store) -> None:
    append(store, *(entry(winning_version=version) for version in range(20)))
    assert {each.winning_version for each in read(store)} == set(range(20))


def test_every_outcome_and_entries_without_optional_fields(store: Store) -> None:
    bare = [
        LostRace(
            when_ms=number,
            base_version=0,
            winning_version=1,
            policy=None,
            earlier="INSERT",
            later="MINOR",
            operation="OPTIMIZE",
            outcome=outcome,
        )
        for number, outcome in enumerate(Lost)
    ]
    append(store, *bare)
    assert read(store) == bare[::-1]
    assert {str(outcome) for outcome in Lost} == {"conflict", "superseded", "dropped"}


def test_long_texts_are_cut(store: Store) -> None:
    append(store, entry(evidence="x" * 10_000_000, loser="y" * MAX_TEXT, error=None))
    (found,) = read(store)
    assert (len(found.evidence), found.evidence[-2:]) == (MAX_TEXT, "x…")
    assert found.loser == "y" * MAX_TEXT
    (status,) = store.list(LEDGER_FOLDER)
    assert status.size_bytes < 3 * MAX_TEXT


def test_damaged_and_unknown_files_are_skipped(store: Store) -> None:
    append(store, entry(1), entry(3))
    late = msgspec.json.encode(entry(10**18))
    for number, content in enumerate([b"", b"{", b"\xff\xfe", b'{"whenMs":"soon"}', b"[]", late]):
        store.put_if_absent(f"{LEDGER_FOLDER}/{2:013d}-00000000-0000-0000-0000-{number:012d}.json", content)
    for name in ("notes.txt", "9999999999999.json", f"{9:013d}-no-uuid.json"):
        store.put_if_absent(f"{LEDGER_FOLDER}/{name}", msgspec.json.encode(entry(9)))
    assert read(store) == [entry(3), entry(1)]
    assert read(store, 2) == [entry(3), entry(1)], "a damaged entry does not count towards the limit"


def test_a_file_deleted_during_the_read_is_skipped() -> None:
    store = memory_store()
    append(store, entry(1), entry(2), entry(3))
    entries = conflict_ledger.read_ledger(store)
    assert next(entries) == entry(3)
    prune(store, 2)
    assert list(entries) == [entry(2)]


def test_unknown_fields_of_later_versions_are_ignored(store: Store) -> None:
    known = msgspec.to_builtins(entry()) | {"colour": "red"}
    store.put_if_absent(f"{LEDGER_FOLDER}/{1:013d}-{Clock().uuid()}.json", msgspec.json.encode(known))
    assert read(store) == [entry()]


def test_pruning_deletes_only_older_entries(store: Store) -> None:
    append(store, *(entry(when_ms) for when_ms in (1, 2, 3)))
    store.put_if_absent(f"{LEDGER_FOLDER}/notes.txt", b"mine")
    assert prune(store, 3) == 2
    assert read(store) == [entry(3)]
    assert prune(store, 3) == 0
    assert store.read(f"{LEDGER_FOLDER}/notes.txt") == b"mine"


def prune(store: Store, when_ms: int) -> int:
    """Delete old entries as `expire` does."""
    old = conflict_ledger.entries_before(store, when_ms)
    for status in old:
        store.delete(f"{LEDGER_FOLDER}/{status.name}")
    return len(old)


class FailingStore(MemoryStore):
    """A store on which every write fails."""

    error: Exception

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        del path, content, durable
        raise self.error


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError("no answer", path="x"), OSError(28, "no space"), ValueError("odd"), FileExistsError()],
)
def test_an_entry_that_cannot_be_written_is_a_warning(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore("memory://failing")
    store.error = error
    with caplog.at_level(logging.WARNING):
        append(store, entry())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "memory://failing" in caplog.text


def test_an_entry_that_cannot_be_encoded_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    append(memory_store(), entry(loser="\ud800"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_dropping_a_table_deletes_its_ledger(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(str(path), NUMBERS)
    append(table.store, entry())
    Table.drop(table.path)
    assert [entry.name for entry in path.iterdir()] == ["_delta_log"]
