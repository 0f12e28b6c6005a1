"""Listings of the log that miss a commit made in the meantime."""

from __future__ import annotations

import pytest

from tests.log.support import memory_store, new_table, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.state.loader import load
from tidelog.log.state.segment import list_segment
from tidelog.log.storage import FileStatus
from tidelog.log.storage.memory import MemoryStore


class MissingOne(MemoryStore):
    """A store whose listing misses one commit, as if it was made during the listing."""

    missed = 0

    def list(self, folder: str) -> list[FileStatus]:
        name = filenames.commit_path(self.missed).rpartition("/")[2]
        return [status for status in super().list(folder) if status.name != name]


def test_a_commit_missing_from_a_listing_is_looked_up() -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    store = MissingOne(table.path)
    store.missed = 3
    assert list_segment(store).version == 4
    assert read_numbers(Table(store, load(store))) == [0, 1, 2, 3]
    store.delete(filenames.commit_path(3))
    with pytest.raises(CorruptLogError, match="lacks commit 3"):
        list_segment(store)


def test_a_listing_with_a_checkpoint_and_without_its_commit_does_not_shorten_the_history() -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    table.checkpoint()
    store = MissingOne(table.path)
    store.missed = 4
    assert [list_segment(store, version).earliest_version for version in (1, 4)] == [0, 0]
    store.delete(filenames.commit_path(4))
    with pytest.raises(HistoryExpiredError):
        list_segment(store, 1)


class Old(MemoryStore):
    """A store whose listing ends before a version, as an old one of a network file system."""

    before = 0

    def list(self, folder: str) -> list[FileStatus]:
        name = filenames.commit_path(self.before).rpartition("/")[2]
        return [status for status in super().list(folder) if status.name < name]


def test_a_version_that_an_old_listing_lacks_is_looked_up() -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    store = Old(table.path)
    store.before = 2
    assert [list_segment(store, version).version for version in (1, 3, 4)] == [1, 3, 4]
    assert read_numbers(Table(store, load(store, 3))) == [0, 1, 2]
    assert load(store).head.version == 4
    with pytest.raises(HistoryExpiredError, match="version 5"):
        list_segment(store, 5)
