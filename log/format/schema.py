"""Convert a table's schema between Spark's StructType JSON, as in the log, and Arrow.

| Delta | Arrow |
|---|---|
| string, binary, boolean, date | string, binary, bool, date32 |
| byte, short, integer, long, float, double | int8, int16, int32, int64, float32, float64 |
| decimal(p,s) | decimal128(p, s) |
| timestamp | timestamp[us, UTC] |
| timestamp_ntz | timestamp[us] |
| struct, array, map, void | struct, list, map, null |
| variant | struct<value: binary, metadata: binary>, unshredded, as parquet holds it |

If a table maps columns (`delta.columnMapping.mode`), each Arrow field's metadata holds its name or id in data files and
the log; `physical_name` and `field_id` read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import CorruptLogError, SchemaMismatchError, UnsupportedFeatureError
from tidelog.log.format.actions import Metadata

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

VARIANT = pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)])
_PHYSICAL_NAME = b"delta.columnMapping.physicalName"
_FIELD_ID = b"delta.columnMapping.id"
_TYPE = b"delta.type"
# pyarrow's metadata key for a parquet column's id.
PARQUET_ID = b"PARQUET:field_id"

_PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "void": pa.null(),
}
_NAMES = {kind: name for name, kind in _PRIMITIVES.items()}
# Arrow types that fit into a wider table type, so that users need not cast common data.
_WIDENED: dict[pa.DataType, str] = {
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}
# Parquet readers that build on Arrow take 100 levels: the root, the value, and these. A list or a map has two.
MAX_LEVELS = 98
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")


class _UnknownTypeError(Exception):
    """The schema has a type that tidelog does not know."""


def columns_of(metadata: Metadata, path: str) -> pa.Schema:
    """The Arrow schema of a table's metadata, including column mapping. `path` names the table in errors."""
    mode = metadata.configuration.get("delta.columnMapping.mode", "none")
    return from_schema_string(metadata.schema_string, path=path, mapping=mode)


def from_schema_string(schema_string: str, *, path: str = "", mapping: str = "none") -> pa.Schema:
    """Parse a `schemaString`. `path` names the table in errors; `mapping` is `none`, `name` or `id`.

    Raises CorruptLogError if the text is not a schema, UnsupportedFeatureError for a type that tidelog cannot read.
    """
    try:
        fields = msgspec.json.decode(schema_string)["fields"]
        return pa.schema(_distinct([_arrow_field(field, mapping) for field in fields]))
    except _UnknownTypeError as error:
        raise UnsupportedFeatureError(
            f"the schema has a column of type {error}, which tidelog cannot read",
            advice="use another engine",
            path=path,
            features=str(error),
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        fault = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise CorruptLogError(
            f"the table's schema cannot be read: {fault}", advice="restore the log from a backup", path=path
        ) from error


def physical_name(field: pa.Field) -> str:
    """A field's name in data files, partition values and statistics."""
    name = (field.metadata or {}).get(_PHYSICAL_NAME)
    return str(field.name) if name is None else name.decode()


def physical_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Columns of the table as they are in data files. A variant is still marked as one."""
    return [_physical_field(field) for field in fields]


def _physical_field(field: pa.Field) -> pa.Field:
    number = (field.metadata or {}).get(PARQUET_ID)
    metadata = ({} if number is None else {PARQUET_ID: number}) | _variant_mark(field)
    return pa.field(physical_name(field), _physical_type(field.type), nullable=field.nullable, metadata=metadata)


def _physical_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct([_physical_field(kind.field(index)) for index in range(kind.num_fields)])
    if pt.is_map(kind):
        return pa.map_(_physical_field(kind.key_field), _physical_field(kind.item_field))
    return pa.list_(_physical_field(kind.value_field)) if pt.is_list(kind) else kind


def physical_path(path: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """The path of a column, or of a field in one, in the names that data files use; case does not matter.

    An unknown name stays as it is.
    """
    fields = list(schema)
    found = []
    for name in path:
        field = next((candidate for candidate in fields if candidate.name.lower() == name.lower()), None)
        found.append(name if field is None else physical_name(field))
        kind: Any = field.type if field is not None and pt.is_struct(field.type) else pa.struct([])
        fields = [kind.field(index) for index in range(kind.num_fields)]
    return tuple(found)


def field_id(field: pa.Field) -> int | None:
    """A field's parquet field id in data files; None if the table does not map columns by id."""
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def is_variant(field: pa.Field) -> bool:
    """Whether a field is a variant."""
    return (field.metadata or {}).get(_TYPE) == b"variant"


def _variant_mark(field: pa.Field) -> dict[bytes, bytes]:
    """The metadata that makes another field a variant if this one is; else empty."""
    return {_TYPE: b"variant"} if is_variant(field) else {}


def has_variant(field: pa.Field) -> bool:
    """Whether a field is a variant, or has one at any depth."""
    inner = [field.type.field(index) for index in range(field.type.num_fields)]
    return is_variant(field) or any(map(has_variant, inner))


def to_schema_string(schema: pa.Schema) -> str:
    """The `schemaString` of an Arrow schema. Raises SchemaMismatchError for a type that a table cannot hold."""
    require_depth(schema)
    fields = [_delta_field(field, field.name) for field in schema]
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


def table_schema(schema: pa.Schema) -> pa.Schema:
    """`schema` with every type replaced by the one that reading the table returns."""
    return from_schema_string(to_schema_string(schema))


def require_depth(fields: Iterable[pa.Field]) -> None:
    """Raise SchemaMismatchError for a column nested so deeply that a data file with it could not be read."""
    for field in fields:
        left = [(field.type, MAX_LEVELS)]
        while left:
            kind, levels = left.pop()
            if pt.is_dictionary(kind):
                left.append((kind.value_type, levels))
                continue
            if not kind.num_fields:
                continue
            is_list = not (pt.is_struct(kind) or pt.is_map(kind))  # the entries of a map are a struct
            levels -= 2 if is_list else 1
            if levels < 0:
                raise SchemaMismatchError(
                    f"column {field.name!r} is nested too deeply: no data file with it could be read",
                    advice=f"use at most {MAX_LEVELS} structs inside each other, or {MAX_LEVELS // 2} lists or maps",
                    column=field.name,
                )
            left += [(kind.field(index).type, levels) for index in range(kind.num_fields)]


def has_timestamp_ntz(kind: pa.DataType | pa.Schema) -> bool:
    """Whether a timestamp without a time zone occurs anywhere, which requires the feature `timestampNtz`."""
    if isinstance(kind, pa.Schema):
        return any(has_timestamp_ntz(field.type) for field in kind)
    if pt.is_struct(kind):
        return any(has_timestamp_ntz(kind.field(index).type) for index in range(kind.num_fields))
    if pt.is_list(kind):
        return has_timestamp_ntz(kind.value_type)
    if pt.is_map(kind):
        return has_timestamp_ntz(kind.key_type) or has_timestamp_ntz(kind.item_type)
    return bool(kind == TIMESTAMP_NTZ)


def _arrow_field(field: dict[str, Any], mapping: str) -> pa.Field:
    metadata = {**_mapping_metadata(field, mapping), **(_type_metadata(field["type"]) or {})}
    kind = _arrow_type(field["type"], mapping)
    return pa.field(field["name"], kind, nullable=bool(field.get("nullable", True)), metadata=metadata or None)


def _type_metadata(kind: object) -> dict[bytes, bytes] | None:
    return {_TYPE: b"variant"} if kind == "variant" else None


def _distinct(fields: list[pa.Field]) -> list[pa.Field]:
    if len({field.name for field in fields}) < len(fields):
        raise ValueError(f"the fields {', '.join(field.name for field in fields)} are not distinct")
    return fields


def _mapping_metadata(field: dict[str, Any], mapping: str) -> dict[bytes, bytes]:
    own = field.get("metadata") or {}
    if mapping == "none":
        return {}
    known = {_PHYSICAL_NAME: str(own["delta.columnMapping.physicalName"]).encode()}
    if mapping == "name" and "delta.columnMapping.id" not in own:
        return known
    number = str(int(own["delta.columnMapping.id"])).encode()
    # Data files carry the ids in both modes; only `id` mode finds columns by them.
    return known | {PARQUET_ID: number} | ({_FIELD_ID: number} if mapping == "id" else {})


def _arrow_type(kind: str | dict[str, Any], mapping: str) -> pa.DataType:
    if isinstance(kind, str):
        return _arrow_primitive(kind)
    match kind["type"]:
        case "struct":
            return pa.struct(_distinct([_arrow_field(field, mapping) for field in kind["fields"]]))
        case "array":
            inner = _arrow_type(kind["elementType"], mapping)
            own = _type_metadata(kind["elementType"])
            return pa.list_(pa.field("element", inner, nullable=kind.get("containsNull", True), metadata=own))
        case "map":
            inner = _arrow_type(kind["valueType"], mapping)
            own = _type_metadata(kind["valueType"])
            value = pa.field("value", inner, nullable=kind.get("valueContainsNull", True), metadata=own)
            return pa.map_(_arrow_type(kind["keyType"], mapping), value)
        case other:
            raise _UnknownTypeError(other)


def _arrow_primitive(name: str) -> pa.DataType:
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    if name == "variant":
        return VARIANT
    match = _DECIMAL.fullmatch(name)
    if match:
        return pa.decimal128(int(match.group(1)), int(match.group(2)))
    # Old writers use these for strings of limited length; the values are plain strings.
    if name.startswith(("varchar(", "char(")):
        return pa.string()
    raise _UnknownTypeError(name)


def _delta_field(field: pa.Field, where: str) -> dict[str, Any]:
    kind = _delta_type(field.type, where)
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}


def _delta_type(kind: pa.DataType, where: str) -> str | dict[str, Any]:
    name = _NAMES.get(kind) or _WIDENED.get(kind)
    if name:
        return name
    if pt.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:  # noqa: PLR2004 - Spark's widest decimal
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_dictionary(kind):
        return _delta_type(kind.value_type, where)
    if pt.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {"type": "struct", "fields": [_delta_field(field, f"{where}.{field.name}") for field in fields]}
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) or pt.is_list_view(kind):
        element = kind.value_field
        inner = _delta_type(element.type, f"{where}.element")
        return {"type": "array", "elementType": inner, "containsNull": element.nullable}
    if pt.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type, f"{where}.key"),
            "valueType": _delta_type(kind.item_type, f"{where}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    raise SchemaMismatchError(
        f"column {where!r} has the Arrow type {kind}, which a Delta table cannot hold",
        advice="cast it to string, long, double, decimal, boolean, binary, date or timestamp first",
        column=where,
    )
