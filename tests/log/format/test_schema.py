"""Converting schemas between Delta's JSON and Arrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.log.strategies import SCHEMAS
from tidelog.log.errors import CorruptLogError, SchemaMismatchError, UnsupportedFeatureError
from tidelog.log.format.schema import from_schema_string, has_timestamp_ntz, table_schema, to_schema_string


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
    ],
)
def test_a_timestamp_without_a_time_zone_is_found_anywhere(kind: pa.DataType, expected: bool) -> None:
    assert has_timestamp_ntz(kind) is expected
    assert has_timestamp_ntz(pa.schema([("x", pa.int64()), ("c", kind)])) is expected
