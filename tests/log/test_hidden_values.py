"""What is in memory below a null is no value: on no way into a table, and on none out of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.lanes import full
from tests.log.hidden_values import random_column, random_type, random_value
from tests.log.support import memory_store, new_table, reopen
from tests.randomness import seed
from tidelog.compaction_daemon import compact
from tidelog.log import Table

ROWS = 7
COUNTS = [6, pytest.param(250, marks=pytest.mark.nightly)]
NO_VECTORS = {"delta.enableDeletionVectors": "false"}


def rows_of(table: Any) -> list[Any]:
    return [row["v"] for row in table.scan().to_arrow().sort_by("id").select(["v"]).to_pylist()]


def data(column: pa.ChunkedArray, name: str = "v", first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + len(column)), name: column})


@pytest.mark.parametrize("count", COUNTS)
def test_no_way_into_a_table_takes_what_is_below_a_null(count: int) -> None:
    start = seed()
    for number in range(count):
        draw = random.Random(f"{start} {number}")
        kind = random_type(draw)
        values = [random_value(draw, kind) for _ in range(ROWS)]

        def column(draw: random.Random = draw, values: list[Any] = values, kind: pa.DataType = kind) -> pa.ChunkedArray:
            return random_column(draw, values, kind)

        schema = pa.schema([("id", pa.int64()), ("v", kind)])
        feed = {"delta.enableChangeDataFeed": "true"}
        inserted = new_table(memory_store(), schema, properties=feed)
        inserted.insert(data(column()))
        assert rows_of(inserted) == values, (number, kind)

        given = data(column())
        inserted.upsert(given, keys=["id"])
        inserted.upsert(data(column()), keys=["id"], columns="partial")
        inserted.overwrite(data(column()))
        inserted.upsert(data(column(), "w"), keys=["id"], when_matched=[(None, {"v": "source.w"})])
        assert rows_of(inserted) == values, (number, kind)
        changes = inserted.changes(after=1).to_arrow()
        assert len(changes) > ROWS
        assert all(row["v"] == values[row["id"]] for row in changes.select(["id", "v"]).to_pylist()), (number, kind)
        found = inserted.get([{"id": place} for place in range(ROWS)]).to_pylist()
        assert [row["v"] for row in found] == values, (number, kind)

        by_rule = new_table(memory_store(), schema)
        source = data(column(), "w")
        nested = pa.StructArray.from_arrays([source["w"].combine_chunks()], ["l"], mask=pa.array([True] + [False] * 6))
        rule = (None, {"id": "source.id", "v": "source.s.l"})
        by_rule.upsert(data(pa.chunked_array([nested]), "s"), keys=["id"], when_not_matched=[rule])
        assert rows_of(by_rule) == [None, *values[1:]], (number, kind)

        evolved = new_table(memory_store(), pa.schema([("id", pa.int64())]))
        evolved.insert(pa.table({"id": [-1]}))
        evolved.add_columns([schema.field("v")])
        # A null of the struct is one of its fields, and leaves the list in memory.
        evolved.insert(pa.table({"id": range(ROWS), "v": data(pa.chunked_array([nested]), "s").flatten()["s.l"]}))
        compact(evolved, "major")
        assert rows_of(reopen(evolved)) == [None, None, *values[1:]], (number, kind)


@pytest.mark.parametrize("count", COUNTS)
def test_files_are_read_as_other_engines_read_them(count: int, tmp_path: Path) -> None:
    start = seed()
    for number in range(count):
        draw = random.Random(f"{start} {number}")
        kind, size = random_type(draw, 1), draw.randint(1, 3)
        fixed = pa.list_(kind, size)
        values = [None if draw.random() < 0.4 else [random_value(draw, kind) for _ in range(size)] for _ in range(ROWS)]
        folder = tmp_path / f"t{number}"
        folder.mkdir()
        for part in range(2):
            own = values[part::2]
            column = pa.array(own, fixed)
            pq.write_table(pa.table({"id": range(part, ROWS, 2), "v": column}), folder / f"{part}.parquet")
        table = Table.convert(str(folder), properties=NO_VECTORS)
        assert rows_of(table) == values, (number, fixed)
        other = DeltaTable(str(folder))
        theirs = pa.table(QueryBuilder().register("t", other).execute("select v from t order by id").read_all())
        assert theirs["v"].to_pylist() == values, (number, fixed)
        compact(table, "major")
        assert rows_of(Table.open(str(folder))) == values, (number, fixed)
        assert pl.read_delta(str(folder)).sort("id")["v"].len() == ROWS


HIDDEN = {
    "list": (pa.ListArray, [0, 2, 4, 5]),
    "large list": (pa.LargeListArray, [0, 2, 4, 5]),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_the_elements_of_a_null_list_do_not_join_the_row_before(name: str) -> None:
    made, offsets = HIDDEN[name]
    numbers = pa.array([1, 2, 98, 99, 5])
    lists = made.from_arrays(pa.array(offsets, pa.int32()), numbers, mask=pa.array([False, True, False]))
    table = new_table(memory_store(), pa.schema([("id", pa.int64()), ("v", pa.list_(pa.int8()))]))
    table.insert(data(pa.chunked_array([lists])))
    assert rows_of(table) == [[1, 2], None, [5]]


def test_elements_below_a_null_need_not_fit() -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, 2**40]), 1, mask=pa.array([False, True]))
    table = new_table(memory_store(), pa.schema([("id", pa.int64()), ("v", pa.list_(pa.int8()))]))
    table.insert(data(pa.chunked_array([lists])))
    assert rows_of(table) == [[1], None]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([{"name": "a"}, None, {"name": None}], pl.Struct({"name": pl.String})),
        *full(
            ([{"b": b"x"}, None, {"b": None}], pl.Struct({"b": pl.Binary})),
            ([{"c": "x"}, None, {"c": None}], pl.Struct({"c": pl.Categorical})),
            ([[{"name": "a"}, None], None, []], pl.List(pl.Struct({"name": pl.String}))),
            ([{"i": {"name": "a"}}, {"i": None}, None], pl.Struct({"i": pl.Struct({"name": pl.String})})),
            ([[1, 2], None, [3, 4]], pl.Array(pl.Int8, 2)),
        ),
    ],
    ids=str,
)
def test_nulls_of_polars_are_nulls(values: list[Any], kind: Any) -> None:
    frame = pl.DataFrame([pl.Series("id", [0, 1, 2]), pl.Series("v", values, dtype=kind)])
    table = new_table(memory_store(), pa.table(frame).schema)
    table.insert(frame)
    table.upsert(frame, keys=["id"])
    assert rows_of(table) == values


def test_a_rule_reads_nothing_below_a_null_struct() -> None:
    table = new_table(memory_store(), pa.schema([("id", pa.int64()), ("v", pa.list_(pa.int64()))]))
    rule = (None, {"id": "source.id", "v": "source.s.l"})
    table.upsert([{"id": 0, "s": {"l": [1]}}, {"id": 1, "s": None}], keys=["id"], when_not_matched=[rule])
    assert rows_of(table) == [[1], None]


def test_structs_without_fields_and_nulls_of_required_fields_are_written() -> None:
    required = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    table = new_table(memory_store(), pa.schema([("id", pa.int64()), ("v", pa.struct([("r", required)]))]))
    table.insert(data(pa.chunked_array([pa.array([{}, None], pa.struct([]))])))
    table.insert(data(pa.chunked_array([pa.nulls(1)]), first=2))
    table.insert([{"id": 3}, {"id": 4, "v": {}}, {"id": 5, "v": {"r": None}}, {"id": 6, "v": {"r": {"x": 1}}}])
    compact(table, "major")
    assert rows_of(reopen(table)) == [{"r": None}, None, None, None, {"r": None}, {"r": None}, {"r": {"x": 1}}]


def test_fields_below_a_null_struct_need_not_fit() -> None:
    fields = [pa.array([1, 2**40]), pa.array(["a", "b"], pa.string_view())]
    structs = pa.StructArray.from_arrays(fields, ["n", "t"], mask=pa.array([False, True]))
    kind = pa.struct([pa.field("n", pa.int8(), nullable=False), ("t", pa.string())])
    table = new_table(memory_store(), pa.schema([("id", pa.int64()), ("v", kind)]))
    table.insert(data(pa.chunked_array([structs])))
    assert rows_of(table) == [{"n": 1, "t": "a"}, None]
