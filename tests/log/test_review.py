"""Faults that a review found, each as the scenario that showed it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.log.support import NUMBERS, add, memory_store, metadata, new_table, numbers, put_commit, read_numbers
from tidelog.log import Table
from tidelog.log.errors import ConcurrentTransactionException, CorruptLogError, UnsupportedFeatureError
from tidelog.log.format import filenames
from tidelog.log.format.actions import DomainMetadata, Protocol, SetTransaction
from tidelog.log.state.loader import load
from tidelog.log.state.segment import list_segment
from tidelog.log.storage import FileStatus
from tidelog.log.storage.memory import MemoryStore


class Gappy(MemoryStore):
    """A store whose listing misses one commit: it was made while the folder was being read."""

    missed = 0

    def list(self, folder: str) -> list[FileStatus]:
        name = filenames.commit_path(self.missed).rpartition("/")[2]
        return [status for status in super().list(folder) if status.name != name]


def test_a_listing_that_misses_a_commit_made_meanwhile_is_no_damage() -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    store = Gappy(table.path)
    store.missed = 3
    assert list_segment(store).version == 4
    assert read_numbers(Table(store, load(store))) == [0, 1, 2, 3]
    store.delete(filenames.commit_path(3))
    with pytest.raises(CorruptLogError, match="lacks commit 3"):
        list_segment(store)


def test_an_application_that_is_only_read_is_a_conflict_all_the_same() -> None:
    """A sink reads whom its name belongs to: whoever takes it over meanwhile fences its batch off."""
    table = new_table(memory_store())
    transaction = table.begin()
    transaction.stage_adds(transaction.writer.write(pa.table({"n": [1]}, schema=NUMBERS)))
    transaction.note(read_applications={"owner"})
    other = Table.open(table.path).begin()
    other.stage_adds([], transactions=[SetTransaction(app_id="owner", version=1, last_updated=1)]).commit()
    with pytest.raises(ConcurrentTransactionException):
        transaction.commit()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i > 1.5", [20_000_001, 2**60]),
        ("i >= 100.0", [20_000_001, 2**60]),
        ("i IN (1.5, 1)", [1]),
        ("i + 0.5 > 2", [20_000_001, 2**60]),
        ("small + 100 > 150", [20_000_001]),
        ("small * 2 = 200", [20_000_001]),
        ("at > DATE '2020-01-01'", [20_000_001]),
    ],
)
def test_numbers_of_every_size_compare_with_fractions(where: str, expected: list[int]) -> None:
    schema = pa.schema([("i", pa.int64()), ("small", pa.int8()), ("at", pa.timestamp("us", tz="UTC"))])
    table = new_table(memory_store(), schema)
    data: Any = {"i": [1, 20_000_001, 2**60], "small": [1, 100, -100], "at": [0, 1_600_000_000_000_000, None]}
    table.insert(pa.table({name: pa.array(values, schema.field(name).type) for name, values in data.items()}))
    assert table.scan(where).to_arrow()["i"].to_pylist() == expected


def test_a_checkpoint_of_a_table_that_may_not_be_written_is_refused() -> None:
    store = memory_store()
    features = ("domainMetadata", "rowTracking")
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    mark = DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":3}', removed=False)
    put_commit(store, 0, metadata(), protocol, mark)
    put_commit(store, 1, add("a"))
    with pytest.raises(UnsupportedFeatureError):
        Table(store, load(store)).checkpoint()
    assert not [status for status in store.list(filenames.LOG_FOLDER) if "checkpoint" in status.name]


def test_a_table_that_waited_through_a_clean_up_reads_the_log_anew() -> None:
    table = new_table(memory_store())
    for number in range(4):
        table.insert(numbers([number]))
    waiting = Table.open(table.path)
    table.checkpoint()
    for version in range(4):
        table.store.delete(filenames.commit_path(version))
    assert read_numbers(waiting) == [0, 1, 2, 3]
