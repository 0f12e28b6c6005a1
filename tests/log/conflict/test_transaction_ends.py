"""How a transaction ends, and which files it leaves."""

from __future__ import annotations

import pytest

from tests.log.conflict.tables import through
from tests.log.faults import Around, Deleting
from tests.log.support import memory_store, new_table, numbers, put_foreign, read_numbers, reopen
from tidelog.log import Committed, Table
from tidelog.log.commit import conflict_ledger
from tidelog.log.errors import CommitContentionError, ConfigurationError


@pytest.fixture
def table() -> Table:
    """Three files of four rows each."""
    made = new_table(memory_store())
    for first in (0, 4, 8):
        made.insert(numbers(range(first, first + 4)))
    return made


def data_files(table: Table) -> set[str]:
    return {path for path, _ in table.store.walk() if not path.startswith("_delta_log/")}


def test_vectors_of_a_lost_attempt_that_cannot_be_deleted_do_not_fail_the_transaction(table: Table) -> None:
    store = Deleting(table.store, suffix=".bin")
    transaction = through(store).begin().delete("n = 1")
    table.delete("n = 6")
    outcome = transaction.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over == (table.version,)
    assert read_numbers(reopen(table)) == [0, *range(2, 6), *range(7, 12)]


def test_contention_deletes_the_files_of_the_transaction(table: Table) -> None:
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


def test_a_transaction_that_ended_cannot_be_committed_or_aborted_again(table: Table) -> None:
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


def test_two_transactions_of_one_table_object_change_the_same_row(table: Table) -> None:
    one, other = table.begin().update("n = 2", {"n": "200"}), table.begin().update("n = 2", {"n": "300"})
    one.commit()
    named = data_files(table)
    outcome = other.commit()
    assert isinstance(outcome, Committed)
    assert outcome.version == table.version, (
        "the row was changed by the other transaction, so there is nothing to commit"
    )
    assert read_numbers(reopen(table)) == [0, 1, *range(3, 12), 200]
    assert data_files(table) < named
