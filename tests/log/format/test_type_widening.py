"""Types that columns have got since an older schema, and which types are wider ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tidelog.log.format.type_widening import wider, with_types_of


def schema(kind: Any, *changes: dict[str, str], name: str = "v", **metadata: Any) -> str:
    own = {**metadata, **({"delta.typeChanges": list(changes)} if changes else {})}
    field = {"name": name, "type": kind, "nullable": True, "metadata": own}
    return msgspec.json.encode({"type": "struct", "fields": [field]}).decode()


def change(before: str, after: str, path: str = "") -> dict[str, str]:
    return {"fromType": before, "toType": after, **({"fieldPath": path} if path else {})}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


LONG = (change("short", "integer"), change("integer", "long"))


@pytest.mark.parametrize("kind", ["short", "integer"])
def test_a_column_keeps_the_type_that_it_has_now(kind: str) -> None:
    assert with_types_of(schema(kind, comment="then"), schema("long", *LONG, comment="now")) == schema(
        "long", *LONG, comment="then"
    )


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (schema("string"), schema("long", *LONG)),  # another column had the name
        (schema("byte"), schema("long", *LONG)),
        (schema("integer", name="w"), schema("long", *LONG)),
        (schema("integer"), schema("long")),
        (schema("integer"), schema("long", change("integer", "long", "element"))),
        (schema(array("integer")), schema("long", *LONG)),
        (schema("integer"), schema(array("long"), change("integer", "long", "element"))),
        (schema(array("integer")), schema(array("long"), *LONG)),
        (
            schema("integer", **{"delta.columnMapping.physicalName": "a"}),
            schema("long", *LONG, **{"delta.columnMapping.physicalName": "b"}),
        ),
    ],
)
def test_another_column_is_none_that_was_widened(older: str, newer: str) -> None:
    assert with_types_of(older, newer) == older


def test_a_renamed_column_is_the_same_one() -> None:
    mapped = {"delta.columnMapping.physicalName": "a"}
    newer = schema("long", *LONG, name="new", **mapped)
    assert with_types_of(schema("integer", name="old", **mapped), newer) == schema("long", *LONG, name="old", **mapped)


def test_types_within_others() -> None:
    deep = {"type": "map", "keyType": "integer", "valueType": array("float"), "valueContainsNull": True}
    changes = (change("integer", "long", "key"), change("float", "double", "value.element"))
    now = {**deep, "keyType": "long", "valueType": array("double")}
    assert with_types_of(schema(deep), schema(now, *changes)) == schema(now, *changes)

    def struct(inner: str) -> dict[str, Any]:
        return msgspec.json.decode(inner)  # type: ignore[no-any-return]

    older, newer = (array(struct(inner)) for inner in (schema("short"), schema("long", *LONG)))
    assert with_types_of(schema(older), schema(newer)) == schema(newer)


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        (pa.int8(), pa.int16(), pa.int16()),
        (pa.int32(), pa.int32(), None),
        (pa.int64(), pa.int32(), None),
        (pa.int32(), pa.uint64(), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float64(), None),
        (pa.int32(), pa.decimal128(20, 0), None),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.decimal128(5, 2), pa.decimal128(4, 1), None),
        (pa.decimal128(5, 2), pa.decimal128(6, 1), pa.decimal128(7, 2)),
        (pa.decimal128(38, 2), pa.decimal128(38, 3), None),
        (pa.string(), pa.int64(), None),
    ],
    ids=str,
)
def test_wider(known: pa.DataType, found: pa.DataType, expected: pa.DataType | None) -> None:
    assert wider(known, found) == expected
