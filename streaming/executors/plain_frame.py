"""A DataFrame as rows of a table, where Spark itself can make them so without losing anything.

What a table takes is decided in one place, `tidelog.log.data.conform`, on Arrow data. Spark's own writer is faster than
Python in its tasks; so where a frame's types fit the table's by their kind alone, whatever the values, Spark does it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from tidelog.log.internals import DataWriter, conform, is_variant, match_names, properties

# How many decimal digits a whole number of so many bits can have, and how many bits a floating number has for them.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_EXACT_IN_FLOAT = {32: 24, 64: 53}


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The frame's columns, in Arrow's types."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def quoted(name: str) -> str:
    """A column's name as Spark's functions take it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def require_fits(frame: DataFrame, schema: pa.Schema) -> None:
    """Raise SchemaMismatchError where the frame's names and types alone show that the table does not take it."""
    conform(arrow_schema(frame).empty_table(), schema)


def plain_rows(frame: DataFrame, writer: DataWriter) -> DataFrame | None:
    """The frame with exactly the table's columns; None where that takes a look at values, or at more than Spark knows.

    Top-level columns that must not be null are not looked at. Raises SchemaMismatchError.
    """
    require_fits(frame, writer.schema)
    source, table = arrow_schema(frame), writer.schema
    maps_columns = writer.metadata.configuration.get(properties.COLUMN_MAPPING_MODE, "none") != "none"
    if maps_columns or any(is_variant(field) or _has_void(field.type) for field in table):
        return None
    loose = [field.with_nullable(True) for field in table]  # noqa: FBT003 - pyarrow's signature
    if not _fields_fit(list(source), loose):
        return None
    if [(field.name, field.type) for field in source] == [(field.name, field.type) for field in table]:
        return frame
    # Spark compares names as the session says; with the table's own names there is nothing to compare.
    names = match_names(source.names, table.names)
    renamed = frame.select(*(frame[quoted(found)].alias(name) for name, found in names.items()))
    return renamed.to(from_arrow_schema(pa.schema(loose), prefer_timestamp_ntz=True))


def _has_void(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)] if pt.is_nested(kind) else []
    return pt.is_null(kind) or any(map(_has_void, inner))


def _fields_fit(source: list[pa.Field], target: list[pa.Field], *, same_case: bool = False) -> bool:
    names = match_names([field.name for field in source], [field.name for field in target])
    if same_case and any(name != found for name, found in names.items()):
        return False
    by_name = {field.name: field for field in source}
    return all(_fits(by_name[names[field.name]], field) if field.name in names else field.nullable for field in target)


def _fits(source: pa.Field, target: pa.Field) -> bool:
    """Whether every value of the one field is one of the other."""
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
    return found == wanted or _widens(found, wanted)


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
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
