"""OVERWRITE and TRUNCATE: whole tables and whole partitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import KINDS, SCHEMA, filled, keys, rows
from tests.log.support import (
    live_files,
    memory_store,
    new_table,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tidelog.log import OperationClass, Table
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def test_overwrite_where_dynamic_and_whole_table(table: Table) -> None:
    committed = table.overwrite(rows(range(90, 92), "b"), where="part = 'b' OR part IS NULL")
    assert keys(table) == [0, 1, 2, 3, 4, 5, 90, 91]
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    assert committed.metrics["numRemovedFiles"] == 2
    table.overwrite([*rows(range(70, 71), "new"), *rows(range(71, 72), "b")], dynamic=True)
    assert keys(table) == [0, 1, 2, 3, 4, 5, 70, 71]
    table.overwrite(rows(range(2), None), dynamic=True)
    table.overwrite(rows(range(3, 5), None), dynamic=True)
    assert keys(table) == [0, 1, 2, 3, 3, 4, 4, 5, 70, 71]
    table.overwrite(rows(range(1)))
    assert keys(table) == [0]
    assert table.overwrite([]).version == table.version
    assert keys(table) == []
    version = table.version
    assert table.overwrite([]).version == version


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"where": "k = 1"}, PredicateError, "'k' is not a partition column"),
        ({"where": "part = 'a'", "dynamic": True}, ConfigurationError, "both where and dynamic"),
        ({"where": "part = 'b'"}, ConfigurationError, "2 of 2 rows are outside where"),
        ({"where": "part = 'a' AND"}, PredicateError, "cannot be parsed"),
    ],
)
def test_invalid_overwrites(arguments: dict[str, Any], kind: type[TidelogError], message: str, table: Table) -> None:
    before = table.version
    with pytest.raises(kind, match=message):
        table.overwrite(rows(range(2)), **arguments)
    assert table.refresh().version == before


def test_dynamic_needs_a_partitioned_table() -> None:
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(ConfigurationError, match="the table is not partitioned"):
        table.overwrite(rows(range(2)), dynamic=True)


def test_truncate_partitions_and_the_whole_table(table: Table) -> None:
    assert table.truncate(where="part IN ('a', 'nowhere')").metrics["numDeletedRows"] == 6
    assert keys(table) == [6, 7, 8, 9, 10, 11, 12]
    version = table.version
    assert table.truncate(where="part = 'a'").version == version
    table.truncate()
    assert (keys(table), table.at().num_files) == ([], 0)


def test_overwrite_of_many_partitions() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.int64()), ("k", pa.int64())]), partition_by=["p"])
    data = pa.table({"p": pa.array(range(300)), "k": pa.array(range(300))})
    table.insert(data)
    before = table.version
    table.overwrite(data.slice(100), dynamic=True)
    assert (table.version, table.at().num_files) == (before + 1, 300)


# --- partition values ------------------------------------------------------------------------------------------------


def test_partition_values_are_compared_as_values_not_text() -> None:
    schema = pa.schema(
        [("day", pa.date32()), ("number", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("k", pa.int64())]
    )
    table = new_table(memory_store(), schema, partition_by=["day", "number", "at"])
    at = table.history(1)[0].timestamp
    data = [{"day": at.date() + timedelta(n), "number": n, "at": at + timedelta(n), "k": n} for n in range(20)]
    table.insert(data)
    table.overwrite([{**data[3], "k": 333}], dynamic=True)
    table.truncate(where="number >= 9 AND number < 12")
    assert keys(table) == sorted({*range(20), 333} - {3, 9, 10, 11})


def test_an_empty_string_is_in_the_null_partition() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by=["p"])
    for n in range(3):
        table.overwrite([{"p": "", "n": n}], dynamic=True)
    assert table.scan().to_arrow().to_pylist() == [{"p": None, "n": 2}]
    with pytest.raises(ConfigurationError, match="1 of 1 rows are outside"):
        table.overwrite([{"p": "", "n": 9}], where="p = ''")
    strict = new_table(
        memory_store(), pa.schema([pa.field("p", pa.string(), nullable=False), ("n", pa.int64())]), partition_by=["p"]
    )
    for write in (strict.insert, strict.overwrite):
        with pytest.raises(SchemaMismatchError, match="an empty string in it counts as null"):
            write([{"p": "", "n": 1}])


def test_minus_zero_is_in_the_partition_of_zero() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.float64()), ("n", pa.int64())]), partition_by=["p"])
    table.overwrite([{"p": 0.0, "n": 1}], dynamic=True)
    table.overwrite([{"p": -0.0, "n": 2}], dynamic=True)
    assert read_numbers(table) == [2]


def test_a_file_with_an_unreadable_partition_value_is_an_error() -> None:
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    table.insert([{"p": 1, "n": 1}])
    (file,) = live_files(table)
    odd = [msgspec.structs.replace(file, path="a/odd", partition_values=values) for values in ({}, {"p": "x"})]
    for add in odd:
        table = reopen(table)
        put_foreign(table, add)
        for where in ("p = 1", "p IS NULL"):
            with pytest.raises(CorruptLogError, match="has no readable value"):
                table.truncate(where=where)
        with pytest.raises(CorruptLogError, match="has no readable value"):
            table.overwrite([{"p": 1, "n": 2}], dynamic=True)
        put_foreign(table, remove(add))
    assert table.refresh().truncate(where="p = 1").metrics["numRemovedFiles"] == 1
