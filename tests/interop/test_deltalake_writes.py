"""tidelog reads what the library deltalake writes, in tables made by either."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.interop.deltalake_rows import FULL, PARTITION_VALUES, PLAIN, UTC, check_same, full_rows
from tests.log.support import live_files, read_numbers, stage_compaction
from tidelog.log import OperationClass, Table
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.format import filenames
from tidelog.log.format.schema import TIMESTAMP

pytestmark = pytest.mark.interop

# --- our tables ------------------------------------------------------------------------------------------------------

EVENTS = pa.schema([("n", pa.int64()), ("p", pa.string()), ("t", TIMESTAMP)])


def events(*numbers_: int) -> pa.Table:
    moment = dt.datetime(2020, 1, 1, tzinfo=UTC)
    rows = [{"n": number, "p": ["a/b", None][number % 2], "t": moment} for number in numbers_]
    return pa.Table.from_pylist(rows, EVENTS)


def test_deltalake_and_tidelog_append_in_turn(path: str) -> None:
    table = Table.create(path, EVENTS, partition_by=["p"], properties=PLAIN)
    table.insert(events(1, 2))
    write_deltalake(path, events(3, 4), mode="append")
    assert read_numbers(table.refresh()) == [1, 2, 3, 4]
    table.insert(events(5))
    write_deltalake(path, events(6), mode="append")
    check_same(table.refresh(), events(1, 2, 3, 4, 5, 6).to_pylist())
    assert table.version == 4
    assert [record.operation_class for record in table.history(4)] == [OperationClass.INSERT] * 4
    assert sorted(table.changes(mode="append", after=1).to_arrow()["n"].to_pylist()) == [3, 4, 5, 6]
    assert table.at().num_rows == 6


def test_our_insert_is_rebased_over_an_append_by_deltalake(path: str) -> None:
    table = Table.create(path, EVENTS, properties=PLAIN)
    transaction = table.begin().insert(events(1))
    write_deltalake(path, events(2), mode="append")
    outcome = transaction.commit()
    assert getattr(outcome, "rebased_over", None) == (1,)
    check_same(table, events(1, 2).to_pylist())


def test_transaction_ids_are_shared(path: str) -> None:
    table = Table.create(path, EVENTS, properties=PLAIN)
    properties = CommitProperties(app_transactions=[Transaction("theirs", 7)])
    write_deltalake(path, events(1), mode="append", commit_properties=properties)
    table.refresh().insert(events(2), idempotency_key=("ours", 3))
    assert table.transactions == {"theirs": 7, "ours": 3}
    assert DeltaTable(path).transaction_version("ours") == 3
    assert table.insert(events(3), idempotency_key=("theirs", 7)).metrics["numOutputRows"] == 0


def test_a_delete_by_deltalake_is_not_an_append(path: str) -> None:
    table = Table.create(path, EVENTS, properties=PLAIN)
    table.insert(events(1, 2, 3))
    DeltaTable(path).delete("n = 2")
    assert read_numbers(table.refresh()) == [1, 3]
    # deltalake rewrote every file of the table, just as an overwrite does.
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    with pytest.raises(NotAppendOnlyError):
        table.changes(mode="append", after=1)
    assert read_numbers(table.at(version=1)) == [1, 2, 3]


def test_a_compaction_by_deltalake_changes_no_row(path: str) -> None:
    table = Table.create(path, EVENTS, partition_by=["p"], properties=PLAIN)
    for number in range(4):
        table.insert(events(number))
    newest = table.time_version
    DeltaTable(path).optimize.compact()
    table.refresh()
    assert read_numbers(table) == [0, 1, 2, 3]
    assert table.version == 5
    assert table.at().num_files == 2
    assert table.time_version == newest
    assert table.history(1)[0].operation_class == OperationClass.MAJOR
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("properties", [{}, PLAIN], ids=["new", "plain"])
def test_a_checkpoint_by_deltalake_is_read(path: str, properties: dict[str, object]) -> None:
    table = Table.create(path, EVENTS, partition_by=["p"], properties=properties)
    table.insert(events(1, 2), idempotency_key=("app", 4))
    table.insert(events(3))
    stage_compaction(table, [file for file in live_files(table) if file.partition_values["p"] is None]).commit()
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        table.store.delete(filenames.commit_path(version))
    for version in range(4):
        table.store.delete(filenames.checksum_path(version))
    again = Table.open(path)
    check_same(again, events(1, 2, 3).to_pylist())
    assert again.transactions == {"app": 4}
    again.insert(events(4))
    check_same(Table.open(path), events(1, 2, 3, 4).to_pylist())


# --- tables made by deltalake ----------------------------------------------------------------------------------------


def test_a_table_made_by_deltalake_is_read_written_and_compacted(path: str) -> None:
    write_deltalake(path, events(1, 2), partition_by=["p"])
    write_deltalake(path, events(3, 4), mode="append")
    before = DeltaTable(path).protocol()
    table = Table.open(path)
    assert table.partition_by == ("p",)
    assert read_numbers(table) == [1, 2, 3, 4]
    table.insert(events(5))
    by_value: dict[str | None, list[Any]] = {}
    for file in live_files(table):
        by_value.setdefault(file.partition_values["p"], []).append(file)
    stage_compaction(table, *by_value.values()).commit()
    check_same(table, events(1, 2, 3, 4, 5).to_pylist())
    assert table.at().num_files == 2
    after = DeltaTable(path).protocol()
    assert (after.min_reader_version, after.min_writer_version) == (
        before.min_reader_version,
        before.min_writer_version,
    )


# deltalake fails on more extreme values: a folder name gets too long, and it writes -1.50 as `-1.-50`.
THEIR_PARTITION_VALUES = {
    **PARTITION_VALUES,
    pa.float64(): [0.1, -1.5, 1e10],
    pa.decimal128(9, 2): [Decimal("1.50"), Decimal("9999999.99"), Decimal("0.01")],
}


@pytest.mark.parametrize("kind", list(THEIR_PARTITION_VALUES), ids=str)
def test_partition_values_written_by_deltalake(path: str, kind: pa.DataType) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    rows = [{"n": number, "p": value} for number, value in enumerate([*THEIR_PARTITION_VALUES[kind], None])]
    write_deltalake(path, pa.Table.from_pylist(rows, schema), partition_by=["p"])
    check_same(Table.open(path), pa.Table.from_pylist(rows, schema).to_pylist())


def test_every_type_written_by_deltalake(path: str) -> None:
    data = pa.Table.from_pylist(full_rows(), FULL)
    write_deltalake(path, data)
    table = Table.open(path)
    check_same(table, data.to_pylist())
    table.insert(data)
    check_same(table, data.to_pylist() * 2)
