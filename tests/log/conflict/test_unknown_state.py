"""Commits whose answer from the store is lost, late or wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.conflict.tables import data, filled, rows, through
from tests.log.faults import Around
from tests.log.support import Clock, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.compaction_daemon import compact
from tidelog.log import Committed, Table
from tidelog.log.errors import CommitStateUnknownError, StoreUnavailableError
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

# --- failures after the durable write ---------------------------------------------------------------------------------


class FailsAfterCommit(Around):
    """The n-th call after a version was put fails."""

    def __init__(self, inner: Any, fails_at: int) -> None:
        super().__init__(inner)
        self.fails_at = fails_at
        self.calls: int | None = None

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self._count()
        super().put_if_absent(path, content, durable=durable)
        if path.startswith("_delta_log/") and path.endswith(".json"):
            self.calls = 0

    def read(self, path: str) -> bytes:
        self._count()
        return super().read(path)

    def modified_ms(self, path: str) -> int:
        self._count()
        return super().modified_ms(path)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)

    def _count(self) -> None:
        if self.calls is not None:
            self.calls += 1
            if self.calls == self.fails_at:
                raise StoreUnavailableError("no answer", path=self.url)


@pytest.mark.parametrize("in_commit", [True, False], ids=["in-commit timestamps", "file times"])
@pytest.mark.parametrize("fails_at", range(1, 6))
def test_a_failure_after_the_durable_write_does_not_fail_the_commit(fails_at: int, in_commit: bool) -> None:
    table = filled((0, 0), **{"delta.enableInCommitTimestamps": in_commit})
    store = FailsAfterCommit(table.store, fails_at)
    mine = Table(store, load(store))
    assert mine.insert(data((1, 1))).version == 2
    store.calls = None
    assert mine.insert(data((2, 2))).version == 3
    assert rows(table) == [(0, 0), (1, 1), (2, 2)]


# --- a version that exists but cannot be read -------------------------------------------------------------------------


class ExistsButUnreadable(Around):
    """Reports that a version exists already after putting it, and cannot read it for a while."""

    def __init__(self, inner: Any, unreadable: int) -> None:
        super().__init__(inner)
        self.unreadable = unreadable
        self.put = 0

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        ours = path.startswith("_delta_log/") and path.endswith(".json")
        self.put += ours
        super().put_if_absent(path, content, durable=durable)
        if ours:
            raise FileExistsError(path)

    def read(self, path: str) -> bytes:
        if self.put and self.unreadable and path.startswith("_delta_log/"):
            self.unreadable -= 1
            raise FileNotFoundError(path)
        return super().read(path)


@pytest.mark.parametrize("unreadable", [0, 1, 3])
def test_a_version_that_cannot_be_read_yet_is_read_again(unreadable: int) -> None:
    table = filled((0, 0))
    clock = Clock()
    store = ExistsButUnreadable(table.store, unreadable)
    assert Table(store, load(store), clock).insert(data((1, 1))).version == 2
    assert rows(table) == [(0, 0), (1, 1)]


def test_a_version_that_is_never_readable_is_an_unknown_state_and_keeps_its_files() -> None:
    table = filled((0, 0))
    store = ExistsButUnreadable(table.store, 100)
    with pytest.raises(CommitStateUnknownError):
        Table(store, load(store), Clock()).insert(data((1, 1)))
    assert rows(table) == [(0, 0), (1, 1)], "it was committed, and its file exists"


# --- answers lost in a race -------------------------------------------------------------------------------------------


@pytest.fixture
def table() -> Table:
    """Three files of four rows each."""
    made = new_table(memory_store())
    for first in (0, 4, 8):
        made.insert(numbers(range(first, first + 4)))
    return made


class Racing(Around):
    """Another writer commits before each of the first `races` puts of a commit. The answer to the next put is lost."""

    def __init__(self, inner: Store, races: int) -> None:
        super().__init__(inner)
        self.races = races

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        ours = path.endswith(".json") and self.races >= 0
        if ours:
            self.races -= 1
            if self.races >= 0:
                self.win(through(self.inner))
        super().put_if_absent(path, content, durable=durable)
        if ours:
            raise StoreUnavailableError("the answer was lost", path=self.url)

    def win(self, other: Table) -> None:
        if self.races % 2:
            compact(other)
        other.delete(f"n = {self.races + 9}")


@pytest.mark.parametrize("races", [0, 1, 2, 3])
def test_a_commit_whose_answer_was_lost_in_a_rebase_is_found_and_keeps_its_files(table: Table, races: int) -> None:
    outcome = through(Racing(table.store, races)).begin().update("n IN (1, 6)", {"n": "n + 100"}).commit()
    assert isinstance(outcome, Committed)
    gone = {1, 6, *range(9, 9 + races)}
    assert read_numbers(reopen(table)) == [*(n for n in range(12) if n not in gone), 101, 106]
    assert reopen(table).version == outcome.version
