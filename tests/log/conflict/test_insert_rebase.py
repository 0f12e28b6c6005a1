"""INSERT: the kinds of winners that it is rebased over."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.conflict.winners import head_metadata, head_protocol, rebase, with_properties, with_schema
from tests.log.support import (
    NUMBERS,
    add,
    live_files,
    memory_store,
    new_table,
    numbers,
    put_foreign,
    put_vector,
    remove,
    reopen,
)
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.conflict.outcome import Rebased
from tidelog.log.conflict.staged import Staged
from tidelog.log.format.actions import AddCDCFile, SetTransaction
from tidelog.log.state.loader import load


@pytest.fixture
def table() -> Table:
    table = new_table(memory_store(), NUMBERS)
    table.insert(numbers([0]))
    return table


def winners(table: Table) -> dict[str, list[Any]]:
    (file,) = live_files(table)
    vector = put_vector(table.store, [0], f"{uuid.uuid4()}.bin")
    return {
        "an insert": [add("foreign.parquet", stats='{"numRecords":0}')],
        "a delete": [remove(file)],
        "a deletion vector": [remove(file), msgspec.structs.replace(file, deletion_vector=vector)],
        "an overwrite": [remove(file), add("foreign.parquet")],
        "a compaction": [remove(file, data_change=False), msgspec.structs.replace(file, path="o", data_change=False)],
        "another stream": [SetTransaction(app_id="other", version=9)],
        "nothing": [],
        "change files": [AddCDCFile(path="c", partition_values={}, size=1)],
        "the same metadata again": [msgspec.structs.replace(head_metadata(table), created_time=1)],
        "the same protocol again": [head_protocol(table)],
        "a new nullable column": [with_schema(table, pa.schema([*NUMBERS, ("s", pa.string())]))],
        "a harmless property": [with_properties(table, delta__checkpointInterval="7")],
        "a property of the user": [with_properties(table, owner="me")],
    }


WINNERS = [
    "an insert",
    "a delete",
    "a deletion vector",
    "an overwrite",
    "a compaction",
    "another stream",
    "nothing",
    "change files",
    "the same metadata again",
    "the same protocol again",
    "a new nullable column",
    "a harmless property",
    "a property of the user",
]


@pytest.mark.parametrize("winner", WINNERS)
def test_an_insert_is_rebased_over(table: Table, winner: str) -> None:
    assert list(winners(table)) == WINNERS
    transaction = table.begin().insert(numbers([1]), idempotency_key=("mine", 1))
    version = put_foreign(table, *winners(table)[winner])
    result = transaction.commit()
    assert isinstance(result, Committed)
    assert (result.version, result.rebased_over, result.retried) == (version + 1, (version,), True)
    assert load(table.store).head.transactions["mine"].version == 1
    commit = reopen(table).history(1)[0]
    assert commit.operation_class == OperationClass.INSERT
    assert result.timestamp == commit.timestamp > reopen(table).history(2)[1].timestamp


def test_without_winners_the_transaction_stays_as_it_is(table: Table) -> None:
    staged = Staged("WRITE", OperationClass.INSERT, adds=(add("a"),))
    assert rebase(table, staged, []) == Rebased(staged)
