"""The schema of the rows: as a caller gives it, or as the envelopes of a batch say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from tidelog.streaming.capture.column_names import Names, PlaceError, Rename, names_in_records, require_not_taken
from tidelog.streaming.capture.declared import MOST_FIELDS, declared_columns
from tidelog.streaming.capture.values import (
    DATE_NAMES,
    DECIMAL_NAME,
    LOCAL_NAMES,
    VARIABLE_NAME,
    ZONED_NAME,
    Encoding,
    precision_of,
    scale_of,
)
from tidelog.streaming.executors.computed_once import computed_once_in_batch
from tidelog.streaming.sink.control import ORDER, TRANSACTION

_MOST_DIGITS = 38
# A table has some in a batch, of before and after each change. Records with others may be dead letters.
_MOST_SCHEMAS = 1_000
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
    is_of_table = not isinstance(schema, str)
    kept = [field for field in found if not (is_of_table and _is_of_sink(field))]
    for field in kept:
        require_not_taken(field.name, field.name, "the schema has")
    return StructType(kept)


def _is_of_sink(field: StructField) -> bool:
    """Whether a table has the column because the sink gave it to it."""
    return field.name in (ORDER, TRANSACTION) and isinstance(field.dataType, StringType)


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
    return ChangeRows(columns, names, encoding, form, rename=dict(rename or {})).of(frame, value)


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

    If `schema` is a table that can be widened, columns have the wider types that they have there. A record's schema
    that has a column without a place in the rows gives them none at all, and the record becomes a dead letter.

    Raises ConfigurationError if the frame is a stream; SchemaMismatchError if `rename` leaves no schema a place.
    """
    if frame.isStreaming:
        raise ConfigurationError(
            "the records of a stream are not there yet, and so are their schemas",
            advice="pass schema= without new_columns; or call this in a batch function: def apply(batch, number): "
            "sink(capture.debezium(batch, ...), number)",
        )
    # Read for its schemas here, and for its rows by the caller.
    frame = computed_once_in_batch(frame)
    found = types_of(_schemas_in(frame, value), Names(rename, columns.names))
    if isinstance(schema, Table) and properties.flag(schema.properties, properties.ENABLE_TYPE_WIDENING):
        columns = StructType([_widened(of, found.get(of.name), schema) for of in columns])
    new = [StructField(name, kind) for name, kind in found.items() if name not in columns.names]
    return frame, StructType([*columns, *new])


def _schemas_in(frame: DataFrame, value: str) -> list[str]:
    """The different schemas of a frame's records: first those that most records have, then those that came first."""
    text = F.get_json_object(F.col("content").cast("string"), "$.schema")
    known = records_of(frame, value).select(text.alias("text"), "offset").where("text IS NOT NULL")
    counted = known.groupBy("text").agg(F.count("*").alias("count"), F.min("offset").alias("first"))
    rows = counted.orderBy(F.desc("count"), F.asc_nulls_last("first"), "text").limit(_MOST_SCHEMAS).collect()
    return [row["text"] for row in rows]


def types_of(texts: Sequence[str], names: Names) -> dict[str, DataType]:
    """The columns of records with these schemas. What is no schema, or has a column without a place, gives none.

    Of two types of a column that no type holds, the first one counts: values of the other one may fit it.
    """
    found: dict[str, DataType] = {}
    refused: list[PlaceError] = []
    for text in texts:
        try:
            declared = declared_columns(text.encode())
            kinds = {name: type_of(declared[source] or {}) for source, name in names.placed(declared).items()}
        except PlaceError as error:
            refused.append(error)
            continue
        except Exception:  # noqa: BLE001, S112 - whatever a record's schema raises, it alone is a dead letter
            continue
        if len(found.keys() | kinds.keys()) > MOST_FIELDS:
            continue
        for name, kind in kinds.items():
            found[name] = (_of_family(found[name], kind) or found[name]) if name in found else kind
        names = Names(names.rename, {**dict.fromkeys(names.columns), **found})
    if refused and not found and all(error.is_of_rename for error in refused):
        raise SchemaMismatchError(
            str(refused[0]), advice="no record of the batch has other columns: correct rename", column=refused[0].column
        )
    return found


def type_of(meaning: Mapping[str, Any]) -> DataType:
    """The type of a column that holds each value of what a record's schema describes."""
    name = meaning.get("name")
    if name in TYPE_OF_NAME:
        return TYPE_OF_NAME[name]
    if name == DECIMAL_NAME:
        scale, precision = scale_of(meaning, 0), precision_of(meaning, _MOST_DIGITS)
        is_one = precision > 0 and 0 <= scale <= precision <= _MOST_DIGITS
        return DecimalType(precision, scale) if is_one else StringType()
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
