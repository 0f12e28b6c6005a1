"""An insert on the loaded version, without a refresh first."""

from __future__ import annotations

from threading import Thread

import pyarrow as pa
import pytest

from tests.log.faults import Around, Counting
from tests.log.support import clean_up_before, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.errors import CommitStateUnknownError, SchemaMismatchError, TableReplacedError
from tidelog.log.format import filenames
from tidelog.log.state.loader import load
from tidelog.log.storage import NotDurableError, Store


class Created(Counting):
    """A store in which a look costs something. Counts the data files that are created."""

    @property
    def trusted_s(self) -> float:
        return 300

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.created: list[str] = []

    def create(self, path: str):  # type: ignore[no-untyped-def] # noqa: ANN201 - as its base
        self.created.append(path)
        return super().create(path)


@pytest.fixture
def store() -> Created:
    return Created(new_table(memory_store()).store)


@pytest.fixture
def table(store: Created) -> Table:
    return Table(store, load(store))


def probes(store: Counting, version: int) -> int:
    return store.reads.count(filenames.commit_path(version))


def test_the_only_writer_does_not_look_for_new_versions(table: Table, store: Created) -> None:
    for version in range(1, 4):
        store.reads.clear()
        assert table.insert(numbers([version])).version == version
        assert not probes(store, version)
    assert read_numbers(reopen(table)) == [1, 2, 3]


def test_a_stale_insert_follows_the_newest_version_with_the_file_that_it_has_written(
    table: Table, store: Created
) -> None:
    other = Table.open(table.path)
    other.insert(numbers([1]))
    other.insert(numbers([2]))
    made = table.insert(numbers([3]))
    assert (made.version, made.rebased_over, len(store.created)) == (3, (1, 2), 1)
    assert read_numbers(reopen(table)) == [1, 2, 3]


def test_with_other_writers_an_insert_looks_first_until_they_are_gone(table: Table, store: Created) -> None:
    Table.open(table.path).insert(numbers([1]))
    table.insert(numbers([2]))
    store.reads.clear()
    assert table.insert(numbers([3])).version == 3
    assert probes(store, 3)
    store.reads.clear()
    assert table.insert(numbers([4])).version == 4
    assert not probes(store, 4)


def test_a_column_that_another_writer_added_can_be_written(table: Table, store: Created) -> None:
    Table.open(table.path).add_columns(pa.schema([("word", pa.string())]))
    table.insert([{"n": 1, "word": "one"}])
    assert reopen(table).scan().to_arrow().to_pylist() == [{"n": 1, "word": "one"}]
    assert len(store.created) == 1, "nothing was written for the old schema"


def test_an_insert_that_may_not_follow_the_others_begins_again_on_the_newest_version(
    table: Table, store: Created
) -> None:
    Table.open(table.path).set_properties({"delta.enableChangeDataFeed": True})
    assert table.insert(numbers([1])).rebased_over == ()
    assert read_numbers(reopen(table)) == [1]
    live = [path for path, _ in store.walk() if path.endswith(".parquet")]
    assert (len(store.created), len(live)) == (2, 1), "the first file was deleted"


def test_rows_that_no_version_takes_are_an_error(table: Table, store: Created) -> None:
    Table.open(table.path).insert(numbers([1]))
    with pytest.raises(SchemaMismatchError):
        table.insert([{"other": 1}])
    assert not store.created


def test_a_key_that_another_writer_has_committed_is_not_written_twice(table: Table, store: Created) -> None:
    first = Table.open(table.path).insert(numbers([1]), idempotency_key=("app", 1))
    second = table.insert(numbers([1]), idempotency_key=("app", 1))
    assert second.version == first.version
    assert read_numbers(reopen(table)) == [1]
    assert len([path for path, _ in store.walk() if path.endswith(".parquet")]) == 1


def test_an_insert_of_nothing_reports_the_newest_version(table: Table) -> None:
    Table.open(table.path).insert(numbers([1]))
    assert table.insert(numbers([])).version == 1


def test_a_table_in_the_place_of_the_old_one_is_refused(table: Table) -> None:
    for path, _ in [*table.store.walk()]:
        table.store.delete(path)
    new_table(table.store)
    with pytest.raises(TableReplacedError):
        table.insert(numbers([1]))
    assert read_numbers(Table.open(table.path)) == []


def test_a_version_that_was_cleaned_up_is_not_followed(table: Table) -> None:
    """Version 1 is free again, but no reader looks there."""
    other = Table.open(table.path)
    for number in range(5):
        other.insert(numbers([number]))
    clean_up_before(other, 5)
    assert table.insert(numbers([5])).version == 6
    assert read_numbers(reopen(table)) == [0, 1, 2, 3, 4, 5]


def test_an_unknown_state_is_not_tried_again(table: Table) -> None:
    class NotSynced(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            super().put_if_absent(path, content, durable=durable)
            if path == filenames.commit_path(1):
                raise NotDurableError("the disk failed", path=self.url)

    with pytest.raises(CommitStateUnknownError):
        Table(NotSynced(table.store), load(table.store)).insert(numbers([1]))
    assert read_numbers(reopen(table)) == [1]


class Waiting(Created):
    """A slow store: the look at the base runs in a thread."""

    @property
    def small_reads_at_once(self) -> int:
        return 16


def test_without_a_thread_to_spare_an_insert_sends_its_requests_one_after_the_other(
    store: Created, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that is durable must not be reported as failed because there can be no thread for the checksum."""
    waiting = Waiting(store)
    table = Table(waiting, load(waiting))
    real, refused = Thread.start, []

    def start(thread: Thread) -> None:
        if thread.name.startswith("tidelog-"):
            refused.append(thread.name.rpartition("_")[0])
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(Thread, "start", start)
    assert table.insert(numbers([1])).version == 1
    assert refused == ["tidelog-base-look", "tidelog-beside"]
    assert read_numbers(reopen(table)) == [1]
    assert store.read(filenames.checksum_path(1))
