"""Transactions: staging, committing and aborting."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.support import NUMBERS, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.errors import ConcurrentTransactionException, ConfigurationError
from tidelog.log.format.actions import SetTransaction


def test_rows_are_visible_after_the_commit_and_not_before() -> None:
    table = new_table(memory_store())
    transaction = table.begin()
    assert transaction.insert(numbers([1])) is transaction
    assert transaction.base_version == 0
    assert read_numbers(reopen(table)) == []
    transaction.commit()
    assert read_numbers(reopen(table)) == [1]
    assert table.version == 1


def test_an_aborted_transaction_commits_nothing() -> None:
    table = new_table(memory_store())
    transaction = table.begin().insert(numbers([1]))
    transaction.abort()
    with pytest.raises(ConfigurationError):
        transaction.commit()
    assert reopen(table).version == 0


def test_a_transaction_has_one_operation_and_one_commit() -> None:
    table = new_table(memory_store())
    transaction = table.begin()
    with pytest.raises(ConfigurationError):
        transaction.commit()
    transaction.insert(numbers([1]))
    with pytest.raises(ConfigurationError):
        transaction.insert(numbers([2]))
    transaction.commit()
    for use in (transaction.commit, lambda: transaction.insert(numbers([3]))):
        with pytest.raises(ConfigurationError):
            use()
    assert read_numbers(table) == [1]


def test_progress_that_was_only_read_is_a_conflict_too() -> None:
    """A sink reads which query owns its name. If another query takes the name over, the batch must fail."""
    table = new_table(memory_store())
    transaction = table.begin()
    transaction.stage_adds(transaction.writer.write(pa.table({"n": [1]}, schema=NUMBERS)))
    transaction.note(read_applications={"owner"})
    other = Table.open(table.path).begin()
    other.stage_adds([], transactions=[SetTransaction(app_id="owner", version=1, last_updated=1)]).commit()
    with pytest.raises(ConcurrentTransactionException):
        transaction.commit()
