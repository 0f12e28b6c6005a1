"""Inserting rows, with and without an idempotency key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.support import NUMBERS, Clock, live_files, memory_store, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.state.commits import read_commit


def test_the_result_of_an_insert(path: str) -> None:
    table = Table.create(path, NUMBERS)
    committed = table.insert(numbers(range(10)))
    (file,) = live_files(table)
    assert committed.version == table.version == 1
    assert committed.timestamp == table.time_version == table.at().timestamp
    assert not committed.retried
    assert committed.rebased_over == ()
    assert committed.metrics == {"numFiles": 1, "numOutputRows": 10, "numOutputBytes": file.size}
    assert read_numbers(Table.open(path)) == list(range(10))


def test_the_commit_info_has_the_fields_that_other_engines_read() -> None:
    clock = Clock()
    table = new_table(memory_store(), system=clock)
    clock.ms += 5
    table.insert(numbers([1]), idempotency_key=("app", 3))
    commit = read_commit(table.store, 1)
    txn_id = commit.info["txnId"]
    assert commit.info == {
        "inCommitTimestamp": clock.ms,
        "timestamp": clock.ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "readVersion": 0,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
        "operationMetrics": {
            "numFiles": "1",
            "numOutputRows": "1",
            "numOutputBytes": str(commit.adds[0].size),
        },
        "engineInfo": commit.info["engineInfo"],
        "txnId": txn_id,
        "tidelog": {"class": "INSERT", "table": table.id},
    }
    assert commit.info["engineInfo"].startswith("tidelog/")
    assert next(iter(commit.info)) == "inCommitTimestamp"
    (transaction,) = commit.transactions
    assert (transaction.app_id, transaction.version, transaction.last_updated) == ("app", 3, clock.ms)


@pytest.mark.parametrize("data", [[], numbers([]), NUMBERS.empty_table().to_reader()])
def test_an_empty_insert_makes_no_commit(data: Any) -> None:
    table = new_table(memory_store())
    committed = table.insert(data)
    assert (committed.version, committed.metrics["numOutputRows"]) == (0, 0)
    assert reopen(table).version == 0


# --- idempotency -----------------------------------------------------------------------------------------------------


def test_repeated_and_older_keys_are_skipped() -> None:
    table = new_table(memory_store())
    assert table.insert(numbers([1]), idempotency_key=("app", 5)).version == 1
    for version in (5, 4, 0):
        repeated = table.insert(numbers([2]), idempotency_key=("app", version))
        assert (repeated.version, repeated.metrics["numOutputRows"]) == (1, 0)
    assert reopen(table).insert(numbers([3]), idempotency_key=("app", 5)).version == 1
    assert table.insert(numbers([4]), idempotency_key=("app", 6)).version == 2
    assert table.insert(numbers([5]), idempotency_key=("other", 1)).version == 3
    assert read_numbers(table) == [1, 4, 5]
    assert table.transactions == {"app": 6, "other": 1}


def test_keys_survive_a_checkpoint_and_a_clean_up() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]), idempotency_key=("app", 5))
    table.insert(numbers([2]))
    table.checkpoint()
    for version in range(2):
        table.store.delete(filenames.commit_path(version))
    for version in range(3):
        table.store.delete(filenames.checksum_path(version))
    opened = reopen(table)
    assert opened.transactions == {"app": 5}
    assert opened.insert(numbers([3]), idempotency_key=("app", 5)).metrics["numOutputRows"] == 0


def test_an_empty_insert_with_a_key_is_recorded() -> None:
    table = new_table(memory_store())
    assert table.insert([], idempotency_key=("app", 1)).version == 1
    assert table.insert(numbers([1]), idempotency_key=("app", 1)).version == 1
    assert read_numbers(table) == []
    (record, _) = table.history()
    assert (record.operation_class, record.data_change, record.time_version) == ("NONE", False, None)
