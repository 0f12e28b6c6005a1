"""The columns, partitions and clusters of the SQL catalog's tables, from Spark's form to a table's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StringType, StructField, StructType, VarcharType

from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.format.properties import CLUSTER_BY
from tidelog.log.format.schema import DEFAULT, SPARK_TYPE
from tidelog.streaming import spark_versions


def strict(schema: Mapping[str, Any], columns: pa.Schema) -> Mapping[str, Any]:
    """The columns with those that cannot be null."""
    fields = [{**field, "nullable": columns.field(field["name"]).nullable} for field in schema["fields"]]
    return {**schema, "fields": fields}


def nullable(schema: pa.Schema) -> pa.Schema:
    """The columns, all of which can be null."""
    return pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - pyarrow's signature


def is_replaceable(table: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether the columns are the same. Comments, and what cannot be null, may stay: a SELECT does not say."""
    old_columns, new_columns = (
        _loose(spark_versions.columns_from_arrow(schema).jsonValue()) for schema in (table, wanted)
    )
    return old_columns == new_columns and all(
        (new.nullable or not old.nullable) and (new.metadata or {}).items() <= (old.metadata or {}).items()
        for new, old in zip(wanted, table, strict=True)
    )


def _loose(kind: Any) -> Any:
    """A type of Spark's, as JSON, all of whose parts can be null."""
    if isinstance(kind, dict):
        flags = {"nullable", "containsNull", "valueContainsNull"}
        return {key: key in flags or _loose(part) for key, part in kind.items() if key != "metadata"}
    return [_loose(part) for part in kind] if isinstance(kind, list) else kind


def partitions_and_clusters(described: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The partition columns, and what CLUSTER BY means: a property."""
    clusters: dict[str, str] = {}
    names = []
    for text in described:
        if text.startswith("cluster_by("):
            clusters[CLUSTER_BY] = ", ".join(map(_unquoted, text.removeprefix("cluster_by(")[:-1].split(", ")))
            continue
        if text.endswith(")"):
            raise ConfigurationError(
                f"PARTITIONED BY ({text}) is not supported", advice="partition by columns of the table"
            )
        names.append(_unquoted(text))
    return names, clusters


def _unquoted(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def with_clusters(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties, with CLUSTER BY of a name in Spark's own catalog, which arrives as one, as tidelog's."""
    own = dict(properties)
    clusters = own.pop("clusteringColumns", None)
    if clusters is not None:
        own[CLUSTER_BY] = ", ".join(".".join(parts) for parts in json.loads(clusters)) or None
    return own


def require_plain(schema: StructType) -> None:
    """Raise SchemaMismatchError for a type that would lose its length or collation in a table, and for a variant."""
    for field in schema:
        if isinstance(field.dataType, CharType | VarcharType):
            continue
        name = field.dataType.simpleString()
        if "variant" in _leaf_types(field.dataType):
            raise SchemaMismatchError(
                f"column {field.name!r} cannot have the type {name}: tidelog makes no columns of variants",
                advice="use STRING, or make the table with another engine, such as delta-spark; tidelog then writes it",
                column=field.name,
            )
        if any("char(" in text or "collate " in text for text in _leaf_types(field.dataType)):
            raise SchemaMismatchError(
                f"column {field.name!r} cannot have the type {name}: a table keeps no collation, and the length of a "
                "whole column only",
                advice="use STRING",
                column=field.name,
            )


def _leaf_types(kind: DataType) -> Iterator[str]:
    """The names of the types that a type consists of."""
    parts = [kind]
    if isinstance(kind, StructType):
        parts = [field.dataType for field in kind]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    for part in parts:
        if part is kind:
            yield kind.simpleString()
        else:
            yield from _leaf_types(part)


def arrow_columns(schema: StructType) -> pa.Schema:
    """The columns as Arrow's, with their comments.

    Raises SchemaMismatchError for a type that a table cannot keep.
    """
    require_plain(schema)
    plain = spark_versions.columns_to_arrow(StructType([_without_length(field) for field in schema]))
    own = [_column_metadata(field) for field in schema]
    return pa.schema([field.with_metadata(given) if given else field for field, given in zip(plain, own, strict=True)])


def with_part(kind: DataType | None, names: Sequence[str], part: DataType) -> Any:
    """What has this part at this place of a type: a struct of its one field, or a whole list or map.

    A name is that of a field, or `element`, `key` or `value`. There may be no such field yet.
    """
    if not names:
        return part
    name, *rest = names
    if isinstance(kind, ArrayType):
        return ArrayType(with_part(kind.elementType, rest, part))
    if isinstance(kind, MapType):
        if name == "key":
            return MapType(with_part(kind.keyType, rest, part), kind.valueType)
        return MapType(kind.keyType, with_part(kind.valueType, rest, part))
    fields = kind.fields if isinstance(kind, StructType) else []
    known = next((field.dataType for field in fields if field.name.lower() == name.lower()), None)
    return StructType([StructField(name, with_part(known, rest, part))])


def column_defaults(schema: StructType) -> dict[str, str]:
    """The SQL of the columns' defaults."""
    return {field.name: field.metadata[DEFAULT] for field in schema if DEFAULT in (field.metadata or {})}


def without_lengths(schema: str) -> StructType:
    """Columns of Spark's, as JSON, with STRING in place of VARCHAR and CHAR: so Spark reads them."""
    return StructType([_without_length(field) for field in StructType.fromJson(json.loads(schema))])


def _without_length(field: StructField) -> StructField:
    has_length = isinstance(field.dataType, CharType | VarcharType)
    return StructField(field.name, StringType() if has_length else field.dataType, field.nullable, field.metadata)


def _column_metadata(field: StructField) -> dict[str, str]:
    found = {}
    if field.metadata.get("comment"):
        found["comment"] = field.metadata["comment"]
    if isinstance(field.dataType, CharType | VarcharType):
        found[SPARK_TYPE.decode()] = field.dataType.simpleString()
    return found
