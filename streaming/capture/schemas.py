"""The schema of the rows: as a caller gives it, or as the envelopes of a batch say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.log.format import properties
from tidelog.log.presentable import brief
from tidelog.streaming import spark_versions
from tidelog.streaming.capture.changes import ChangeRows, RecordFormat, records_of
from tidelog.streaming.capture.declared import declared_columns
from tidelog.streaming.capture.values import (
    DATE_NAMES,
    DECIMAL_NAME,
    LOCAL_NAMES,
    UNREADABLE,
    VARIABLE_NAME,
    ZONED_NAME,
    Encoding,
    precision_of,
    scale_of,
)
from tidelog.streaming.executors.computed_once import computed_once_in_batch
from tidelog.streaming.sink.control import ORDER, RESERVED, TRANSACTION

_MOST_DIGITS = 38
_TYPES: dict[str, DataType] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_INTEGERS: list[DataType] = [ByteType(), ShortType(), IntegerType(), LongType()]
_FLOATS: list[DataType] = [FloatType(), DoubleType()]
TYPE_OF_NAME: dict[str | None, DataType] = {
    **dict.fromkeys(DATE_NAMES, DateType()),
    **dict.fromkeys(LOCAL_NAMES, TimestampNTZType()),
    ZONED_NAME: TimestampType(),
    VARIABLE_NAME: StringType(),
}
"""The types of columns by what a record's schema says that they mean."""

Rename: TypeAlias = "Mapping[str, str | None]"
"""Columns of records by their names, with the names that they have in the rows; None for one that is left out."""
Schema: TypeAlias = "Table | pa.Schema | StructType | str"
"""The columns of a table: a Table, a schema of Arrow's or Spark's, or DDL text such as `"id BIGINT, name STRING"`."""


def struct_of(schema: Any) -> StructType:
    """A schema as Spark's, without the columns that belong to the sink. Raises ConfigurationError."""
    if isinstance(schema, Table):
        schema = schema.schema
    if isinstance(schema, pa.Schema):
        found: DataType = spark_versions.columns_from_arrow(schema)
    elif isinstance(schema, str):
        found = DataType.fromDDL(schema)
    else:
        found = schema
    if not isinstance(found, StructType):
        raise ConfigurationError(
            f"schema cannot be {brief(schema)}",
            advice="pass a Table, a pyarrow.Schema, a StructType, or DDL text such as 'id BIGINT, name STRING'",
        )
    is_of_table = isinstance(schema, pa.Schema)
    kept = [field for field in found if not (is_of_table and _is_of_sink(field))]
    for field in kept:
        _require_free(field.name, field.name, "the schema has")
    return StructType(kept)


def _is_of_sink(field: StructField) -> bool:
    """Whether a table has the column because the sink gave it to it."""
    return field.name in (ORDER, TRANSACTION) and isinstance(field.dataType, StringType)


def _require_free(name: str, source: str, who: str) -> None:
    """Raise SchemaMismatchError for the name of a column that the sink's rows have beside those of a schema."""
    if name.lower() in RESERVED:
        raise SchemaMismatchError(
            f"{who} a column {name!r}, a name of the sink's own",
            advice=f"give the column another name in the rows, as by rename={{{source!r}: 'source{name.lower()}'}}"
            + ("; or leave it out, by None as its name" if source == name else ""),
            column=name,
        )


def names_in_records(rename: Rename | None, columns: StructType | None) -> dict[str, str]:
    """The names in the records by those in the rows; `columns` are those of a schema that is known.

    Raises ConfigurationError, SchemaMismatchError.
    """
    given: Any = rename or {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str | None) for name in given.values()):
        raise ConfigurationError(
            f"rename cannot be {brief(rename)}", advice="pass the new names by the old ones, as {'_order': 'number'}"
        )
    found: dict[str, str] = {}
    for source, name in given.items():
        if name is None:
            continue
        _require_free(name, source, "rename gives")
        if name.lower() in {known.lower() for known in found}:
            raise ConfigurationError(
                f"rename gives two columns the name {name!r}", advice="give each a name of its own"
            )
        if columns is not None and name not in columns.names:
            raise SchemaMismatchError(
                f"the schema lacks the column {name!r}, which rename gives to {source!r}",
                advice=f"add it, or choose from {', '.join(columns.names)}",
                column=name,
            )
        found[name] = source
    return found


def rows_of_texts(
    frame: DataFrame,
    value: str,
    schema: Schema,
    keys: Sequence[str],
    rename: Rename | None,
    encoding: Encoding,
    make: Callable[[Sequence[str]], RecordFormat],
) -> DataFrame:
    """The rows of records whose values are texts. `make` gives the format of records with these key columns."""
    columns = struct_of(schema)
    names, sources = keys_of(keys, schema, columns), names_in_records(rename, columns)
    form = make([sources.get(name, name) for name in names])
    return ChangeRows(columns, names, encoding, form, sources=sources).of(frame, value)


def keys_of(keys: Sequence[str], schema: Any, columns: StructType) -> tuple[str, ...]:
    """The columns of the key as the schema spells them; those of a Table by default."""
    if isinstance(keys, str):
        raise ConfigurationError(f"keys must be a list of column names, not {keys!r}", advice=f"pass [{keys!r}]")
    if not keys and isinstance(schema, Table):
        keys = properties.primary_key(schema.properties)
    if not keys:
        raise ConfigurationError(
            "keys are missing: the columns that identify a row",
            advice="pass keys=['id'], or a Table with a primary key",
        )
    if schema is None and not columns.fields:
        return tuple(keys)
    known = {field.name.lower(): field.name for field in columns}
    for name in keys:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the schema lacks the key column {name!r}",
                advice=f"choose from {', '.join(known.values())}",
                column=name,
            )
    return tuple(known[name.lower()] for name in keys)


def with_columns_of(
    frame: DataFrame, value: str, columns: StructType, schema: Any, rename: Rename
) -> tuple[DataFrame, StructType]:
    """The frame, computed once, and the columns with those that the schemas of its records have beside them.

    If `schema` is a table that can be widened, columns have the wider types that they have there. No columns at all if
    no record has a schema, and none is a change. Raises ConfigurationError if the frame is a stream, or if there are
    changes, but no columns; SchemaMismatchError if a column of the records would have no place.
    """
    if frame.isStreaming:
        raise ConfigurationError(
            "the records of a stream are not there yet, and so are their schemas",
            advice="pass schema= without new_columns; or call this in a batch function: def apply(batch, number): "
            "sink(capture.debezium(batch, ...), number)",
        )
    # Read for its schemas here, and for its rows by the caller.
    frame = computed_once_in_batch(frame)
    text = F.col("content").cast("string")
    operation = F.coalesce(F.get_json_object(text, "$.op"), F.get_json_object(text, "$.payload.op"))
    content = records_of(frame, value).select(F.get_json_object(text, "$.schema").alias("s"), operation.alias("op"))
    found = dict[str, DataType]()
    texts = sorted(row["s"] for row in content.where("s IS NOT NULL").select("s").distinct().collect())
    for source, kind in _types_of(texts):
        name = rename.get(source, source)
        if name is not None:
            _require_free(name, source, "the records have")
            found[name] = kind if name not in found else _common(found[name], kind)
    if isinstance(schema, Table) and properties.flag(schema.properties, properties.ENABLE_TYPE_WIDENING):
        columns = StructType([_widened(of, found.get(of.name), schema) for of in columns])
    new = [StructField(name, kind) for name, kind in found.items() if name not in columns.names]
    _require_distinct([*columns.names, *(of.name for of in new)])
    if not new and not columns.fields and content.where("op IS NOT NULL").first() is not None:
        raise ConfigurationError(
            "no record of the batch has a schema",
            advice="pass schema=, or let the connector write schemas: value.converter.schemas.enable=true",
        )
    return frame, StructType([*columns, *new])


def _types_of(texts: Sequence[str]) -> Iterator[tuple[str, DataType]]:
    """The columns of the records' schemas and their types. What is no schema has none: its records are dead letters."""
    for text in texts:
        with suppress(*UNREADABLE):
            for name, meaning in declared_columns(text.encode()).items():
                yield name, type_of(meaning or {})


def _require_distinct(names: Sequence[str]) -> None:
    """Raise SchemaMismatchError for two names that differ in case alone, which a table does not tell apart."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise SchemaMismatchError(
                f"there are columns {other!r} and {name!r}, and records are matched by the exact names",
                advice=f"spell the column as the records do, or pass rename={{{name!r}: ...}} with another name",
                column=name,
            )


def type_of(meaning: Mapping[str, Any]) -> DataType:
    """The type of a column that holds each value of what a record's schema describes."""
    name = meaning.get("name")
    if name in TYPE_OF_NAME:
        return TYPE_OF_NAME[name]
    if name == DECIMAL_NAME:
        scale, precision = scale_of(meaning, 0), precision_of(meaning, _MOST_DIGITS)
        return DecimalType(precision, scale) if 0 <= scale <= precision <= _MOST_DIGITS else StringType()
    kind = meaning.get("type")
    if kind == "array":
        return ArrayType(type_of(meaning.get("items") or {}))
    if kind == "map":
        keys = type_of(meaning.get("keys") or {})
        # As the JSON that it is, if its keys are lists or objects.
        is_nested = isinstance(keys, ArrayType | MapType | StructType)
        return StringType() if is_nested else MapType(keys, type_of(meaning.get("values") or {}))
    if kind == "struct":
        fields = [StructField(of["field"], type_of(of)) for of in meaning.get("fields") or ()]
        # A table has no struct without fields, or with two whose names differ in case alone.
        is_sound = 0 < len(fields) == len({of.name.lower() for of in fields})
        return StructType(fields) if is_sound else StringType()
    return _TYPES.get(str(kind), StringType())


def _widened(column: StructField, found: DataType | None, table: Table) -> StructField:
    kind = None if found is None else _of_family(column.dataType, found)
    if kind is None or kind == column.dataType:
        return column
    wider = StructField(column.name, kind, column.nullable, column.metadata)
    types = table.begin_at(table.at()).wider_types(spark_versions.columns_to_arrow(StructType([wider])))
    # The type of a column that a rule reads stays, and values that do not fit it are dead letters.
    return column if None in types.values() else wider


def _common(one: DataType, other: DataType) -> DataType:
    """A type that has the values of both."""
    return _of_family(one, other) or StringType()


def _of_family(one: DataType, other: DataType) -> DataType | None:
    """The type of numbers, or of arrays of them, that has the values of both; None if they are no such types."""
    if one == other:
        return one
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        element = _of_family(one.elementType, other.elementType)
        return None if element is None else ArrayType(element, one.containsNull or other.containsNull)
    for family in (_INTEGERS, _FLOATS):
        if one in family and other in family:
            return max(one, other, key=family.index)
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        if precision <= _MOST_DIGITS:
            return DecimalType(precision, scale)
    return None
