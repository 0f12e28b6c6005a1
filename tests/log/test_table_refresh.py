"""Refreshing a table: new versions, clean-ups, drops and replacements in the meantime."""

from __future__ import annotations

import shutil

import pytest

from tests.log.faults import Around, Counting
from tests.log.support import NUMBERS, clean_up_before, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError, TableNotFoundError, TableReplacedError
from tidelog.log.format import filenames
from tidelog.log.read.table_reader import TableReader
from tidelog.log.state.loader import load
from tidelog.log.storage import Store


class Timed(Around):
    """Remembers whose modification times were asked for."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def modified_ms(self, path: str) -> int:
        self.asked.append(path)
        return super().modified_ms(path)


def test_a_refresh_moves_to_the_newest_version_in_place(path: str) -> None:
    writer = Table.create(path, NUMBERS)
    reader = Table.open(path)
    writer.insert(numbers([1]))
    writer.insert(numbers([2]))
    assert (reader.version, read_numbers(reader)) == (0, [])
    assert reader.refresh() is reader
    assert (reader.version, read_numbers(reader)) == (2, [1, 2])
    assert reader.refresh().version == 2


def test_a_writing_method_refreshes_the_table_it_was_called_on() -> None:
    table = new_table(memory_store())
    other = reopen(table)
    other.insert(numbers([1]))
    assert table.insert(numbers([2])).version == 2
    assert read_numbers(table) == [1, 2]


def test_a_refresh_does_not_list_the_log() -> None:
    store = Counting(memory_store())
    table = new_table(store)
    reader = reopen(table)
    for number in range(3):
        table.insert(numbers([number]))
    store.lists = 0
    reader.refresh()
    table.insert(numbers([3]))
    assert store.lists == 0


# --- what a refresh has read -----------------------------------------------------------------------------------------


def test_the_commits_of_a_refresh_are_not_read_again_by_who_reads_the_history_next() -> None:
    table = new_table(memory_store())
    store = Counting(table.store)
    reader = TableReader(store, load(store))
    for number in range(3):
        table.insert(numbers([number]))
    reader.refresh()
    store.reads.clear()
    expected = list(reopen(table).timeline.between(0, 3))
    assert list(reader.timeline.between(0, 3)) == expected
    assert not store.reads
    assert list(reader.timeline.between(0, 3)) == expected, "they are read again if they are needed again"
    assert store.reads == [filenames.commit_path(version) for version in (1, 2, 3)]


def test_commits_of_a_table_that_is_gone_are_not_taken_for_those_in_its_place() -> None:
    """A clean-up of all versions that the reader knows, and writers that are long past them."""
    table = new_table(memory_store())
    reader = TableReader.open(table.path)
    table.insert(numbers([1]))
    reader.refresh()
    for number in range(3):
        table.insert(numbers([number]))
    clean_up_before(table, 2)
    reader.refresh()
    with pytest.raises(HistoryExpiredError):
        list(reader.timeline.between(0, 4))
    assert reader.timeline.recent.take(1) is None


def test_a_refresh_asks_the_store_for_no_more_file_times_than_it_needs() -> None:
    table = new_table(memory_store(), properties={"delta.enableInCommitTimestamps": False})
    store = Timed(table.store)
    reader = TableReader(store, load(store))
    for number in range(3):
        table.insert(numbers([number]))
    changed = table.version
    for number in range(3):
        table.set_properties({"custom": str(number)})
    store.asked.clear()
    reader.refresh()
    asked = {version for version in range(7) if filenames.commit_path(version) in store.asked}
    assert asked == {0, changed, 6}, "0 is the loaded one, which must exist"
    assert reader.head == reopen(table).head


# --- clean-ups -------------------------------------------------------------------------------------------------------


def test_a_refresh_finds_the_newest_version_after_the_loaded_one_was_cleaned_up() -> None:
    table = new_table(memory_store())
    stale = reopen(table)
    for number in range(5):
        table.insert(numbers([number]))
    clean_up_before(table, 5)
    assert read_numbers(stale.refresh()) == [0, 1, 2, 3, 4]
    assert stale.version == 5


def test_an_insert_after_the_loaded_version_was_cleaned_up_follows_the_newest() -> None:
    """The version after the loaded one is free again, but no reader would look for a commit there."""
    table = new_table(memory_store())
    stale = reopen(table)
    for number in range(5):
        table.insert(numbers([number]))
    clean_up_before(table, 5)
    assert stale.insert(numbers([5])).version == 6
    assert read_numbers(reopen(table)) == [0, 1, 2, 3, 4, 5]


def test_a_table_opened_before_a_clean_up_can_still_be_read() -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    waiting = Table.open(table.path)
    table.checkpoint()
    for version in range(4):
        table.store.delete(filenames.commit_path(version))
    assert read_numbers(waiting) == [0, 1, 2, 3]


# --- drops and replacements ------------------------------------------------------------------------------------------


def drop(table: Table) -> None:
    """Delete the table's files without tidelog, as a user could."""
    if table.path.startswith("memory:"):
        for status in table.store.list(filenames.LOG_FOLDER):
            table.store.delete(f"{filenames.LOG_FOLDER}/{status.name}")
    else:
        shutil.rmtree(table.path)


def test_a_deleted_table_is_not_mistaken_for_one_without_new_versions(path: str) -> None:
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1]))
    drop(table)
    for use in (table.refresh, lambda: table.insert(numbers([2]))):
        with pytest.raises(TableNotFoundError):
            use()
    with pytest.raises(TableNotFoundError):
        Table.open(path)


@pytest.mark.parametrize("newer", [0, 1, 2, 4])
def test_another_table_at_the_path_is_detected(path: str, newer: int) -> None:
    """The new table has fewer, equally many or more versions than the old one."""
    table = Table.create(path, NUMBERS)
    table.insert(numbers([1]))
    table.insert(numbers([2]))
    drop(table)
    new = Table.create(path, NUMBERS)
    for number in range(newer):
        new.insert(numbers([100 + number]))
    for use in (table.refresh, lambda: table.insert(numbers([3]))):
        with pytest.raises(TableReplacedError) as raised:
            use()
        assert raised.value.fields == {"path": path, "expected_id": table.id, "found_id": new.id}
    assert len(read_numbers(Table.open(path))) == newer
