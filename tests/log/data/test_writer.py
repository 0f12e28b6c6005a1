"""Writing data files: values and partition values round-trip, and files and statistics are as the log says."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.strategies import PRIMITIVES
from tests.log.support import live_files, memory_store, new_table, numbers, read_numbers
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.format.schema import table_schema


def key(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def rows_of(table: Table) -> list[dict[str, Any]]:
    return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


# --- values ----------------------------------------------------------------------------------------------------------

ALL_TYPES = pa.schema([(f"c{number}", kind) for number, kind in enumerate(PRIMITIVES)])
ANY_ROW = st.fixed_dictionaries(
    {field.name: st.none() | PRIMITIVES[field.type] for field in ALL_TYPES},
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_ROW, max_size=5))
def test_values_of_every_type_round_trip(rows: list[dict[str, Any]]) -> None:
    table = new_table(memory_store(), ALL_TYPES)
    data = pa.Table.from_pylist(rows, ALL_TYPES)
    table.insert(data)
    assert repr(table.scan().to_arrow().to_pylist()) == repr(data.to_pylist()), (
        "repr distinguishes -0.0 from 0.0, and NaN equals NaN"
    )


NESTED = table_schema(
    pa.schema(
        [
            ("st", pa.struct([("x", pa.int64()), ("in", pa.struct([("d", pa.date32())]))])),
            ("l", pa.list_(pa.list_(pa.string()))),
            ("m", pa.map_(pa.string(), pa.struct([("t", pa.timestamp("us", tz="UTC"))]))),
        ]
    )
)


def test_nested_values_and_their_nulls_round_trip() -> None:
    rows: list[dict[str, Any]] = [
        {"st": {"x": 1, "in": {"d": None}}, "l": [["a", None], [], None], "m": [("k", {"t": None}), ("l", None)]},
        {"st": {"x": None, "in": None}, "l": [], "m": []},
        {"st": None, "l": None, "m": None},
    ]
    table = new_table(memory_store(), NESTED)
    table.insert(pa.Table.from_pylist(rows, NESTED))
    assert rows_of(table) == rows


def test_a_void_column_is_not_written_and_reads_as_null() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("v", pa.null())]))
    table.insert([{"n": 1}, {"n": 2, "v": None}])
    assert rows_of(table) == [{"n": 1, "v": None}, {"n": 2, "v": None}]
    (file,) = live_files(table)
    assert pq.read_schema(io.BytesIO(table.store.read(file.path))).names == ["n"], "parquet cannot hold a void column"


# --- partitions ------------------------------------------------------------------------------------------------------

PARTITION_TYPES = list(PRIMITIVES)


def partitionable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make binary values valid UTF-8, because the log cannot hold others."""
    return values.map(lambda value: value.hex().encode() if isinstance(value, bytes) else value)


def as_partition_value(value: Any) -> Any:
    """An empty string is null in the log, and -0.0 is in the partition of 0.0."""
    if value in ("", b""):
        return None
    return value + 0.0 if isinstance(value, float) else value


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_partition_values_of_every_type_round_trip(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(PARTITION_TYPES), min_size=1, max_size=3))
    names = [f"p{number}" for number in range(len(kinds))]
    schema = pa.schema([("n", pa.int64()), *zip(names, kinds, strict=True)])
    pools = [data.draw(st.lists(st.none() | partitionable(PRIMITIVES[kind]), min_size=1, max_size=3)) for kind in kinds]
    values = st.tuples(*(st.sampled_from(pool) for pool in pools))
    rows = [
        {"n": number, **dict(zip(names, chosen, strict=True))}
        for number, chosen in enumerate(data.draw(st.lists(values, max_size=8)))
    ]
    table = new_table(memory_store(), schema, partition_by=names)
    table.insert(pa.Table.from_pylist(rows, schema))
    typed = pa.Table.from_pylist(rows, schema).to_pylist()
    expected = [{name: as_partition_value(value) for name, value in row.items()} for row in typed]
    assert sorted(map(key, rows_of(table))) == sorted(map(key, expected))
    for file in live_files(table):
        order = pq.read_table(io.BytesIO(table.store.read(file.path)))["n"].to_pylist()
        assert order == sorted(order), "the rows of a file keep their order"


SPECIAL = [
    "a/b",
    "a=b",
    "%2F",
    "a%b",
    " lead",
    "trail ",
    "é",
    "a:b",
    "..",
    "\n",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "'",
]


def test_partition_values_do_not_appear_in_paths() -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.string())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    rows = [{"n": number, "p": text} for number, text in enumerate([*SPECIAL, None])]
    table.insert(rows)
    assert sorted(map(key, rows_of(table))) == sorted(map(key, rows))
    for file in live_files(table):
        assert re.fullmatch(r"[0-9a-f]{2}/part-[0-9a-f-]{36}\.parquet", file.path)
    assert {file.partition_values["p"] for file in live_files(table)} == {*SPECIAL, None}


def test_one_file_per_partition() -> None:
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64()), ("q", pa.string())])
    table = new_table(memory_store(), schema, partition_by=["p", "q"])
    rows = [{"p": number % 3, "n": number, "q": "xy"[number % 2]} for number in range(60)]
    table.insert(rows)
    assert len(live_files(table)) == 6
    counts = Counter(json.loads(file.stats or "{}")["numRecords"] for file in live_files(table))
    assert counts == {10: 6}
    for file in live_files(table):
        assert list(file.partition_values) == ["p", "q"]
        # The files have the partition columns, too, for readers that look for them there.
        inside = pq.read_table(io.BytesIO(table.store.read(file.path)), partitioning=None)
        assert inside.column_names == ["p", "n", "q"]
        assert {name: {str(value) for value in inside[name].to_pylist()} for name in "pq"} == {
            name: {text} for name, text in file.partition_values.items()
        }
    assert sorted(map(key, rows_of(table))) == sorted(map(key, rows))


def test_many_partition_columns_with_many_values_stay_distinct() -> None:
    """Rows that differ in one of ten columns only. Each column has 256 values, which makes 2**80 combinations."""
    names = [f"p{number}" for number in range(10)]
    schema = pa.schema([("n", pa.int64()), *((name, pa.int64()) for name in names)])
    rows = [{"n": number, **dict.fromkeys(names, number)} for number in range(256)]
    rows += [{**rows[0], "n": 256, "p0": 1}, {**rows[0], "n": 257, "p9": 1}]
    table = new_table(memory_store(), schema, partition_by=names)
    table.insert(rows)
    assert sorted(rows_of(table), key=lambda row: row["n"]) == rows


def test_equal_floats_are_one_partition() -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.float64())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    values = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), None, float("nan"), 0.1]
    table.insert([{"n": number, "p": value} for number, value in enumerate(values)])
    found = sorted(rows_of(table), key=lambda row: row["n"])
    assert [repr(row["p"]) for row in found] == [repr(value) for value in [0.0, 0.0, *values[2:]]]
    assert len(live_files(table)) == 6


def test_a_binary_partition_value_must_be_utf8() -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.binary())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    with pytest.raises(SchemaMismatchError) as raised:
        table.insert([{"n": 1, "p": b"\xff"}])
    assert raised.value.fields["column"] == "p"
    assert table.refresh().version == 0


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_have_about_the_target_size_and_keep_the_row_order() -> None:
    table = new_table(memory_store(), properties={"tidelog.targetFileSize": "64 kb"})
    table.insert(numbers(range(100_000)))
    files = live_files(table)
    assert len(files) > 5
    assert all(file.size <= 64 * 1024 for file in files)
    assert table.scan().to_arrow()["n"].to_pylist() == list(range(100_000))


def test_the_add_action_describes_the_file() -> None:
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("s", pa.string())]))
    table.insert([{"n": 5, "s": "b"}, {"n": 3, "s": None}])
    (file,) = live_files(table)
    content = table.store.read(file.path)
    assert file.size == len(content)
    assert file.data_change
    assert json.loads(file.stats or "") == {
        "numRecords": 2,
        "minValues": {"n": 3, "s": "b"},
        "maxValues": {"n": 5, "s": "b"},
        "nullCount": {"n": 0, "s": 1},
        "tightBounds": True,
    }
    parquet = pq.ParquetFile(io.BytesIO(content))
    assert parquet.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert b"ARROW:schema" not in (parquet.metadata.metadata or {})


def test_timestamps_are_micros_adjusted_to_utc() -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("w", pa.timestamp("us"))])
    table = new_table(memory_store(), schema)
    table.insert(schema.empty_table().append_column("x", pa.array([], pa.int64())).drop_columns(["x"]))
    table.insert(pa.table({"t": pa.array([1], schema.field("t").type), "w": pa.array([1], pa.timestamp("us"))}))
    (file,) = live_files(table)
    columns = pq.ParquetFile(io.BytesIO(table.store.read(file.path))).schema
    for name, adjusted in (("t", "true"), ("w", "false")):
        text = str(columns.column(columns.names.index(name)).logical_type)
        assert f"isAdjustedToUTC={adjusted}" in text
        assert "timeUnit=microseconds" in text


def test_floating_numbers_have_no_bounds_in_the_file() -> None:
    """Arrow leaves NaN out of them, and Spark skips row groups by them."""
    inner = pa.struct([("d", pa.float64()), ("n", pa.int64())])
    table = new_table(memory_store(), pa.schema([("f", pa.float32()), ("k", pa.int64()), ("s", pa.list_(inner))]))
    table.insert([{"f": 1.5, "k": 1, "s": [{"d": 0.5, "n": 2}]}])
    (file,) = live_files(table)
    group = pq.ParquetFile(io.BytesIO(table.store.read(file.path))).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert {column.path_in_schema: column.is_stats_set for column in columns} == {
        "f": False,
        "k": True,
        "s.list.element.d": False,
        "s.list.element.n": True,
    }
    assert json.loads(file.stats or "")["maxValues"]["f"] == 1.5


def test_lists_have_three_levels_with_the_names_of_the_specification() -> None:
    table = new_table(memory_store(), pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))]))
    table.insert([{"l": [1], "m": [("a", 1)]}])
    (file,) = live_files(table)
    columns = pq.ParquetFile(io.BytesIO(table.store.read(file.path))).schema
    assert [columns.column(number).path for number in range(len(columns))] == [
        "l.list.element",
        "m.key_value.key",
        "m.key_value.value",
    ]


@pytest.mark.parametrize(("setting", "expected"), [(None, 32), ("5", 5), ("0", 0), ("-1", 40)])
def test_a_property_limits_the_columns_with_statistics(setting: str | None, expected: int) -> None:
    properties = {} if setting is None else {"delta.dataSkippingNumIndexedCols": setting}
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(40)])
    table = new_table(memory_store(), schema, properties=properties)
    table.insert([dict.fromkeys(schema.names, 1)])
    (file,) = live_files(table)
    assert len(json.loads(file.stats or "")["nullCount"]) == expected


def test_files_of_an_aborted_insert_are_not_visible() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    transaction = table.begin().insert(numbers([2]))
    transaction.abort()
    assert read_numbers(table.refresh()) == [1]


# --- columns with statistics -----------------------------------------------------------------------------------------

CHOOSABLE = pa.schema(
    [("a", pa.int64()), ("p", pa.int64()), ("s", pa.struct([("x", pa.string())])), ("l", pa.list_(pa.int64()))]
)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {"a", "s", "l"}),
        ({"delta.dataSkippingNumIndexedCols": 1}, {"a"}),
        ({"delta.dataSkippingNumIndexedCols": 2}, {"a", "s"}),
        ({"delta.dataSkippingNumIndexedCols": 0}, set()),
        ({"delta.dataSkippingNumIndexedCols": -1}, {"a", "s", "l"}),
        ({"delta.dataSkippingStatsColumns": "S.x"}, {"s"}),
        ({"delta.dataSkippingStatsColumns": "s, `a`", "delta.dataSkippingNumIndexedCols": 0}, {"a", "s"}),
    ],
)
def test_properties_choose_the_columns_with_statistics(properties: dict[str, object], expected: set[str]) -> None:
    table = new_table(memory_store(), CHOOSABLE, partition_by=["p"], properties=properties)
    table.insert([{"a": 1, "p": 2, "s": {"x": "y"}, "l": [3]}])
    (file,) = live_files(table)
    stats = json.loads(file.stats or "")
    assert set(stats["nullCount"]) == expected
    assert set(stats["minValues"]) == expected - {"l"}
    assert stats["numRecords"] == 1


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ("b", "'b'.*not in the schema"),
        ("s.y", "'s.y'.*not in the schema"),
        ("a.x", "'a.x'.*not in the schema"),
        ("`s.x`", "not in the schema"),
        ("a, P", "'P'.*partition column"),
        ("a, A", "named twice"),
        ("l", "'l', which is list.*no bounds"),
        ("a,", "column names"),
    ],
)
def test_columns_that_cannot_have_statistics_are_errors(columns: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        new_table(
            memory_store(),
            CHOOSABLE,
            partition_by=["p"],
            properties={"delta.dataSkippingStatsColumns": columns},
        )
