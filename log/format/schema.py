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

Metadata of fields, such as `comment`, is Arrow's field metadata: text as it is, any other value as JSON. What Delta,
Spark and Parquet keep there for themselves is left out, both ways (`is_internal`), but for the type char(n) or
varchar(n) of a string. Delta has no place for metadata of elements, keys and values.

If a table maps columns (`delta.columnMapping.mode`), each Arrow field's metadata also holds its name or id in data
files and the log; `physical_name` and `field_id` read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
# Where Spark keeps the type char(n) or varchar(n) of a column that the schema calls a string.
SPARK_TYPE = b"__CHAR_VARCHAR_TYPE_STRING"
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
# What Spark keeps beside `__`-names in the metadata of a field, and where PySpark keeps all of it in Arrow's. The first
# is the SQL of the value that new rows get, the second is of what rows from before would have.
DEFAULT, EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"
_DEFAULTS = (DEFAULT, EXISTS_DEFAULT)
_SPARK_METADATA = b"SPARK::metadata::json"
_INTERNAL_PREFIXES = ("delta.", "tidelog.", "__", "ARROW:", "PARQUET:", "SPARK::")
# PySpark's marks of the parts of its own types, which are plain structs in a table.
_SPARK_MARKS = ((b"variant", b"true"), (b"geometry", b"true"), (b"geography", b"true"))
# Parquet readers that build on Arrow take 100 levels: the root, the value, and these. A list or a map has two.
MAX_LEVELS = 98
_LENGTH_TYPE = re.compile(r"(var)?char\([0-9]{1,9}\)", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")


class _UnknownTypeError(Exception):
    """The schema has a type that tidelog does not know."""


def columns_of(metadata: Metadata, path: str) -> pa.Schema:
    """The Arrow schema of a table's metadata, including column mapping. `path` names the table in errors.

    Raises CorruptLogError if the metadata partitions the table by what is no column, and the errors of
    `from_schema_string`.
    """
    mode = metadata.configuration.get("delta.columnMapping.mode", "none")
    schema = from_schema_string(metadata.schema_string, path=path, mapping=mode)
    if metadata.partition_columns:
        _require_partitions(metadata.partition_columns, schema, path)
    return schema


def _require_partitions(names: Sequence[str], schema: pa.Schema, path: str) -> None:
    """Raise CorruptLogError unless these are distinct columns of plain types. Their values would be read as null."""
    known = {field.name: field.type for field in schema}
    for place, name in enumerate(names):
        if name not in known:
            fault = f"the schema has no such column, only {', '.join(known)}"
        elif pt.is_nested(known[name]):
            fault = "it is nested"
        elif name in names[:place]:
            fault = "it is named twice"
        else:
            continue
        raise CorruptLogError(
            f"the table's metadata partitions it by {name!r}, but {fault}",
            advice="copy _delta_log back from a backup, or create the table again with the engine that wrote it",
            path=path,
        )


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
            f"the table's schema cannot be read: {fault}", advice="copy _delta_log back from a backup", path=path
        ) from error


def own_names(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """Names of columns as the schema spells them, each once; case does not matter. One that it lacks stays as it is."""
    spelled = {name.lower(): name for name in schema.names}
    known = set(schema.names)
    return list(dict.fromkeys(name if name in known else spelled.get(_lowered(name), name) for name in names))


def _lowered(name: object) -> object:
    return name.lower() if isinstance(name, str) else name


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
    return any(map(is_variant, fields_within(field)))


class LeafColumn(NamedTuple):
    """A column that is not a struct, or such a field of a struct. `path` and `places` lead to it from the top."""

    path: tuple[str, ...]
    places: tuple[int, ...]
    field: pa.Field


def leaf_columns(
    fields: Iterable[pa.Field], name: Callable[[pa.Field], str] = lambda field: str(field.name)
) -> Iterator[LeafColumn]:
    """The columns and the fields of structs that statistics speak of, in order. A variant is one, whatever is in it.

    `name` gives the parts of the paths, such as `physical_name`.
    """
    for place, field in enumerate(fields):
        if is_variant(field) or not pt.is_struct(field.type):
            yield LeafColumn((name(field),), (place,), field)
        else:
            for path, places, inner in leaf_columns(field.type, name):
                yield LeafColumn((name(field), *path), (place, *places), inner)


def parquet_columns(fields: Iterable[pa.Field]) -> Iterator[str]:
    """The columns of a parquet file that hold the values of these, in order, by their names there."""
    for name, _ in parquet_types(fields):
        yield name


def parquet_types(fields: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """The same columns with their types."""
    for field in fields:
        kind, name = field.type, str(field.name)
        if pt.is_struct(kind):
            inner = list(kind)
        elif pt.is_map(kind):
            name, inner = f"{name}.key_value", [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        elif is_list(kind):
            name, inner = f"{name}.list", [kind.value_field.with_name("element")]
        else:
            yield name, kind
            continue
        yield from ((f"{name}.{below}", of) for below, of in parquet_types(inner))


def fields_within(field: pa.Field) -> Iterator[pa.Field]:
    """The field itself, and all fields, elements, keys and values inside it, at any depth; codes as their values."""
    kind = field.type
    if pt.is_dictionary(kind):
        yield from fields_within(field.with_type(kind.value_type))
        return
    yield field
    if pt.is_map(kind):
        inner = [kind.key_field, kind.item_field]
    else:
        inner = [kind.field(index) for index in range(kind.num_fields)]
    for each in inner:
        yield from fields_within(each)


def is_list(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's types of lists, all of which are Delta's array."""
    return any(test(kind) for test in (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view))


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


def require_typed(field: pa.Field, full: str) -> None:
    """Raise SchemaMismatchError for a new column or field that has no type, or elements or fields without one."""
    if pt.is_null(field.type):
        raise SchemaMismatchError(
            f"the data's new column {full!r} has no type, because all of its values are null",
            advice="cast it to the type that the table's column should have, or drop it",
            column=full,
        )
    if any(pt.is_null(inner.type) for inner in fields_within(field)):
        raise SchemaMismatchError(
            f"the data's new column {full!r} has only a part of a type, {field.type}, because what is in it is empty",
            advice="cast it to the type that the table's column should have, or drop it",
            column=full,
        )


def has_timestamp_ntz(schema: pa.Schema) -> bool:
    """Whether a column is, or has in it, Delta's timestamp without a time zone: it needs the feature `timestampNtz`."""
    kinds = (inner.type for field in schema for inner in fields_within(field))
    return any(pt.is_timestamp(kind) and not kind.tz for kind in kinds)


def is_internal(key: str) -> bool:
    """Whether Delta, Spark, Parquet or tidelog uses this key of a field's metadata, rather than the table's owner."""
    return key.startswith(_INTERNAL_PREFIXES) or key in _DEFAULTS


def sets_no_values(metadata: Mapping[str, Any]) -> bool:
    """Whether a new field with this metadata is null in old rows: it has no default, and is not generated."""
    return all(not is_internal(key) or key.startswith("delta.columnMapping.") for key in metadata)


def _arrow_field(field: dict[str, Any], mapping: str) -> pa.Field:
    metadata = {
        **_owners_metadata(field),
        **_mapping_metadata(field, mapping),
        **_spark_type(field),
        **(_type_metadata(field["type"]) or {}),
    }
    kind = _arrow_type(field["type"], mapping)
    return pa.field(field["name"], kind, nullable=bool(field.get("nullable", True)), metadata=metadata or None)


def _type_metadata(kind: object) -> dict[bytes, bytes] | None:
    return {_TYPE: b"variant"} if kind == "variant" else None


def _spark_type(field: dict[str, Any]) -> dict[bytes, bytes]:
    """The type char(n) or varchar(n) of a column that the schema calls a string."""
    found = (field.get("metadata") or {}).get(SPARK_TYPE.decode())
    return {SPARK_TYPE: found.encode()} if isinstance(found, str) and field["type"] == "string" else {}


def _distinct(fields: list[pa.Field]) -> list[pa.Field]:
    if len({field.name for field in fields}) < len(fields):
        raise ValueError(f"the fields {', '.join(field.name for field in fields)} are not distinct")
    physical: dict[str, str] = {}
    for field in fields:
        other = physical.setdefault(physical_name(field), field.name)
        if other != field.name:
            raise ValueError(f"{other!r} and {field.name!r} have one physical name, {physical_name(field)!r}")
    return fields


def _owners_metadata(field: dict[str, Any]) -> dict[bytes, bytes]:
    """What the owner of the table keeps at a field, as Arrow has it."""
    if not isinstance(field.get("metadata") or {}, dict):
        raise TypeError(f"the metadata of the field {field['name']!r} is not an object")
    return {
        key.encode(): (value if isinstance(value, str) else msgspec.json.encode(value).decode()).encode()
        for key, value in (field.get("metadata") or {}).items()
        if not is_internal(key)
    }


def _delta_metadata(field: pa.Field, where: str) -> dict[str, Any]:
    """The same in the other direction. Raises SchemaMismatchError for what is not text."""
    found: dict[str, Any] = {}
    try:
        for key, value in (field.metadata or {}).items():
            if key == _SPARK_METADATA:
                found |= msgspec.json.decode(value, type=dict[str, Any])
            elif (key, value) not in _SPARK_MARKS:
                found[key.decode()] = value.decode()
    except ValueError as error:
        raise SchemaMismatchError(
            f"the metadata of the column {where!r} is not text: {error}",
            advice="give the field metadata of strings, or none",
            column=where,
        ) from error
    kept = {key: value for key, value in found.items() if not is_internal(key)}
    kind = (field.metadata or {}).get(SPARK_TYPE, b"").decode(errors="replace")
    return kept | ({SPARK_TYPE.decode(): kind} if _LENGTH_TYPE.fullmatch(kind) and pt.is_string(field.type) else {})


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
        return primitive_of(kind)
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


def primitive_of(name: str) -> pa.DataType:
    """The Arrow type of one of a schema's types that is no struct, array or map."""
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
    kind = delta_type(field.type, where)
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": _delta_metadata(field, where)}


def delta_type(kind: pa.DataType, where: str) -> str | dict[str, Any]:
    """A type as schemas have it. Raises SchemaMismatchError, naming the column `where`, if no table can hold it."""
    name = _NAMES.get(kind) or _WIDENED.get(kind)
    if name:
        return name
    if pt.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:  # noqa: PLR2004 - Spark's widest decimal
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_dictionary(kind):
        return delta_type(kind.value_type, where)
    if pt.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {"type": "struct", "fields": [_delta_field(field, f"{where}.{field.name}") for field in fields]}
    if is_list(kind):
        element = kind.value_field
        inner = delta_type(element.type, f"{where}.element")
        return {"type": "array", "elementType": inner, "containsNull": element.nullable}
    if pt.is_map(kind):
        return {
            "type": "map",
            "keyType": delta_type(kind.key_type, f"{where}.key"),
            "valueType": delta_type(kind.item_type, f"{where}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    raise SchemaMismatchError(
        f"column {where!r} has the Arrow type {kind}, which a Delta table cannot hold",
        advice="cast it to string, long, double, decimal, boolean, binary, date or timestamp first",
        column=where,
    )
