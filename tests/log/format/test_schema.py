"""Converting schemas between Delta's JSON and Arrow."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.strategies import SCHEMAS
from tests.log.support import PROTOCOL, add, memory_store, metadata, put_commit
from tests.randomness import EXAMPLES
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError, SchemaMismatchError, UnsupportedFeatureError
from tidelog.log.format.schema import (
    fields_within,
    from_schema_string,
    has_timestamp_ntz,
    leaf_columns,
    parquet_columns,
    table_schema,
    to_schema_string,
)
from tidelog.log.state.loader import load


def field(kind: Any, *, name: str = "c", nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def schema_string(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


# Delta's types and their exact Arrow equivalents.
TYPES = [
    ("string", pa.string()),
    ("binary", pa.binary()),
    ("boolean", pa.bool_()),
    ("date", pa.date32()),
    ("byte", pa.int8()),
    ("short", pa.int16()),
    ("integer", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestamp_ntz", pa.timestamp("us")),
    ("void", pa.null()),
    ("decimal(1,0)", pa.decimal128(1, 0)),
    ("decimal(10,2)", pa.decimal128(10, 2)),
    ("decimal(38,38)", pa.decimal128(38, 38)),
    (
        {"type": "struct", "fields": [field("long", name="x", nullable=False)]},
        pa.struct([pa.field("x", pa.int64(), False)]),
    ),
    (
        {"type": "array", "elementType": "string", "containsNull": True},
        pa.list_(pa.field("element", pa.string(), nullable=True)),
    ),
    (
        {"type": "array", "elementType": "string", "containsNull": False},
        pa.list_(pa.field("element", pa.string(), nullable=False)),
    ),
    (
        {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
        pa.map_(pa.string(), pa.float64()),
    ),
    (
        {"type": "map", "keyType": "integer", "valueType": "date", "valueContainsNull": False},
        pa.map_(pa.int32(), pa.field("value", pa.date32(), nullable=False)),
    ),
    (
        {
            "type": "array",
            "elementType": {
                "type": "struct",
                "fields": [
                    field(
                        {"type": "map", "keyType": "string", "valueType": "timestamp_ntz", "valueContainsNull": True}
                    ),
                    field("decimal(5,3)", name="d"),
                ],
            },
            "containsNull": True,
        },
        pa.list_(
            pa.field(
                "element",
                pa.struct([("c", pa.map_(pa.string(), pa.timestamp("us"))), ("d", pa.decimal128(5, 3))]),
            )
        ),
    ),
]
IDS = [kind if isinstance(kind, str) else json.dumps(kind)[:40] for kind, _ in TYPES]


@pytest.mark.parametrize(("delta", "arrow"), TYPES, ids=IDS)
def test_each_type_is_read(delta: Any, arrow: pa.DataType) -> None:
    found = from_schema_string(schema_string(field(delta)))
    assert found.equals(pa.schema([pa.field("c", arrow)]), check_metadata=True)


@pytest.mark.parametrize(("delta", "arrow"), TYPES, ids=IDS)
def test_each_type_is_written(delta: Any, arrow: pa.DataType) -> None:
    assert json.loads(to_schema_string(pa.schema([("c", arrow)]))) == json.loads(schema_string(field(delta)))


@given(SCHEMAS)
def test_any_schema_survives_a_round_trip(schema: pa.Schema) -> None:
    text = to_schema_string(schema)
    found = from_schema_string(text)
    assert found.equals(schema)
    assert to_schema_string(found) == text


def test_names_order_and_nullability_are_kept() -> None:
    schema = pa.schema([pa.field("b b", pa.int64(), nullable=False), pa.field("ä.`", pa.string())])
    assert from_schema_string(to_schema_string(schema)).equals(schema)


@pytest.mark.parametrize(
    ("given_type", "expected"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.decimal256(20, 4), pa.decimal128(20, 4)),
        (pa.large_list(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
        (pa.list_(pa.int8(), 3), pa.list_(pa.field("element", pa.int8()))),
    ],
)
def test_types_that_delta_lacks_become_wider_ones(given_type: pa.DataType, expected: pa.DataType) -> None:
    assert table_schema(pa.schema([("c", given_type)])).field("c").type == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.time64("us"),
        pa.duration("s"),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.month_day_nano_interval(),
        pa.list_(pa.duration("s")),
        pa.struct([("inner", pa.time32("ms"))]),
        pa.map_(pa.string(), pa.uint64()),
    ],
)
def test_a_type_without_an_equivalent_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="'c") as raised:
        to_schema_string(pa.schema([("c", kind)]))
    assert raised.value.fields["column"].split(".")[0] == "c"


def test_the_error_has_the_path_of_a_nested_column() -> None:
    kind = pa.list_(pa.struct([("inner", pa.duration("s"))]))
    with pytest.raises(SchemaMismatchError) as raised:
        to_schema_string(pa.schema([("c", kind)]))
    assert raised.value.fields["column"] == "c.element.inner"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("varchar(10)", pa.string()), ("char(3)", pa.string()), ("decimal(10, 2)", pa.decimal128(10, 2))],
)
def test_spellings_of_other_writers_are_read(name: str, expected: pa.DataType) -> None:
    assert from_schema_string(schema_string(field(name))).field("c").type == expected


@pytest.mark.parametrize("kind", ["interval day", "geometry", {"type": "udt"}])
def test_a_type_that_tidelog_cannot_read_is_refused(kind: Any) -> None:
    with pytest.raises(UnsupportedFeatureError) as raised:
        from_schema_string(schema_string(field(kind)), path="/data/t")
    assert raised.value.fields == {"path": "/data/t", "features": kind["type"] if isinstance(kind, dict) else kind}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"c","type":{"type":"array"}}]}',
        '{"type":"struct","fields":[{"name":"c","type":"decimal(99,2)"}]}',
        '{"type":"struct","fields":[{"name":"c","type":7}]}',
    ],
)
def test_an_invalid_schema_is_a_corrupt_log(text: str) -> None:
    with pytest.raises(CorruptLogError) as raised:
        from_schema_string(text, path="/data/t")
    assert raised.value.fields["path"] == "/data/t"


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["ghost"], "the schema has no such column"),
        (["C"], "the schema has no such column"),
        (["st.x"], "the schema has no such column"),
        (["st"], "it is nested"),
        (["c", "c"], "it is named twice"),
        (["c", "ghost"], "the schema has no such column"),
    ],
)
def test_a_partition_column_that_is_none_is_a_corrupt_log(names: list[str], fault: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("c", pa.string()), ("st", pa.struct([("x", pa.int64())]))])
    store = memory_store()
    put_commit(store, 0, PROTOCOL, metadata(schema, partition_columns=tuple(names)), add("a.parquet"))
    table = Table(store, load(store))
    for use in (lambda: table.schema, lambda: table.scan().to_arrow(), lambda: table.insert([{"id": 1}])):
        with pytest.raises(CorruptLogError, match=fault):
            use()
    with pytest.raises(CorruptLogError, match=fault):
        table.delete("id = 1")


@settings(max_examples=EXAMPLES // 2)
@given(SCHEMAS, st.data())
def test_a_table_is_partitioned_by_distinct_plain_columns_or_refused(schema: pa.Schema, data: st.DataObject) -> None:
    near = [name for known in schema.names for name in (known, known, known.swapcase(), f"{known}.x")]
    names = data.draw(st.lists(st.sampled_from(near), min_size=1, max_size=3))
    plain = {field.name for field in schema if not pa.types.is_nested(field.type)}
    store = memory_store()
    put_commit(store, 0, PROTOCOL, metadata(schema, partition_columns=tuple(names)))
    table = Table(store, load(store))
    if set(names) <= plain and len(set(names)) == len(names):
        assert table.schema.names == schema.names
        assert table.partition_by == tuple(names)
        return
    with pytest.raises(CorruptLogError, match="the table's metadata partitions it by"):
        table.scan().to_arrow()


NTZ = pa.timestamp("us")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (NTZ, True),
        (pa.timestamp("us", tz="UTC"), False),
        (pa.struct([("a", pa.int64()), ("b", pa.struct([("c", NTZ)]))]), True),
        (pa.list_(NTZ), True),
        (pa.map_(NTZ, pa.int64()), True),
        (pa.map_(pa.string(), pa.list_(NTZ)), True),
        (pa.map_(pa.string(), pa.list_(pa.date32())), False),
        (pa.timestamp("ns"), True),
        (pa.timestamp("s"), True),
        (pa.timestamp("ms", tz="Europe/Berlin"), False),
        (pa.dictionary(pa.int32(), pa.timestamp("ns")), True),
        (pa.large_list(pa.list_(pa.timestamp("ms"), 2)), True),
    ],
)
def test_a_timestamp_without_a_time_zone_is_found_anywhere(kind: pa.DataType, expected: bool) -> None:
    schema = pa.schema([("x", pa.int64()), ("c", kind)])
    assert has_timestamp_ntz(schema) is has_timestamp_ntz(table_schema(schema)) is expected


def mapped(name: str, physical: str) -> dict[str, Any]:
    own = {"delta.columnMapping.id": len(name), "delta.columnMapping.physicalName": physical}
    return {**field("long", name=name), "metadata": own}


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("level", ["top", "struct"])
def test_two_columns_with_one_physical_name_are_a_corrupt_log(mode: str, level: str) -> None:
    both = [mapped("a", "col-1"), mapped("bb", "col-1")]
    fields = both if level == "top" else [{**mapped("ccc", "col-3"), "type": {"type": "struct", "fields": both}}]
    with pytest.raises(CorruptLogError, match="'a' and 'bb' have one physical name, 'col-1'"):
        from_schema_string(schema_string(*fields), path="/data/t", mapping=mode)
    assert from_schema_string(schema_string(*fields)).names  # without mapping, the names count


INNER = pa.field("x", pa.int64(), metadata={"comment": "inside", "unit": "m"})
COMMENTED = pa.schema(
    [
        pa.field("a", pa.int64(), metadata={"comment": "für alle", "": "empty"}),
        pa.field("s", pa.struct([INNER]), metadata={"comment": "whole"}),
        pa.field("l", pa.list_(pa.struct([INNER]))),
        pa.field("m", pa.map_(pa.string(), pa.struct([INNER]))),
    ]
)


def test_the_owner_s_metadata_of_fields_is_kept_both_ways() -> None:
    text = to_schema_string(COMMENTED)
    written = json.loads(text)["fields"]
    assert written[0]["metadata"] == {"comment": "für alle", "": "empty"}
    assert written[1]["type"]["fields"][0]["metadata"] == {"comment": "inside", "unit": "m"}
    found = from_schema_string(text)
    assert found.field("a").metadata == COMMENTED.field("a").metadata
    insides = [inner.metadata for column in found for inner in fields_within(column) if inner.name == "x"]
    assert insides == [INNER.metadata] * 3
    assert to_schema_string(found) == text
    # Values that are not text, as other engines write them, are JSON.
    other = {**field("long"), "metadata": {"n": 5, "flag": True, "deep": {"k": [1]}}}
    assert from_schema_string(schema_string(other)).field("c").metadata == {
        b"n": b"5",
        b"flag": b"true",
        b"deep": b'{"k":[1]}',
    }
    by_name = {**mapped("a", "col-1")["metadata"], "comment": "mapped"}
    found = from_schema_string(schema_string({**field("long"), "metadata": by_name}), mapping="name")
    assert found.field("c").metadata[b"comment"] == b"mapped"


INTERNAL = {
    "delta.generationExpression": "1",
    "delta.columnMapping.id": "4",
    "delta.columnMapping.physicalName": "b",
    "delta.identity.start": "1",
    "delta.invariants": "{}",
    "delta.type": "variant",
    "CURRENT_DEFAULT": "1",
    "EXISTS_DEFAULT": "1",
    "__CHAR_VARCHAR_TYPE_STRING": "varchar(1)",
    "PARQUET:field_id": "3",
    "ARROW:extension:name": "uuid",
    "tidelog.rowTracking": "id",
}


def test_no_caller_sets_what_engines_keep_at_fields() -> None:
    spark = {"SPARK::metadata::json": json.dumps({**INTERNAL, "comment": "kept", "n": 5})}
    for given_metadata, kept in ((INTERNAL, {}), (spark, {"comment": "kept", "n": 5})):
        inner = pa.field("x", pa.int64(), metadata=given_metadata)
        for kind in (pa.int64(), pa.struct([inner]), pa.list_(pa.field("element", pa.struct([inner])))):
            column = pa.field("c", kind, metadata=given_metadata)
            text = to_schema_string(pa.schema([column]))
            assert not any(key in text for key in INTERNAL)
            assert json.loads(text)["fields"][0]["metadata"] == kept
    variant = pa.struct([("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})])
    assert '"variant"' not in to_schema_string(pa.schema([("v", variant)]))


@pytest.mark.parametrize("metadata", [{b"comment": b"\xff"}, {b"\xff": b""}, {b"SPARK::metadata::json": b"[1]"}])
def test_metadata_that_is_not_text_is_refused(metadata: dict[bytes, bytes]) -> None:
    with pytest.raises(SchemaMismatchError, match="the metadata of the column 'c' is not text"):
        to_schema_string(pa.schema([pa.field("c", pa.int64(), metadata=metadata)]))


def test_leaf_columns_are_what_statistics_speak_of() -> None:
    inner = pa.struct([("y", pa.int64()), ("l", pa.list_(pa.struct([("z", pa.int64())])))])
    variant = pa.field("v", pa.struct([("value", pa.binary())]), metadata={"delta.type": "variant"})
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string()), ("in", inner), variant])), variant])
    assert [(leaf.path, leaf.places) for leaf in leaf_columns(schema)] == [
        (("a",), (0,)),
        (("s", "x"), (1, 0)),
        (("s", "in", "y"), (1, 1, 0)),
        (("s", "in", "l"), (1, 1, 1)),
        (("s", "v"), (1, 2)),
        (("v",), (2,)),
    ]


@given(SCHEMAS)
def test_parquet_columns_are_those_of_a_file(schema: pa.Schema) -> None:
    content = io.BytesIO()
    pq.write_table(schema.empty_table(), content)
    found = pq.ParquetFile(content).schema
    expected = [found.column(number).path for number in range(len(found.names))]
    assert [*parquet_columns(schema)] == expected
