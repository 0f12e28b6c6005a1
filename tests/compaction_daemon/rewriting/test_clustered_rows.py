"""Clustering: rows in sorted order, and the row map that lists their old and new addresses."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction_daemon.support import (
    SCHEMA,
    delete_rows,
    live_files,
    memory_table,
    numbers_of,
    put,
    put_commit,
    put_vector,
)
from tests.log.support import Clock, memory_store, new_table
from tidelog.compaction_daemon import compact, plan, stage
from tidelog.compaction_daemon.rewriting import clustered_rows
from tidelog.compaction_daemon.rewriting.clustered_rows import RowHashes
from tidelog.compaction_daemon.rewriting.inputs import narrowest
from tidelog.log import Table
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data import row_maps, spill
from tidelog.log.data.reader import DataFile, read_numbered_batches
from tidelog.log.format.actions import AddFile


@pytest.fixture(
    params=["in memory", pytest.param("in parts", marks=pytest.mark.full), "in parts of parts"], autouse=True
)
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows are sorted at once."""
    if request.param != "in memory":
        monkeypatch.setattr(clustered_rows, "HELD_BYTES", 1)
        monkeypatch.setattr(clustered_rows, "PART_BYTES", 40 if request.param == "in parts" else 10_000)
        monkeypatch.setattr(clustered_rows, "PIECE_BYTES", 100)
        monkeypatch.setattr(spill, "BUFFER_BYTES", 300)


def clustered(table: Table, *columns: str, order: str = "sort") -> MoveGroup:
    """The one group of a staged clustering."""
    staged = stage(table, "major", cluster_by=columns, cluster_order=order)._staged
    assert staged is not None
    (group,) = staged.moves
    return group


def addressed(table: Table, add: AddFile) -> dict[int, Any]:
    """The live rows of a file by position, as text, so that two NaN are equal."""
    found: dict[int, Any] = {}
    for positions, batch in read_numbered_batches(table.store, DataFile.of(add), table.schema):
        found.update(zip(positions.tolist(), map(repr, batch.to_pylist()), strict=True))
    return found


def assert_maps_every_row(table: Table, group: MoveGroup) -> None:
    """Each live row of the inputs is where the row map says, and the map is sorted."""
    assert group.row_map is not None
    assert group.row_map.column_names == row_maps.row_map_schema().names
    adds = {add.path: add for add in live_files(table)}
    inputs = [addressed(table, adds[entry.path]) for entry in group.lineage.inputs]
    outputs = [addressed(table, add) for add in group.outputs]
    assert [entry.path for entry in group.lineage.outputs] == [add.path for add in group.outputs]
    assert [entry.rows for entry in group.lineage.outputs] == [len(rows) for rows in outputs]
    entries = [tuple(row.values()) for row in group.row_map.to_pylist()]
    assert entries == sorted(entries)
    assert {(i, p) for i, p, _, _ in entries} == {(i, p) for i, rows in enumerate(inputs) for p in rows}
    assert sorted((o, q) for _, _, o, q in entries) == [(o, q) for o, rows in enumerate(outputs) for q in rows]
    for number, position, output, output_position in entries:
        assert inputs[number][position] == outputs[output][output_position]


def test_rows_are_sorted_and_the_map_lists_their_new_addresses() -> None:
    # The clock stands still, so the files have the same time.
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], system=Clock())
    put(table, 5, 3, 9)
    put(table, 4, 3)
    delete_rows(table, [1], file=0)
    group = clustered(table, "n")
    assert group.row_map is not None
    # A later commit adds the first file again, with its deletion vector, but it is still the older file.
    assert [entry.rows for entry in group.lineage.inputs] == [3, 2]
    assert group.row_map.to_pylist() == [
        {"input": 0, "position": 0, "output": 0, "output_position": 2},
        {"input": 0, "position": 2, "output": 0, "output_position": 3},
        {"input": 1, "position": 0, "output": 0, "output_position": 1},
        {"input": 1, "position": 1, "output": 0, "output_position": 0},
    ]
    assert_maps_every_row(table, group)
    assert compact(table, "major", cluster_by=["n"]).did_anything
    assert numbers_of(table) == [3, 4, 5, 9]


@pytest.mark.parametrize("outputs", [1, 9])
def test_several_outputs_hold_ranges(outputs: int) -> None:
    table = memory_table(**{"tidelog.targetFileSize": "1 KiB" if outputs > 1 else "1 MiB"})
    chance = random.Random(3)
    for _ in range(10):
        put(table, *[chance.getrandbits(60) for _ in range(60)])
    for number in range(3):
        delete_rows(table, sorted(chance.sample(range(60), 5)), file=number)
    before = numbers_of(table)
    group = clustered(table, "n")
    assert len(group.outputs) == outputs
    assert_maps_every_row(table, group)
    report = compact(table, "major", cluster_by=["n"])
    assert report.files_added == outputs
    assert numbers_of(table) == sorted(before)


def test_a_second_run_has_nothing_to_do_until_rows_are_added() -> None:
    table = memory_table(**{"tidelog.targetFileSize": "8 KiB"})
    for number in (2, 1):
        put(table, *random.Random(number).choices(range(10**18), k=500))
    assert compact(table, "major", cluster_by=["n"]).did_anything
    assert {(add.tags or {})["tidelog.clusteredBy"] for add in live_files(table)} == {'["n"]'}
    assert plan(table, "major", cluster_by=["n"]).groups == ()
    assert plan(table, "major").groups == ()
    put(table, *range(100))
    assert compact(table, "major", cluster_by=["n"]).files_removed == 1
    assert plan(table, "major", cluster_by=["n"]).groups == ()


def test_a_small_clustered_file_is_packed_with_new_small_files() -> None:
    table = memory_table()
    put(table, 2)
    put(table, 1)
    compact(table, "major", cluster_by=["n"])
    put(table, 0)
    compact(table, "major", cluster_by=["n"])
    assert numbers_of(table) == [0, 1, 2]
    assert not compact(table, "major", cluster_by=["n"]).did_anything


KEYS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "whole": (pa.int32(), [3, None, -(2**31), 3, 0]),
    "real": (pa.float64(), [math.nan, None, math.inf, -math.inf, -0.0, 0.0, math.nan, 1.5]),
    "text": (pa.string(), ["b", None, "", "ü", "B", "b"]),
    "flag": (pa.bool_(), [True, None, False, True]),
    "raw": (pa.binary(), [b"\xff", None, b"", b"\x00"]),
    "day": (pa.date32(), [dt.date(2026, 1, 2), None, dt.date(1969, 1, 1)]),
    "at": (pa.timestamp("us", "UTC"), [5, None, -5, 5]),
    "price": (pa.decimal128(20, 2), [Decimal("1.10"), None, Decimal("-3.00"), Decimal("1.10")]),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_plain_type_sorts_with_nulls_last_and_keeps_equal_rows_in_order(name: str) -> None:
    kind, values = KEYS[name]
    table = Table.create(f"memory://{uuid.uuid4()}", pa.schema([("row", pa.int64()), ("key", kind)]))
    for start in range(0, len(values), 2):
        part = values[start : start + 2]
        table.insert(pa.table({"row": pa.array(range(start, start + len(part))), "key": pa.array(part, kind)}))
    group = clustered(table.refresh(), "key")
    assert_maps_every_row(table, group)
    compact(table, "major", cluster_by=["key"])
    found = table.refresh().scan().to_arrow()
    assert found["row"].to_pylist() == sorted(range(len(values)), key=lambda row: (_rank(values[row]), row))
    assert found["key"].null_count == 1
    assert found["key"][-1].as_py() is None


def _rank(value: Any) -> tuple[int, Any]:
    """Nulls after NaN, NaN after every other value."""
    if value is None:
        return 2, 0
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def test_several_columns_sort_one_after_the_other() -> None:
    schema = pa.schema([("row", pa.int64()), ("x", pa.float32()), ("y", pa.string())])
    table = Table.create(f"memory://{uuid.uuid4()}", schema)
    keys = [(1.0, "b"), (math.nan, "z"), (None, "b"), (1.0, None), (math.nan, "a"), (1.0, "a"), (None, "a"), (0.5, "q")]
    for row, (x, y) in enumerate(keys):
        table.insert([{"row": row, "x": x, "y": y}])
    group = clustered(table.refresh(), "x", "y")
    assert_maps_every_row(table, group)
    compact(table, "major", cluster_by=["x", "y"], cluster_order="sort")
    assert table.refresh().scan().to_arrow()["row"].to_pylist() == [7, 5, 0, 3, 4, 1, 6, 2]


def test_rows_with_nested_columns_move_whole() -> None:
    schema = pa.schema(
        [
            ("key", pa.int64()),
            ("inner", pa.struct([("x", pa.list_(pa.int32())), ("y", pa.string())])),
            ("map", pa.map_(pa.string(), pa.float64())),
        ]
    )
    table = Table.create(f"memory://{uuid.uuid4()}", schema)
    rows = [
        {"key": 2, "inner": {"x": [1, None], "y": "a"}, "map": [("k", 1.5)]},
        {"key": None, "inner": None, "map": None},
        {"key": 1, "inner": {"x": None, "y": None}, "map": []},
        {"key": 1, "inner": {"x": [], "y": "b"}, "map": [("l", None)]},
    ]
    for row in rows:
        table.insert(pa.Table.from_pylist([row], schema=schema))
    assert_maps_every_row(table, clustered(table.refresh(), "key"))
    compact(table, "major", cluster_by=["key"])
    assert table.refresh().scan().to_arrow().to_pylist() == [rows[2], rows[3], rows[0], rows[1]]


def test_files_that_turn_out_to_have_no_live_row_make_an_empty_map() -> None:
    """Without statistics a plan does not know that all rows are dead."""
    table = memory_table()
    for number in range(2):
        put(table, number)
    removes = [add.removed(1, data_change=True) for add in live_files(table)]
    adds = [
        msgspec.structs.replace(add, stats=None, deletion_vector=put_vector(table, [0])) for add in live_files(table)
    ]
    put_commit(table, *removes, *adds)
    group = clustered(table, "n")
    assert group.row_map is not None
    assert (group.row_map.num_rows, group.outputs, len(group.inputs)) == (0, (), 2)
    assert compact(table, "major", cluster_by=["n"]).files_removed == 2
    assert live_files(table) == []


def test_files_without_a_live_row_need_no_map() -> None:
    table = memory_table(**{"tidelog.targetFileSize": 100})
    put(table, 1)
    delete_rows(table, [0])
    group = clustered(table, "n")
    assert (group.row_map, group.outputs) == (None, ())


@given(st.lists(st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=8), min_size=1, max_size=5), st.data())
def test_every_row_is_where_the_map_says(files: list[list[int | None]], data: st.DataObject) -> None:
    schema = pa.schema([("row", pa.int64()), ("key", pa.int64())])
    table = Table.create(f"memory://{uuid.uuid4()}", schema)
    for number, keys in enumerate(files):
        rows = [number * 100 + row for row in range(len(keys))]
        table.insert(pa.table({"row": rows, "key": pa.array(keys, pa.int64())}))
    for number, keys in enumerate(files):
        dead = data.draw(st.sets(st.integers(0, len(keys) - 1), max_size=len(keys) - 1))
        if dead:
            by_path = {add.path: index for index, add in enumerate(live_files(table))}
            first = min(by_path, key=lambda path: _row_of(table, path) != number * 100)
            delete_rows(table, sorted(dead), file=by_path[first])
    before = table.refresh().scan().to_arrow()
    group = clustered(table, "key")
    assert_maps_every_row(table, group)
    compact(table, "major", cluster_by=["key"])
    after = table.refresh().scan().to_arrow()
    assert sorted(after["row"].to_pylist()) == sorted(before["row"].to_pylist())
    keys = after["key"].to_pylist()
    assert keys == sorted(keys, key=lambda key: (key is None, key or 0))


def _row_of(table: Table, path: str) -> int:
    (add,) = [add for add in live_files(table) if add.path == path]
    bare = msgspec.structs.replace(add, deletion_vector=None)
    _, batch = next(iter(read_numbered_batches(table.store, DataFile.of(bare), table.schema)))
    return int(batch["row"][0].as_py())


@pytest.mark.parametrize(
    ("largest", "kind"),
    [(0, np.int16), (2**15 - 1, np.int16), (2**15, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)],
)
def test_the_narrowest_type_that_holds_a_number(largest: int, kind: type[np.generic]) -> None:
    assert narrowest(largest) is kind
    assert np.array([largest, -1], dtype=narrowest(largest)).tolist() == [largest, -1]


@pytest.mark.parametrize("lengths", [[], [0], [1], [2**16], [2**16, 1], [10, 0, 2**18, 3, 2**17]])
def test_hashes_are_joined_in_order(lengths: list[int]) -> None:
    hashes = RowHashes()
    expected: list[int] = []
    for length in lengths:
        numbers = np.arange(len(expected), len(expected) + length, dtype=np.uint64)
        hashes.add(numbers)
        expected += numbers.tolist()
    assert hashes.joined().tolist() == expected
    assert hashes.joined().nbytes == 8 * len(expected)
