"""Puts of a commit that are reported as failed and land later: settled before anything is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.log.faults import Around, Counting
from tests.log.support import Clock, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Committed, Table
from tidelog.log.commit.version_put import MAX_PUTS, MAX_SETTLEMENTS
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.errors import CommitStateUnknownError, HistoryExpiredError, StoreUnavailableError
from tidelog.log.format import filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.operations import create_table
from tidelog.log.read import table_reader
from tidelog.log.state import commits
from tidelog.log.state.commits import read_info
from tidelog.log.state.loader import load
from tidelog.log.state.table_identity import BaseLook
from tidelog.log.storage import NotDurableError, Store
from tidelog.log.storage.local import LocalStore


class Held(Around):
    """The first `puts` puts of a commit get no answer. They are carried out by `land`, after every retry."""

    def __init__(self, inner: Store, puts: int) -> None:
        super().__init__(inner)
        self.left = puts
        self._held: list[tuple[str, bytes]] = []

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.endswith(".json") and self.left:
            self.left -= 1
            self._held.append((path, content))
            raise StoreUnavailableError("no answer", path=self.url)
        super().put_if_absent(path, content, durable=durable)

    def land(self) -> int:
        """Carry out the held puts, and return how many of them stored something."""
        landed = 0
        for path, content in self._held:
            with contextlib.suppress(FileExistsError):
                self.inner.put_if_absent(path, content)
                landed += 1
        return landed


class Unsynced(Around):
    """Stores commits, but cannot make them durable until it `works`."""

    works = False

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        super().put_if_absent(path, content, durable=durable)
        if path.endswith(".json") and not self.works:
            raise NotDurableError("fsync failed", path=self.url)

    def sync(self, paths: Sequence[str]) -> None:
        super().sync(paths)
        if not self.works:
            raise StoreUnavailableError("fsync failed", path=self.url)


@pytest.fixture
def plain() -> Table:
    return new_table(memory_store())


def through(store: Store) -> Table:
    return Table(store, load(store), Clock())


@pytest.mark.parametrize("puts", range(1, MAX_PUTS))
def test_the_same_content_is_put_again_and_the_lost_put_cannot_land(plain: Table, puts: int) -> None:
    store = Held(plain.store, puts)
    assert through(store).insert(numbers([1])).version == 1
    assert store.land() == 0
    assert (reopen(plain).version, read_numbers(reopen(plain))) == (1, [1])


@pytest.mark.parametrize("puts", range(MAX_PUTS, MAX_PUTS + MAX_SETTLEMENTS))
def test_an_empty_commit_takes_the_version_and_the_commit_goes_on_at_the_next(plain: Table, puts: int) -> None:
    store = Held(plain.store, puts)
    committed = through(store).begin().insert(numbers([1])).commit()
    assert isinstance(committed, Committed)
    assert (committed.version, committed.rebased_over) == (2, (1,))
    assert store.land() == 0
    assert read_numbers(reopen(plain)) == [1]


def test_if_nothing_is_answered_the_state_is_unknown_and_the_put_may_land(plain: Table) -> None:
    store = Held(plain.store, MAX_PUTS + MAX_SETTLEMENTS)
    with pytest.raises(CommitStateUnknownError) as raised:
        through(store).insert(numbers([1]))
    assert store.land() == 1
    assert read_info(plain.store, 1)["txnId"] == raised.value.fields["txn_id"]
    assert read_numbers(reopen(plain)) == [1], "its files have been kept"


def test_the_first_version_is_never_an_empty_commit() -> None:
    store = Held(memory_store(), MAX_PUTS)
    with pytest.raises(CommitStateUnknownError):
        create_table.create(store, numbers([]).schema, (), {}, Clock())
    assert store.names("_delta_log") == []


def test_a_settled_version_changes_nothing(tmp_path: Path) -> None:
    """Not for the history, nor the feed, nor other readers."""
    path = str(tmp_path / "table")
    table = Table.create(path, numbers([]).schema)
    table.insert(numbers([1]))
    before = table.at()
    through(Held(LocalStore(path), MAX_PUTS)).insert(numbers([2]))
    _, settled, *_ = table.refresh().history()
    assert (settled.version, settled.operation, settled.operation_class) == (2, "SETTLE", OperationClass.NONE)
    assert (settled.time_version, settled.data_change) == (None, False)
    assert before.timestamp < settled.timestamp < table.at().timestamp
    assert table.changes(after=1, until=2).to_arrow().num_rows == 0
    assert table.changes(after=1).to_arrow()["n"].to_pylist() == [2]
    assert DeltaTable(path).version() == 3
    assert DeltaTable(path).history()[1]["operation"] == "SETTLE"
    table.checkpoint()
    assert read_numbers(Table.open(path)) == [1, 2]


def test_a_version_that_may_not_survive_a_crash_is_an_unknown_state(plain: Table) -> None:
    """Even though it can be read."""
    with pytest.raises(CommitStateUnknownError, match="fsync failed") as caught:
        through(Unsynced(plain.store)).insert(numbers([1]))
    assert "nothing was committed" not in str(caught.value)


def test_work_is_not_skipped_for_a_commit_that_may_not_survive_a_crash(plain: Table) -> None:
    store = Unsynced(plain.store)
    for _ in range(2):
        with pytest.raises(CommitStateUnknownError, match="fsync failed"):
            through(store).insert(numbers([1]), idempotency_key=("load", 1))
    store.works = True
    assert through(store).insert(numbers([1]), idempotency_key=("load", 1)).version == 1
    assert read_numbers(reopen(plain)) == [1]


class IntoHole(Around):
    """Just before the next put, other writers commit, and the log is cleaned up to their checkpoint."""

    def __init__(self, inner: Store, deleted: int) -> None:
        super().__init__(inner)
        self._deleted = deleted

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.endswith(".json") and self._deleted:
            other = Table(self.inner, load(self.inner))
            for value in range(10, 15):
                other.insert(numbers([value]))
            other.checkpoint()
            for version in range(self._deleted):
                self.inner.delete(f"_delta_log/{version:020}.json")
            self._deleted = 0
        super().put_if_absent(path, content, durable=durable)


@pytest.mark.parametrize("deleted", [2, 3, 5])
def test_a_put_into_a_hole_is_not_a_commit(plain: Table, deleted: int) -> None:
    """Nobody reads a version below the checkpoint that was cleaned up before the put."""
    with pytest.raises(CommitStateUnknownError, match="version 0 was cleaned up"):
        through(IntoHole(plain.store, deleted)).insert(numbers([1]))
    assert read_numbers(reopen(plain)) == [10, 11, 12, 13, 14]


def expired(table: Table) -> None:
    """Others commit versions 1 to 5, and the log is cleaned up to their checkpoint."""
    for value in range(10, 15):
        table.insert(numbers([value]))
    table.checkpoint()
    for version in range(5):
        table.store.delete(filenames.commit_path(version))


class Distant(Counting):
    """A store whose answers take so long that a look at the base version can run in a thread."""

    @property
    def small_reads_at_once(self) -> int:
        return 16


@pytest.mark.parametrize("kind", [Counting, Distant])
def test_what_was_staged_before_a_clean_up_is_not_put(plain: Table, kind: type[Counting]) -> None:
    """On every store alike: the look at the base version comes when the transaction commits."""
    staged = through(kind(plain.store)).begin().insert(numbers([1]))
    expired(reopen(plain))
    with pytest.raises(HistoryExpiredError, match="nothing was committed"):
        staged.commit()
    assert sorted(filenames.versions(plain.store.names("_delta_log"), LogFileKind.COMMIT)) == [5]


@pytest.mark.parametrize("kind", [Counting, Distant])
def test_a_statement_whose_file_took_long_looks_again_before_it_commits(kind: type[Counting]) -> None:
    """It commits at once, so where answers take long it looks while it writes; but not if it writes for long."""
    clock = Clock()
    plain = new_table(memory_store(clock), system=clock)

    class Slow(kind):  # type: ignore[misc, valid-type]
        @contextlib.contextmanager
        def create(self, path: str) -> Iterator[Any]:
            with super().create(path) as file:
                yield file
            clock.ms += 1_001
            expired(reopen(plain))

    slow = Table(Slow(plain.store), load(plain.store), clock)
    with pytest.raises(HistoryExpiredError, match="nothing was committed"):
        slow.insert(numbers([1]))
    assert sorted(filenames.versions(plain.store.names("_delta_log"), LogFileKind.COMMIT)) == [5]


@pytest.mark.parametrize(("slept_ms", "reads"), [(0, 1), (1_000, 1), (1_001, 2)])
def test_a_look_from_before_the_machine_was_suspended_is_made_again(slept_ms: int, reads: int) -> None:
    """Meanwhile the monotonic clock stands still."""
    clock = Clock()
    store = Distant(memory_store(clock))
    table = new_table(store, system=clock)
    look = BaseLook(store, table.head, clock)
    store.reads.clear()
    look.begin()
    clock.ms += slept_ms
    assert look.is_same()
    assert store.reads.count(filenames.commit_path(0)) == reads


def test_a_settlement_in_a_hole_is_no_winner_to_follow(plain: Table) -> None:
    class Asleep(Held):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if self.left == MAX_PUTS:
                expired(reopen(plain))
            super().put_if_absent(path, content, durable=durable)

    with pytest.raises(CommitStateUnknownError, match="version 0 was cleaned up"):
        through(Asleep(plain.store, MAX_PUTS)).insert(numbers([1]))
    assert read_numbers(reopen(plain)) == [10, 11, 12, 13, 14]


def test_a_put_into_a_hole_is_no_winner_to_follow(plain: Table) -> None:
    """Two writers sleep through a clean-up. What the first one puts must not lead the second one."""

    class Asleep(Around):
        asleep = True

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path.endswith(".json") and self.asleep:
                self.asleep = False
                with pytest.raises(CommitStateUnknownError):
                    through(IntoHole(plain.store, 3)).insert(numbers([1]))
            super().put_if_absent(path, content, durable=durable)

    with pytest.raises(HistoryExpiredError, match="version 0, which the transaction is based on"):
        through(Asleep(plain.store)).begin().insert(numbers([2])).commit()
    assert read_numbers(reopen(plain)) == [10, 11, 12, 13, 14]


def test_a_put_behind_one_into_a_hole_is_no_commit(plain: Table) -> None:
    """Two writers sleep through a clean-up: one before it puts version 1, the other one before version 2."""
    plain.insert(numbers([9]))

    class Asleep(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path == filenames.commit_path(2):
                expired(reopen(plain))
                late = plain.store.read(filenames.commit_path(6))
                plain.store.put_if_absent(filenames.commit_path(1), late)
            super().put_if_absent(path, content, durable=durable)

    with pytest.raises(CommitStateUnknownError, match="version 1 was cleaned up"):
        through(Asleep(plain.store)).insert(numbers([1]))
    assert read_numbers(reopen(plain)) == [9, 10, 11, 12, 13, 14]


@pytest.mark.parametrize("way", ["refresh", "load"])
def test_a_reader_that_slept_through_a_clean_up_does_not_follow_a_put_into_a_hole(
    plain: Table, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = reopen(plain)
    module = table_reader if way == "refresh" else commits
    probe = commits.commits_until_now
    asleep = [True]

    def slept(store: Store, version: int) -> list[Commit]:
        if asleep:
            asleep.pop()
            expired(reopen(plain))
            plain.store.put_if_absent(filenames.commit_path(1), plain.store.read(filenames.commit_path(5)))
        return probe(store, version)

    monkeypatch.setattr(module, "commits_until_now", slept)
    found = handle.refresh() if way == "refresh" else Table(plain.store, load(plain.store))
    assert found.version == 5
    assert read_numbers(found) == [10, 11, 12, 13, 14]


def test_a_version_whose_predecessor_cannot_be_looked_up_is_an_unknown_state(plain: Table) -> None:
    class Deaf(Around):
        put = False

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            super().put_if_absent(path, content, durable=durable)
            self.put = self.put or path.endswith(".json")

        def read(self, path: str) -> bytes:
            if self.put and path == filenames.commit_path(0):
                raise StoreUnavailableError("no answer", path=self.url)
            return super().read(path)

    with pytest.raises(CommitStateUnknownError, match="no answer"):
        through(Deaf(plain.store)).insert(numbers([1]))
    assert read_numbers(reopen(plain)) == [1]
