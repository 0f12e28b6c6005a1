"""Commits are read in order, several at a time from a store in which a reader mostly waits."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from tests.log.faults import Counting
from tests.log.support import PROTOCOL, memory_store, metadata, put_commit
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import filenames
from tidelog.log.state import commits
from tidelog.log.state.commits import read_commits, read_each
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore

COMMITS = 30
AT_ONCE = 8
WAIT_S = 30


class Waiting(MemoryStore):
    """A store that answers some reads only when all of them have been asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []
        self.together: dict[str, threading.Barrier] = {}

    @property
    def small_reads_at_once(self) -> int:
        return AT_ONCE

    def read(self, path: str) -> bytes:
        self.asked.append(path)
        if path in self.together:
            self.together[path].wait(WAIT_S)
        return super().read(path)

    def answer_together(self, versions: Iterable[int]) -> None:
        """Answer reads of these commits only when all of them have been asked for."""
        paths = [filenames.commit_path(version) for version in versions]
        self.together |= dict.fromkeys(paths, threading.Barrier(len(paths)))


@pytest.fixture
def store() -> Waiting:
    plain: Store = memory_store()
    put_commit(plain, 0, PROTOCOL, metadata())
    for version in range(1, COMMITS):
        put_commit(plain, version)
    return Waiting(plain.url)


def test_more_and_more_commits_are_read_at_once(store: Waiting) -> None:
    for versions in (range(1, 5), range(5, 13), range(13, 21), range(21, 29)):
        store.answer_together(versions)
    assert [commit.version for commit in read_each(store, range(COMMITS))] == [*range(COMMITS)]


def test_a_reader_that_stops_has_read_few_commits_in_vain(store: Waiting) -> None:
    reading = read_each(store, range(COMMITS))
    assert next(reading).version == 0
    assert len(store.asked) == 1
    assert next(reading).version == 1
    assert len(store.asked) == 5


def test_no_thread_is_left_between_two_commits(store: Waiting) -> None:
    for _ in read_each(store, range(COMMITS)):
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("tidelog-read-commits")]


def test_an_error_comes_in_its_place(store: Waiting) -> None:
    store.delete(filenames.commit_path(7))
    reading = read_each(store, range(COMMITS))
    assert [next(reading).version for _ in range(7)] == [*range(7)]
    with pytest.raises(FileNotFoundError):
        next(reading)
    reading = read_commits(store, range(COMMITS))
    assert [next(reading).version for _ in range(7)] == [*range(7)]
    with pytest.raises(CorruptLogError, match="commit 7 of"):
        next(reading)


def test_large_commits_are_read_one_by_one(store: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_BLOCK_BYTES", len(store.read(filenames.commit_path(1))))
    store.asked.clear()
    for number, commit in enumerate(read_each(store, range(COMMITS))):
        assert commit.version == number
        assert len(store.asked) == number + 1


def test_a_store_that_answers_at_once_is_read_without_threads() -> None:
    readers = []

    class Here(MemoryStore):
        def read(self, path: str) -> bytes:
            readers.append(threading.current_thread())
            return super().read(path)

    plain = memory_store()
    for version in range(COMMITS):
        put_commit(plain, version)
    assert len(list(read_each(Here(plain.url), range(COMMITS)))) == COMMITS
    assert set(readers) == {threading.current_thread()}


def test_from_a_disk_no_more_is_read_at_once_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits before were small, so that many of the next ones would be read ahead."""
    store = Counting(memory_store())
    large = range(6, 12)
    for version in range(20):
        put_commit(store, version, info={"userMetadata": "x" * (50_000 if version in large else 1)})
    monkeypatch.setattr(commits, "_SMALL_BLOCK_BYTES", 100_000)
    reading = read_each(store, range(20))
    held = []
    for version in range(20):
        assert next(reading).version == version
        held.append(sum(filenames.commit_path(other) in store.reads for other in large if other > version))
    assert max(held) <= 2
    assert sorted(store.reads) == [filenames.commit_path(version) for version in range(20)]
