"""`get`: the rows of some keys."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.log.support import live_files, memory_store, new_table, put_foreign, remove, reopen
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError, TidelogError

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("price", pa.float64())])


@pytest.fixture
def table() -> Table:
    made = new_table(memory_store(), SCHEMA, partition_by=["part"])
    for start in (0, 100, 200):
        made.insert([{"id": n, "part": "ab"[n % 2], "price": n / 2} for n in range(start, start + 100)])
    return made


def ids(found: pa.Table) -> list[int]:
    return [row["id"] for row in found.to_pylist()]


def test_rows_come_in_the_order_of_their_keys(table: Table) -> None:
    found = table.get([{"id": 250}, {"id": 3}, {"id": 999}, {"id": 3}, {"id": 104}])
    assert found.schema == table.schema
    assert found.to_pylist() == [{"id": n, "part": "ab"[n % 2], "price": n / 2} for n in (250, 3, 104)]
    assert ids(table.get(pa.table({"id": pa.array([7, 207], pa.int32()), "PART": ["b", "a"]}))) == [7]
    assert table.get([{"price": 1.5}], ["id", "part"]).to_pylist() == [{"id": 3, "part": "b"}]
    assert table.get([{"id": 5}], []).num_rows == 1
    assert table.get([]).to_pylist() == table.get(pa.table({"id": pa.array([], pa.int64())})).to_pylist() == []


def test_all_rows_of_a_key_that_are_live(table: Table) -> None:
    version = table.version
    table.delete("id = 3 OR id > 205")
    table.insert([{"id": 4, "part": "b", "price": -1.0}, {"id": 4, "part": "c", "price": -2.0}])
    assert sorted(table.get([{"id": 4}])["price"].to_pylist()) == [-2.0, -1.0, 2.0]
    assert ids(table.get([{"id": 300}, {"id": 3}, {"id": 5}])) == [5]
    assert ids(table.at(version=version).get([{"id": 3}])) == [3]


def test_many_keys_of_many_files_are_those_of_a_scan() -> None:
    table = new_table(memory_store(), pa.schema([("k", pa.float64()), ("text", pa.string()), ("n", pa.int64())]))
    randomness = np.random.default_rng(5)
    for _ in range(12):
        numbers = randomness.integers(0, 60, 200)
        table.insert([{"k": n / 4 if n else float("nan"), "text": f"t{n % 3}", "n": int(n)} for n in numbers])
        table.delete(f"n = {randomness.integers(0, 60)}")
    rows = table.scan().to_arrow().to_pylist()
    asked = [n for n in range(70) if n % 3]
    keys = [{"k": n / 4 if n else float("nan"), "text": f"t{n % 3}"} for n in asked]
    assert sorted(table.get(keys, ["n"])["n"].to_pylist()) == sorted(row["n"] for row in rows if row["n"] in asked)
    zeros = table.get([{"k": float("nan")}], ["n"])["n"].to_pylist()
    assert len(zeros) == sum(row["n"] == 0 for row in rows) > 0


def test_only_files_that_can_have_a_key_are_read(table: Table) -> None:
    broken = [file for file in live_files(table) if '"minValues":{"id":2' in str(file.stats)]
    assert len(broken) == 2
    gone = [msgspec.structs.replace(file, path=f"data/gone-{number}.parquet") for number, file in enumerate(broken)]
    put_foreign(table, *map(remove, broken), *gone)
    table = reopen(table)
    assert ids(table.get([{"id": 150}])) == [150]
    with pytest.raises(TidelogError, match="data/gone"):
        table.get([{"id": 250}])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda table: table.get({"id": 1}), ConfigurationError, r"not a dict; pass \[\{\.\.\.\}\]"),
        (lambda table: table.get([1]), SchemaMismatchError, "row 0 must be a dict, not int"),
        (lambda table: table.get(1), SchemaMismatchError, "data cannot be of type int"),
        (lambda table: table.get([{}]), ConfigurationError, "the keys have no columns"),
        (lambda table: table.get([{"name": 1}]), SchemaMismatchError, "'name' that the table does not have"),
        (lambda table: table.get([{"id": "x"}]), SchemaMismatchError, "'id' is int64"),
        (lambda table: table.get([{"id": Decimal("0.5")}]), SchemaMismatchError, "'id' is int64"),
        (lambda table: table.get([{"id": None}]), SchemaMismatchError, "'id' is null in 1 rows"),
        (lambda table: table.get([{"id": 1}, {"part": "a"}]), SchemaMismatchError, "is null in 1 rows"),
        (lambda table: table.get([{"id": 1}], ["name"]), ConfigurationError, "there is no column 'name'"),
    ],
)
def test_wrong_keys_are_errors(
    table: Table, call: Callable[[Table], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(table)
