"""Attacks on the rebase that found something once, and the ways in which a transaction may end."""

from __future__ import annotations

import pytest

from tests.log.faults import Around, Deleting
from tests.log.support import Clock, bitmap, memory_store, new_table, numbers, put_foreign, read_numbers, reopen
from tidelog.compaction_daemon import compact, stage
from tidelog.log import Committed, Superseded, Table
from tidelog.log.commit import conflict_ledger
from tidelog.log.errors import (
    CommitContentionError,
    ConcurrentDeleteDeleteException,
    ConfigurationError,
    StoreUnavailableError,
)
from tidelog.log.format import deletion_vector
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.state.loader import load
from tidelog.log.storage import Store


@pytest.fixture
def table() -> Table:
    """Three files of four rows."""
    made = new_table(memory_store())
    for first in (0, 4, 8):
        made.insert(numbers(range(first, first + 4)))
    return made


def through(store: Store) -> Table:
    return Table(store, load(store), Clock())


def data_files(table: Table) -> set[str]:
    return {path for path, _ in table.store.walk() if not path.startswith("_delta_log/")}


def test_an_inline_vector_whose_text_ends_like_an_offset_is_found_by_its_id() -> None:
    """Its alphabet holds the @ and digits; a lineage knows a vector by its id alone."""
    blob = bitmap([322, 599, 70046])
    text = deletion_vector._z85_encode(blob + bytes(-len(blob) % 4))
    assert text.endswith("@5")
    vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv=text, size_in_bytes=len(blob), cardinality=3)
    found = deletion_vector.of_id(vector.unique_id)
    assert isinstance(found, bytes)
    assert list(deletion_vector.decode_bitmap(found)) == [322, 599, 70046]


def test_vectors_of_a_lost_attempt_that_cannot_be_deleted_do_not_end_the_transaction(table: Table) -> None:
    store = Deleting(table.store, suffix=".bin")
    transaction = through(store).begin().delete("n = 1")
    table.delete("n = 6")
    outcome = transaction.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (table.version,)
    assert read_numbers(reopen(table)) == [0, *range(2, 6), *range(7, 12)]


def test_a_row_map_that_is_missing_is_a_conflict_after_which_a_statement_succeeds(table: Table) -> None:
    transaction = reopen(table).begin().update("n IN (1, 6)", {"n": "n + 100"})
    compacting = stage(reopen(table), "minor")
    compact(table, "major", cluster_by=["n"])
    for path in data_files(table):
        if path.startswith("_tidelog/rowmaps/"):
            table.store.delete(path)
    with pytest.raises(ConcurrentDeleteDeleteException, match="without lineage to follow"):
        transaction.commit()
    assert isinstance(compacting.commit(), Superseded)
    assert reopen(table).version == table.refresh().version
    assert read_numbers(table) == list(range(12))
    table.update("n IN (1, 6)", {"n": "n + 100"})
    assert read_numbers(table)[-2:] == [101, 106]


class Racing(Around):
    """Before each of the first `races` puts of a commit another writer commits; the answer to the next one is lost."""

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
def test_an_answer_that_is_lost_in_a_rebase_is_found_and_no_file_that_it_names_is_deleted(
    table: Table, races: int
) -> None:
    outcome = through(Racing(table.store, races)).begin().update("n IN (1, 6)", {"n": "n + 100"}).commit()
    assert isinstance(outcome, Committed)
    gone = {1, 6, *range(9, 9 + races)}
    assert read_numbers(reopen(table)) == [*(n for n in range(12) if n not in gone), 101, 106]
    assert reopen(table).version == outcome.version


def test_contention_deletes_what_it_wrote(table: Table) -> None:
    class Never(Around):
        def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
            if path.endswith(".json"):
                put_foreign(table)
            super().put_if_absent(path, content, durable=durable)

    before = data_files(table)
    with pytest.raises(CommitContentionError):
        through(Never(table.store)).update("n = 1", {"n": "100"})
    (entry,) = conflict_ledger.read_ledger(table.store)
    assert entry.error == "CommitContentionError"
    assert {path for path in data_files(table) if not path.startswith(conflict_ledger.LEDGER_FOLDER)} == before


def test_an_end_is_an_end(table: Table) -> None:
    before = data_files(table)
    aborted = table.begin().update("n = 1", {"n": "100"})
    aborted.abort()
    aborted.abort()
    with pytest.raises(ConfigurationError, match="ended"):
        aborted.commit()
    assert data_files(table) == before
    committed = table.begin().update("n = 1", {"n": "100"})
    committed.commit()
    committed.abort()
    assert 100 in read_numbers(reopen(table))


def test_two_transactions_of_one_table_object(table: Table) -> None:
    one, other = table.begin().update("n = 2", {"n": "200"}), table.begin().update("n = 2", {"n": "300"})
    one.commit()
    named = data_files(table)
    outcome = other.commit()
    assert isinstance(outcome, Committed)
    assert outcome.version == table.version, "the row that it changed is another one now"
    assert read_numbers(reopen(table)) == [0, 1, *range(3, 12), 200]
    assert data_files(table) < named
