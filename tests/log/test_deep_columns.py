"""Columns nested inside each other: as deep as parquet can be read, and no deeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest

from tests.log.support import memory_store, memory_url, new_table, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.errors import SchemaMismatchError

Wrapper = Callable[[pa.DataType], pa.DataType]


def in_struct(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("a", kind)])


def in_map(kind: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), kind)


def in_key(kind: pa.DataType) -> pa.DataType:
    return pa.map_(kind, pa.string())


def in_both(kind: pa.DataType) -> pa.DataType:
    return in_struct(pa.list_(kind))


# How to nest a type, and how often at most.
DEEPEST = [(pa.list_, 49), (pa.large_list, 49), (in_struct, 98), (in_map, 49), (in_key, 49), (in_both, 32)]


def nested(wrap: Wrapper, times: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(times):
        kind = wrap(kind)
    return kind


def value_of(kind: pa.DataType) -> Any:
    if pt.is_struct(kind):
        return {"a": value_of(kind.field(0).type)}
    if pt.is_map(kind):
        return [(value_of(kind.key_type), value_of(kind.item_type))]
    if pt.is_integer(kind):
        return 1
    return "x" if pt.is_string(kind) else [value_of(kind.value_type)]


@pytest.mark.parametrize(("wrap", "deepest"), DEEPEST)
def test_the_deepest_column_can_be_read(wrap: Wrapper, deepest: int) -> None:
    kind = nested(wrap, deepest)
    table = new_table(memory_store(), pa.schema([("c", kind)]))
    rows = pa.table({"c": pa.array([value_of(kind)], kind)})
    table.insert(rows)
    table.checkpoint()
    assert reopen(table).scan().to_arrow().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(("wrap", "deepest"), DEEPEST)
@pytest.mark.parametrize("more", [1, 450])
def test_a_deeper_column_is_refused(wrap: Wrapper, deepest: int, more: int) -> None:
    column = pa.field("c", nested(wrap, deepest + more))
    with pytest.raises(SchemaMismatchError, match=r"'c' is nested too deeply.*98 structs") as caught:
        Table.create(memory_url(), pa.schema([column]))
    assert caught.value.fields == {"column": "c"}
    table = new_table(memory_store())
    table.insert(numbers([1]))
    with pytest.raises(SchemaMismatchError, match="'c' is nested too deeply"):
        table.add_columns([column])
    with pytest.raises(SchemaMismatchError, match="'c' is nested too deeply"):
        table.begin().evolve(pa.schema([column]))
    assert read_numbers(reopen(table)) == [1]


def test_a_new_field_deep_in_a_struct_is_refused() -> None:
    table = new_table(memory_store(), pa.schema([("c", nested(in_struct, 98))]))
    wider = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
    for _ in range(97):
        wider = in_struct(wider)
    with pytest.raises(SchemaMismatchError, match="'c' is nested too deeply"):
        table.begin().evolve(pa.schema([("c", wider)]))
