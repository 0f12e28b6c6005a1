"""Making data fit a table's schema: columns by name, safe casts only, missing nullable columns filled with null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import SchemaMismatchError


def to_arrow_table(data: Any, schema: pa.Schema) -> pa.Table:
    """`data` (an Arrow stream of any library, a RecordBatchReader, or a list of dicts) with exactly `schema`.

    Raises SchemaMismatchError naming the column that does not fit.
    """
    return conform(_load(data, schema), schema)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the columns of `schema`, in its order. Raises SchemaMismatchError."""
    if table.schema.equals(schema):
        _check_nulls(table, schema)
        return table
    sources = match_names(table.column_names, schema.names)
    columns = [_column(table, sources.get(field.name), field) for field in schema]
    result = pa.table(columns, schema=schema)
    _check_nulls(result, schema)
    return result


def match_names(names: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Which of `names` fills each of `wanted`: the same name, or else the same but for case (Spark's rule).

    Raises SchemaMismatchError for a name that is not wanted, or that comes twice.
    """
    by_lower = {name.lower(): name for name in wanted}
    exact = set(wanted)
    chosen: dict[str, str] = {}
    for name in names:
        target = name if name in exact else by_lower.get(name.lower())
        if target is None:
            raise SchemaMismatchError(
                f"the data has a column {name!r} that the table does not have",
                advice="drop the column from the data, or add it to the table first",
                column=name,
            )
        if target in chosen:
            raise SchemaMismatchError(
                f"the data has the column {name!r} twice", advice="rename or drop one of them", column=name
            )
        chosen[target] = name
    return chosen


def _load(data: Any, schema: pa.Schema) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _from_rows(data, schema)
    raise SchemaMismatchError(
        f"data of the type {type(data).__name__} cannot be written",
        advice="give an Arrow table, a pandas, Polars or DuckDB frame, a RecordBatchReader or a list of dicts",
        column="",
    )


def _from_rows(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(
                f"row {number} is a {type(row).__name__}, not a dict", advice="give a list of dicts", column=""
            )
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    match_names(names, schema.names)
    fields = {field.name.lower(): field for field in schema}
    columns = [_python_column([row.get(name) for row in rows], fields[name.lower()]) for name in names]
    return pa.Table.from_arrays(columns, names=names) if columns else schema.empty_table()


def _python_column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _misfit(field, type(next(value for value in values if value is not None)).__name__, error) from error


def _column(table: pa.Table, source: str | None, field: pa.Field) -> Any:
    if source is None:
        if not field.nullable:
            raise SchemaMismatchError(
                f"the data lacks the column {field.name!r}, which cannot be null",
                advice="add the column to the data",
                column=field.name,
            )
        return pa.nulls(table.num_rows, field.type)
    return cast(table[source], field)


def cast(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """`values` as the type of `field`, without any loss. Raises SchemaMismatchError."""
    if values.type.equals(field.type):
        return values
    if _loses(values.type, field.type):
        raise _misfit(field, values.type, None)
    try:
        return values.cast(field.type, safe=True)
    except pa.ArrowException as error:
        raise _misfit(field, values.type, error) from error


def _loses(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the cast changes the meaning although every value may pass it."""
    if pt.is_dictionary(source):
        return _loses(source.value_type, target)
    text = pt.is_string(source) or pt.is_large_string(source) or pt.is_string_view(source)
    target_text = pt.is_string(target)
    if text or target_text:
        return text != target_text and not pt.is_null(source)
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        return (source.tz is None) != (target.tz is None)
    if pt.is_boolean(source) or pt.is_boolean(target):
        return not (pt.is_boolean(source) and pt.is_boolean(target)) and not pt.is_null(source)
    number = pt.is_integer(source) or pt.is_floating(source) or pt.is_decimal(source)
    return bool(number and (pt.is_temporal(target) or (pt.is_floating(source) and pt.is_integer(target))))


def _misfit(field: pa.Field, found: object, error: Exception | None) -> SchemaMismatchError:
    detail = f": {error}" if error else ""
    return SchemaMismatchError(
        f"column {field.name!r} is {field.type} in the table but {found} in the data{detail}",
        advice="cast it in the data where nothing gets lost",
        column=field.name,
    )


def _check_nulls(table: pa.Table, schema: pa.Schema) -> None:
    for field in schema:
        if not field.nullable and table[field.name].null_count:
            raise SchemaMismatchError(
                f"column {field.name!r} cannot be null, but {table[field.name].null_count} rows of the data have none",
                advice="fill or drop those rows",
                column=field.name,
            )
