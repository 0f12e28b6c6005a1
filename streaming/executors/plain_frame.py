"""Give a DataFrame exactly the table's columns, if Spark itself can do so without losing anything.

One function decides what a table accepts: `tidelog.log.data.conform`, on Arrow data. Spark's own writer is faster than
Python in its tasks, so Spark converts the frame if its types alone show that every value fits.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from tidelog.log.data.conform import conform, match_names
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import properties
from tidelog.log.format.schema import fields_within, has_variant
from tidelog.streaming import spark_versions

# By bits: the most decimal digits of an integer, and the largest integer, in bits, that a float holds exactly.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_EXACT_IN_FLOAT = {32: 24, 64: 53}
# The collation of texts that has none.
_PLAIN = "UTF8_BINARY"

# How `to_json` makes a text of a row that no other row has.
EXACT_TEXT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The frame's columns as Arrow types."""
    return spark_versions.columns_to_arrow(frame.schema)


def typed_voids(frame: DataFrame, table: pa.Schema) -> DataFrame:
    """The frame with the table's types for its columns, fields and elements of the type void.

    Spark has no better type for NULL, `array()` and `map()`. What the table lacks stays void.
    """
    return _to(frame, list(table), None) if has_voids(frame.schema) else frame


def without_voids(frame: DataFrame, table: pa.Schema, keep: Collection[str]) -> DataFrame:
    """The same, without the void columns, and void fields of structs, that the table lacks: all of them are null.

    The columns `keep`, in lower case, stay.
    """
    return _to(frame, list(table), keep)


def has_voids(kind: DataType) -> bool:
    """Whether the type is void, or has void in it."""
    if isinstance(kind, StructType):
        return any(has_voids(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return has_voids(kind.elementType)
    if isinstance(kind, MapType):
        return has_voids(kind.keyType) or has_voids(kind.valueType)
    return isinstance(kind, NullType)


def _to(frame: DataFrame, known: list[pa.Field], keep: Collection[str] | None) -> DataFrame:
    schema = StructType(_typed_fields(frame.schema, known, keep))
    return frame if schema == frame.schema else frame.to(schema)


def _typed_fields(found: StructType, known: list[pa.Field], keep: Collection[str] | None) -> list[StructField]:
    """Fields with the types of those `known`. Void ones that are unknown are left out unless `keep` is None."""
    own = {field.name.lower(): field for field in known}
    fields = []
    for field in found:
        name = field.name.lower()
        if keep is None or name in keep or name in own or not isinstance(field.dataType, NullType):
            kind = _typed(field.dataType, own.get(name), None if keep is None else ())
            fields.append(StructField(field.name, kind, field.nullable, field.metadata))
    return fields


def _typed(found: DataType, own: pa.Field | None, keep: Collection[str] | None) -> DataType:
    """The type with those of the table's field for what is void in it."""
    if isinstance(found, NullType):
        if own is None or has_variant(own):
            return found
        return spark_versions.columns_from_arrow(pa.schema([own.remove_metadata()]))[0].dataType
    if isinstance(found, StructType):
        inner = [] if own is None or not pt.is_struct(own.type) else list(own.type)
        # A struct without fields would say nothing of what is missing.
        return StructType(_typed_fields(found, inner, keep) or _typed_fields(found, inner, None))
    if isinstance(found, ArrayType):
        element = own.type.value_field if own is not None and pt.is_list(own.type) else None
        return ArrayType(_typed(found.elementType, element, keep), found.containsNull)
    if isinstance(found, MapType):
        key = value = None
        if own is not None and pt.is_map(own.type):
            key, value = own.type.key_field, own.type.item_field
        return MapType(_typed(found.keyType, key, keep), _typed(found.valueType, value, keep), found.valueContainsNull)
    return found


def quoted(name: str) -> str:
    """A column's name, quoted for Spark's functions."""
    return "`" + name.replace("`", "``") + "`"


def plain_texts(frame: DataFrame) -> DataFrame:
    """The frame with texts that Spark compares byte by byte, as tables do, and not by a collation of the frame."""
    for field in frame.schema:
        if getattr(field.dataType, "collation", _PLAIN) != _PLAIN:
            frame = frame.withColumn(field.name, F.collate(F.col(quoted(field.name)), _PLAIN))
    return frame


def require_fits(frame: DataFrame, schema: pa.Schema) -> None:
    """Raise SchemaMismatchError if the frame's names or types already show that it does not fit the table."""
    conform(arrow_schema(frame).empty_table(), schema)


def plain_rows(frame: DataFrame, writer: DataWriter) -> DataFrame | None:
    """The frame with exactly the table's columns, or None if Spark cannot convert it without looking at values.

    Whether top-level columns are nullable is not checked. Raises SchemaMismatchError.
    """
    require_fits(frame, writer.schema)
    source, table = arrow_schema(frame), writer.schema
    maps_columns = writer.metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none"
    if maps_columns or any(has_variant(field) or _has_void(field) for field in table):
        return None
    loose = [field.with_nullable(True) for field in table]  # noqa: FBT003 - pyarrow's signature
    if not _fields_fit(list(source), loose):
        return None
    if [(field.name, field.type) for field in source] == [(field.name, field.type) for field in table]:
        return frame
    # Renamed first: Spark matches names with or without case, as the session is set.
    names = match_names(source.names, table.names)
    renamed = frame.select(*(frame[quoted(found)].alias(name) for name, found in names.items()))
    return renamed.to(spark_versions.columns_from_arrow(pa.schema(loose)))


def prepared(frame: DataFrame, writer: DataWriter) -> DataFrame:
    """The frame with partition values as a reader of the table will see them, like `DataWriter.prepared`.

    An empty string becomes null, and -0.0 becomes 0.0. The frame can lack columns, and have others.
    """
    partitions = {name.lower() for name in writer.metadata.partition_columns}
    if not partitions:
        return frame
    columns = []
    for field in arrow_schema(frame):
        column, kind = frame[quoted(field.name)], field.type
        if field.name.lower() in partitions:
            if pt.is_string(kind) or pt.is_binary(kind):
                column = F.when(F.octet_length(column) > 0, column).alias(field.name)
            elif pt.is_floating(kind):
                column = (column + F.lit(0).cast(from_arrow_type(kind))).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _has_void(field: pa.Field) -> bool:
    return any(pt.is_null(inner.type) for inner in fields_within(field))


def _fields_fit(source: list[pa.Field], target: list[pa.Field], *, same_case: bool = False) -> bool:
    names = match_names([field.name for field in source], [field.name for field in target])
    if same_case and any(name != found for name, found in names.items()):
        return False
    by_name = {field.name: field for field in source}
    return all(_fits(by_name[names[field.name]], field) if field.name in names else field.nullable for field in target)


def _fits(source: pa.Field, target: pa.Field) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if source.nullable and not target.nullable:
        return False
    found, wanted = source.type, target.type
    if pt.is_null(found):
        return True
    if pt.is_struct(wanted):
        return pt.is_struct(found) and _fields_fit(list(found), list(wanted), same_case=True)
    if pt.is_list(wanted):
        return pt.is_list(found) and _fits(found.value_field, wanted.value_field)
    if pt.is_map(wanted):
        return pt.is_map(found) and (
            _fits(found.key_field, wanted.key_field) and _fits(found.item_field, wanted.item_field)
        )
    return found == wanted or widens(found, wanted)


def widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every number of one type is one of the other."""
    fits = False
    if pt.is_integer(found) and pt.is_integer(wanted):
        fits = found.bit_width <= wanted.bit_width
    elif pt.is_integer(found) and pt.is_floating(wanted):
        fits = found.bit_width <= _EXACT_IN_FLOAT[wanted.bit_width]
    elif pt.is_integer(found) and pt.is_decimal(wanted):
        fits = wanted.precision - wanted.scale >= _DIGITS[found.bit_width]
    elif pt.is_floating(found) and pt.is_floating(wanted):
        fits = found.bit_width <= wanted.bit_width
    elif pt.is_decimal(found) and pt.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        fits = whole and wanted.scale >= found.scale
    return fits
