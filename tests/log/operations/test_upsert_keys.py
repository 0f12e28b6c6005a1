"""The keys of an UPSERT: every type, the files that are searched, and the reads that are recorded."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt
import pytest

from tests.log.operations.changing_rows import FEED_ON, KINDS, SCHEMA, filled, keys, rows
from tests.log.support import memory_store, new_table, put_foreign
from tidelog.log import Table
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConfigurationError, MetadataChangedException
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.operations import upsert
from tidelog.log.predicate import And, Column, Comparison, Expression, In, Literal
from tidelog.log.read.keys import Keys


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def row(key: int, part: str | None, v: int) -> dict[str, Any]:
    return {"k": key, "part": part, "v": v, "price": None}


UTC = dt.UTC


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "\U0001f600", "b" * 50]),
    "binary": (pa.binary(), [b"a", b"\x01", b"b" * 50]),
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127, 0]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "float": (pa.float32(), [0.1, -math.inf, 0.0, math.nan]),
    "double": (pa.float64(), [1e-300, math.inf, -0.0, math.nan]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 2, 3)]),
    "decimal": (pa.decimal128(38, 18), [Decimal("1.5"), Decimal("-12345678901234567890.123456789012345678")]),
    "narrow decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-9999999.99")]),
    "timestamp": (TIMESTAMP, [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    "local time": (TIMESTAMP_NTZ, [dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1969, 1, 1)]),  # noqa: DTZ001
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("name", list(VALUES))
def test_keys_of_every_type(name: str, partitioned: bool) -> None:
    kind, values = VALUES[name]
    schema = pa.schema([("key", kind), ("s", pa.struct([("x", pa.int64())])), ("n", pa.int64())])
    table = new_table(memory_store(), schema, partition_by=["key"] if partitioned else [], properties=FEED_ON)

    def data(chosen: list[Any], n: int) -> pa.Table:
        count = len(chosen)
        return pa.table([pa.array(chosen, kind), pa.array([{"x": n}] * count), pa.array([n] * count)], schema=schema)

    table.insert(data([*values, None], 1))
    table.upsert(data(values[:-1], 2), keys=["key"])
    zeros = [-value if pt.is_floating(kind) and value == 0 else value for value in values]
    table.upsert(data(zeros, 3), keys=["key"])
    found = Counter((row["n"], row["s"]["x"]) for row in table.scan().to_arrow().to_pylist())
    assert found == Counter([(3, 3)] * len(values) + [(1, 1)])
    assert {row["key"] for row in table.scan("n = 1").to_arrow().to_pylist()} == {None}
    deletes = table.upsert(data(values, 0), keys=["key"], delete_where="n = 0")
    assert (deletes.metrics["numTargetRowsDeleted"], table.scan().count()) == (len(values), 1)


# --- keys that are not the primary key -------------------------------------------------------------------------------


def sales(**properties: object) -> Table:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("amount", pa.int64())])
    table = new_table(memory_store(), schema, properties=properties)
    table.insert([{"id": number, "day": "a", "amount": 5} for number in range(3)])
    return table


def refused_keys(table: Table, given: list[str], **arguments: Any) -> ConfigurationError:
    """The error of the statement, and of a transaction. Nothing is written."""
    before, data = dict(table.store.walk()), [{"id": 7, "day": "b", "amount": 5}]
    with pytest.raises(ConfigurationError) as statement:
        table.upsert(data, keys=given, **arguments)
    with pytest.raises(ConfigurationError) as staged:
        table.begin().upsert(data, keys=given, **arguments)
    assert str(staged.value) == str(statement.value)
    assert dict(table.store.walk()) == before
    return statement.value


@pytest.mark.parametrize("given", [["amount"], ["id"], ["id", "day", "amount"], ["day", "amount"]])
def test_keys_that_are_not_the_primary_key_are_refused(given: list[str]) -> None:
    """With them an upsert would replace rows that have nothing in common but an amount."""
    error = refused_keys(sales(**{"tidelog.primaryKey": "id, day"}), given)
    assert f"keys={given!r} are not the table's primary key, ['id', 'day'] (tidelog.primaryKey)" in error.message
    assert "other_keys=True" in error.advice


def test_other_keys_are_used_if_they_are_asked_for_by_name() -> None:
    table = sales(**{"tidelog.primaryKey": "id"})
    committed = table.upsert([{"id": 7, "day": "b", "amount": 5}], keys=["amount"], other_keys=True)
    assert committed.metrics["numTargetRowsDeleted"] == 2
    assert table.scan().to_arrow().to_pylist() == [{"id": 7, "day": "b", "amount": 5}]


@pytest.mark.parametrize("given", [(), ["id", "day"], ["day", "id"], ["id", "day", "id"]])
@pytest.mark.parametrize("declared", ["id, day", "day,id", "ID, Day"])
def test_the_primary_key_in_any_order_needs_no_word(given: list[str], declared: str) -> None:
    if declared == "ID, Day" and not given:
        return  # names of columns that the table lacks
    table = sales(**{"tidelog.primaryKey": declared})
    table.upsert([{"id": 1, "day": "a", "amount": 6}], keys=given)
    assert sorted(table.scan().to_arrow()["amount"].to_pylist()) == [5, 5, 6]


def test_without_a_primary_key_any_keys_will_do() -> None:
    for declared in ({}, {"mine": "id"}):
        table = sales(**declared)
        table.upsert([{"id": 1, "day": "a", "amount": 6}], keys=["id"])
        assert table.scan().count() == 3
    put_foreign(table, msgspec.structs.replace(table.head.metadata, configuration={"tidelog.primaryKey": "id,,"}))
    table.refresh().upsert([{"id": 1, "day": "a", "amount": 7}], keys=["id"])


def test_other_keys_without_keys_are_a_mistake() -> None:
    error = refused_keys(sales(**{"tidelog.primaryKey": "id"}), [], other_keys=True)
    assert "without keys" in error.message


def test_an_upsert_loses_to_the_declaration_of_another_primary_key() -> None:
    """It was staged before, and the statement runs again: it says what the keys are now."""
    table = sales()
    staged = table.begin().upsert([{"id": 7, "day": "b", "amount": 5}], keys=["amount"])
    Table.open(table.path).set_properties({"tidelog.primaryKey": "id"})
    with pytest.raises(MetadataChangedException):
        staged.commit()
    refused_keys(table, ["amount"])


def test_net_changes_can_have_any_keys() -> None:
    """They are only read. A key with several rows is an error there."""
    table = sales(**{"tidelog.primaryKey": "id"})
    table.delete("id > 0")
    assert table.changes(mode="net", keys=["amount", "id"]).to_arrow().num_rows == 1


def test_the_predicate_of_keys() -> None:
    few, many = pa.table({"k": [3, 1]}), pa.table({"k": range(100), "f": [0.5] * 99 + [math.nan]})
    both = Keys(many, ["k", "f"], "").predicate()
    assert Keys(few, ["k"], "").predicate() == In(Column(("k",)), (3, 1))
    assert both == And(Comparison(">=", Column(("k",)), Literal(0)), Comparison("<=", Column(("k",)), Literal(99)))
    binary = pa.table({"b": [b"x"]})
    assert Keys(binary, ["b"], "").predicate() == Literal(True)
    far = pa.table({"t": pa.array([2**62], pa.timestamp("us"))})
    assert Keys(far, ["t"], "").predicate() == Literal(True)


def test_files_that_cannot_have_a_key_are_not_opened(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = type(table.store).open_input

    def open_input(self: Any, path: str) -> Any:
        opened.append(path)
        return real(self, path)

    monkeypatch.setattr(type(table.store), "open_input", open_input)
    table.upsert([row(7, "b", 0)], keys=["k"])
    assert len(set(opened)) == 1
    opened.clear()
    table.upsert([row(key, "c", 0) for key in range(100, 300)], keys=["k"])
    assert opened == []


@pytest.mark.parametrize("joined", [1, 8])
def test_files_are_searched_a_few_at_a_time(joined: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "_JOINED_ROWS", joined)
    table = new_table(memory_store(), SCHEMA)
    for start in range(0, 30, 3):
        table.insert(rows(range(start, start + 3)))
    table.upsert([row(key, "a", -1) for key in (0, 4, 29, 13)], keys=["k"])
    assert keys(table) == list(range(30))
    assert sorted(table.scan("v = -1").to_arrow()["k"].to_pylist()) == [0, 4, 13, 29]


def test_the_reads_of_a_staged_upsert() -> None:
    table = filled("vectors")
    transaction = table.begin().upsert([row(3, "a", 1), row(50, "b", 2)], keys=["part", "k"])
    staged = transaction._staged
    assert isinstance(staged, Staged)
    assert staged.reads is not None
    assert staged.reads.keys is not None
    assert staged.reads.keys.to_pylist() == [{"part": "a", "k": 3}, {"part": "b", "k": 50}]
    assert staged.reads.keys.schema.types == [pa.string(), pa.int64()]
    expected: Expression = And(In(Column(("part",)), ("a", "b")), In(Column(("k",)), (3, 50)))
    assert staged.reads.predicate == expected


@pytest.mark.parametrize(
    ("wrong", "message"), [("idd", "there is no key column 'idd'; did you mean 'id'"), ("s", "'s' is nested")]
)
def test_a_primary_key_that_cannot_be_one_is_refused(wrong: str, message: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    with pytest.raises(ConfigurationError, match=message):
        new_table(memory_store(), schema, properties={"tidelog.primaryKey": wrong})
    table = new_table(memory_store(), schema)
    with pytest.raises(ConfigurationError, match=message):
        table.set_properties({"tidelog.primaryKey": wrong})


def test_where_the_primary_key_names_no_column_the_advice_is_to_correct_it() -> None:
    table = new_table(memory_store(), pa.schema([("id", pa.int64())]))
    wrong = {**table.head.metadata.configuration, "tidelog.primaryKey": "idd"}
    put_foreign(table, msgspec.structs.replace(table.head.metadata, configuration=wrong))
    table.refresh()
    with pytest.raises(ConfigurationError, match=r"correct tidelog\.primaryKey with set_properties"):
        table.upsert([{"id": 1}], keys=["id"])
