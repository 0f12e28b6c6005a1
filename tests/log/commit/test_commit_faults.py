"""Commits through a store that loses answers, refuses writes or is under contention."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import ClassVar

import pytest

from tests.log.faults import Around, LostAnswer, NotWritten, Refusing, Unreadable
from tests.log.support import (
    NUMBERS,
    Clock,
    clean_up_before,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    reopen,
)
from tidelog.log import Committed, Table
from tidelog.log.commit.loop import MAX_ATTEMPTS
from tidelog.log.errors import (
    CommitContentionError,
    CommitStateUnknownError,
    CorruptLogError,
    HistoryExpiredError,
    PathNotWritableError,
    RetryableError,
    StoreUnavailableError,
    TableExistsError,
)
from tidelog.log.format import filenames
from tidelog.log.operations import create_table
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load
from tidelog.log.storage import NotStoredError, Store


def through(store: Store) -> Table:
    """The table of `store`, a wrapper around the store that the table was created in."""
    return Table(store, load(store), Clock())


@pytest.fixture
def plain() -> Table:
    return new_table(memory_store())


# --- the answer is lost ----------------------------------------------------------------------------------------------


def test_a_commit_with_a_lost_answer_is_found_and_not_repeated(plain: Table) -> None:
    store = LostAnswer(plain.store)
    committed = through(store).insert(numbers([1]))
    assert store.failures == 0
    assert (committed.version, committed.retried, committed.rebased_over) == (1, False, ())
    assert (reopen(plain).version, read_numbers(reopen(plain))) == (1, [1])


def test_a_commit_that_the_http_client_repeated_is_found_and_not_repeated(plain: Table) -> None:
    """If the first request gets no answer, the client sends it again, and the store says that the file exists."""
    store = LostAnswer(plain.store, error=FileExistsError("412"))
    assert through(store).insert(numbers([1])).version == 1
    assert read_numbers(reopen(plain)) == [1]


def test_an_existing_version_that_cannot_be_read_is_an_unknown_state(plain: Table) -> None:
    """A retryable error would double the rows if the put was stored."""
    reading = Unreadable(plain.store, suffix=".json", error=StoreUnavailableError("down", path="x"))

    def fail() -> None:
        reading.broken = True

    with pytest.raises(CommitStateUnknownError):
        through(LostAnswer(reading, error=FileExistsError("412"), also=fail)).insert(numbers([1]))


def test_creating_a_table_with_a_lost_answer_succeeds() -> None:
    store = LostAnswer(memory_store())
    table = new_table(store)
    assert store.failures == 0
    assert table.version == 0


@pytest.mark.parametrize("winners", [1, 3])
def test_a_lost_race_is_rebased_after_a_lost_answer(plain: Table, winners: int) -> None:
    def win() -> None:
        for _ in range(winners):
            put_foreign(plain)

    store = NotWritten(plain.store, also=win)
    committed = through(store).begin().insert(numbers([1])).commit()
    assert isinstance(committed, Committed)
    assert (committed.version, committed.rebased_over) == (winners + 1, tuple(range(1, winners + 1)))
    assert read_numbers(reopen(plain)) == [1]


def test_later_commits_do_not_hide_a_commit_with_a_lost_answer(plain: Table) -> None:
    def follow() -> None:
        put_foreign(plain)

    store = LostAnswer(plain.store, also=follow)
    assert through(store).insert(numbers([1])).version == 1
    assert read_numbers(reopen(plain)) == [1]
    assert reopen(plain).version == 2


@pytest.mark.parametrize("error", [StoreUnavailableError("down", path="x"), OSError(errno.EIO, "input/output error")])
def test_if_the_look_up_fails_too_the_state_is_unknown(plain: Table, error: Exception) -> None:
    reading = Unreadable(plain.store, suffix=".json", error=error)

    def fail() -> None:
        reading.broken = True

    table = through(LostAnswer(reading, also=fail))
    with pytest.raises(CommitStateUnknownError) as raised:
        table.insert(numbers([1]))
    reading.broken = False
    assert not isinstance(raised.value, RetryableError), "a retry could double the rows"
    assert raised.value.fields["version"] == 1
    assert raised.value.fields["path"] == plain.path
    assert read_commit(plain.store, 1).info["txnId"] == raised.value.fields["txn_id"]
    assert isinstance(raised.value.__cause__, StoreUnavailableError)


def test_an_unknown_commit_with_a_key_can_be_repeated(plain: Table) -> None:
    reading = Unreadable(plain.store, suffix=".json", error=OSError(errno.EIO, "input/output error"))

    def fail() -> None:
        reading.broken = True

    table = through(LostAnswer(reading, also=fail))
    with pytest.raises(CommitStateUnknownError):
        table.insert(numbers([1]), idempotency_key=("app", 1))
    reading.broken = False
    table.insert(numbers([1]), idempotency_key=("app", 1))
    assert read_numbers(reopen(plain)) == [1]


# --- nothing was written ---------------------------------------------------------------------------------------------


def test_a_put_that_was_not_stored_is_tried_again(plain: Table) -> None:
    """The look-up finds no such version, so the same content is put again."""
    store = NotWritten(plain.store)
    committed = through(store).insert(numbers([1]))
    assert (committed.version, committed.retried) == (1, False)
    assert read_numbers(reopen(plain)) == [1]


def test_a_store_that_never_answers_is_an_unknown_state_after_bounded_attempts(plain: Table) -> None:
    """Each of the puts can still land."""
    store = NotWritten(plain.store, failures=10**9)
    with pytest.raises(CommitStateUnknownError):
        through(store).insert(numbers([1]))
    assert 1 <= store.attempts <= MAX_ATTEMPTS
    assert reopen(plain).version == 0


def test_a_put_that_certainly_stored_nothing_is_not_an_unknown_state(plain: Table) -> None:
    """The caller can run it again, and its files are deleted at once."""
    before = sorted(path for path, _ in plain.store.walk())
    full = NotStoredError("disk full", path="x")
    with pytest.raises(StoreUnavailableError, match="disk full"):
        through(Refusing(plain.store, suffix=".json", error=full)).insert(numbers([1]))
    assert sorted(path for path, _ in plain.store.walk()) == before


def test_after_an_unanswered_put_a_refusal_proves_nothing(plain: Table) -> None:
    """Permissions are revoked after a put that may still land."""
    refusing = Refusing(plain.store, suffix=".json", error=PathNotWritableError("revoked", path="x"))
    with pytest.raises(CommitStateUnknownError):
        through(NotWritten(refusing)).insert(numbers([1]))


# --- files next to the commit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [StoreUnavailableError("down", path="x"), OSError(errno.EIO, "input/output error"), FileExistsError("crc")]
)
def test_a_checksum_that_cannot_be_written_does_not_fail_the_commit(
    plain: Table, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    table = through(Refusing(plain.store, suffix=".crc", error=error))
    with caplog.at_level(logging.WARNING):
        assert table.insert(numbers([1])).version == 1
        assert table.insert(numbers([2])).version == 2
    assert read_numbers(reopen(plain)) == [1, 2]
    assert bool(caplog.records) is not isinstance(error, FileExistsError)


def test_a_checkpoint_is_used_without_its_pointer(plain: Table) -> None:
    table = through(Refusing(plain.store, suffix="_last_checkpoint", error=StoreUnavailableError("down", path="x")))
    table.insert(numbers([1]))
    with pytest.raises(StoreUnavailableError):
        table.checkpoint()
    for version in range(2):
        plain.store.delete(filenames.checksum_path(version))
    plain.store.delete(filenames.commit_path(0))
    assert read_numbers(reopen(plain)) == [1]


def test_nothing_is_committed_if_data_cannot_be_written(plain: Table) -> None:
    class Full(Around):
        def create(self, path: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
            raise StoreUnavailableError("full", path=path)

    with pytest.raises(StoreUnavailableError):
        through(Full(plain.store)).insert(numbers([1]))
    assert reopen(plain).version == 0


def test_a_damaged_next_version_is_an_error_and_is_not_overwritten(plain: Table) -> None:
    table = reopen(plain)
    plain.store.put_if_absent(filenames.commit_path(1), b'{"add":')
    with pytest.raises(CorruptLogError, match="commit 1"):
        table.insert(numbers([1]))
    assert plain.store.read(filenames.commit_path(1)) == b'{"add":'


def damaged(store: Store, version: int, damage: str) -> None:
    path = filenames.commit_path(version)
    content = store.read(path)
    store.delete(path)
    broken = {"cut": content[: len(content) // 2], "without its end": content[:-3], "empty": b"", "garbage": b"\0" * 99}
    store.put_if_absent(path, broken[damage])


@pytest.mark.parametrize("damage", ["cut", "without its end", "empty", "garbage"])
def test_a_table_whose_newest_commit_cannot_be_read_takes_no_writes(damage: str, tmp_path: Path) -> None:
    """Its head could still be read from the checksum, but readers that need the commit would lose what came after."""
    table = Table.create(str(tmp_path / "t"), NUMBERS)
    table.insert(numbers([1]))
    table.insert(numbers([2]))
    transaction = table.begin().insert(numbers([3]))
    damaged(table.store, 2, damage)
    opened = Table.open(table.path)
    for write in (transaction.commit, lambda: table.insert(numbers([4])), lambda: opened.set_properties({"x": 1})):
        with pytest.raises(CorruptLogError, match=r"commit 2 .* cannot be read"):
            write()
    assert filenames.commit_path(3) not in {path for path, _ in table.store.walk()}


def test_the_newest_commit_is_read_once_before_the_first_write(plain: Table) -> None:
    class Counting(Around):
        calls: ClassVar[list[str]] = []

        def read(self, path: str) -> bytes:
            self.calls.append(path)
            return super().read(path)

        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            self.calls.append(f"put {path}")
            super().put_if_absent(path, content, durable=durable)

    table = through(Counting(plain.store))
    Counting.calls.clear()
    for number in range(3):
        table.insert(numbers([number]))
    before = Counting.calls[: Counting.calls.index(f"put {filenames.commit_path(1)}")]
    assert before.count(filenames.commit_path(0)) == 1
    assert Counting.calls.count(filenames.commit_path(0)) == 2, "and once after it"


def test_a_transaction_whose_base_was_cleaned_up_is_refused(plain: Table) -> None:
    """The version after its base is free again, but no reader would look for a commit there."""
    transaction = reopen(plain).begin().insert(numbers([99]))
    for number in range(5):
        plain.insert(numbers([number]))
    clean_up_before(plain, 5)
    with pytest.raises(HistoryExpiredError, match="has been cleaned up"):
        transaction.commit()
    assert read_numbers(reopen(plain)) == [0, 1, 2, 3, 4]


# --- contention ------------------------------------------------------------------------------------------------------


class AlwaysLate(Around):
    """Another writer takes each version just before ours is put."""

    def __init__(self, inner: Table) -> None:
        super().__init__(inner.store)
        self._other = inner
        self.taken = 0

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.startswith("_delta_log/") and path.endswith(".json"):
            self.taken += 1
            put_foreign(self._other)
        super().put_if_absent(path, content, durable=durable)


def test_losing_every_race_is_an_error_after_bounded_attempts(plain: Table) -> None:
    store, clock = AlwaysLate(plain), Clock()
    table = Table(store, load(store), clock)
    with pytest.raises(CommitContentionError) as raised:
        table.begin().insert(numbers([1])).commit()
    assert raised.value.fields["attempts"] == store.taken == MAX_ATTEMPTS
    assert raised.value.fields["head_version"] == reopen(plain).version == MAX_ATTEMPTS
    assert isinstance(raised.value, RetryableError)
    assert read_numbers(reopen(plain)) == []
    assert 0 < len(clock.slept_s) < MAX_ATTEMPTS, "it backs off"
    assert max(clock.slept_s) <= 1.0


def test_the_first_retry_does_not_wait(plain: Table) -> None:
    clock = Clock()
    table = Table(plain.store, load(plain.store), clock)
    transaction = table.begin().insert(numbers([1]))
    put_foreign(plain)
    transaction.commit()
    assert clock.slept_s == []


def test_losing_the_race_to_create_a_table_is_an_error() -> None:
    inner = memory_store()

    class First(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path == filenames.commit_path(0):
                new_table(inner)
            super().put_if_absent(path, content, durable=durable)

    assert not create_table.create(First(inner), NUMBERS, (), {}, Clock())
    with pytest.raises(TableExistsError):
        Table.create(inner.url, NUMBERS)
