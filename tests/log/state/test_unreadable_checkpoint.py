"""A version whose only checkpoint cannot be read: the error is about the checkpoint, and not about the history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.faults import Around
from tests.log.support import clean_up_before, memory_store, new_table, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, HistoryExpiredError
from tidelog.log.format import filenames
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.storage.store import NotReadError

CHECKPOINT = filenames.checkpoint_path(3)


class Failing(Around):
    """While it is `down`, the checkpoint cannot be read."""

    down = True

    def open_input(self, path: str) -> Any:
        if self.down and path == CHECKPOINT:
            raise NotReadError("input/output error", advice="repair the disk")
        return super().open_input(path)


class Deleting(Around):
    """A clean-up deletes the checkpoint when somebody wants to read it."""

    def open_input(self, path: str) -> Any:
        if path == CHECKPOINT:
            self.inner.delete(path)
        return super().open_input(path)


@pytest.fixture
def store() -> Store:
    """Versions 3 to 5 are left, and the only checkpoint is that of version 3; without checksums."""
    store = memory_store()
    table = new_table(store)
    for number in range(3):
        table.insert(numbers([number]))
    clean_up_before(table, 3)
    for number in (3, 4):
        table.insert(numbers([number]))
    for version in range(3, 6):
        store.delete(filenames.checksum_path(version))
    return store


@pytest.mark.parametrize("version", [None, 4, 3])
def test_an_outage_is_an_outage(store: Store, version: int | None) -> None:
    """It was an error that version 4 is not in the log."""
    failing = Failing(store)
    with pytest.raises(NotReadError):
        read_numbers(Table(failing, load(failing, version)))
    failing.down = False
    assert read_numbers(Table(failing, load(failing, version))) == list(range(version or 5))


@pytest.mark.parametrize("version", [None, 4])
def test_a_damaged_checkpoint_is_named(store: Store, version: int | None) -> None:
    store.replace(CHECKPOINT, b"garbage")
    with pytest.raises(CorruptLogError, match=r"a checkpoint of .* cannot be read"):
        read_numbers(Table(store, load(store, version)))


def test_one_that_a_clean_up_has_deleted_is_history(store: Store) -> None:
    table = Table(store, load(store))
    table.checkpoint()
    with pytest.raises(HistoryExpiredError, match="version 4 is not in the log"):
        load(Deleting(store), 4)
