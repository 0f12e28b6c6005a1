"""Conform data to a table's schema: columns matched by name, safe casts only, missing nullable columns as null."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelog.log.data import python_rows
from tidelog.log.data.cast import cast, match_names, missing
from tidelog.log.errors import SchemaMismatchError

# The column that pandas writes for an index that is more than the row number.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def to_arrow_table(data: Any, schema: pa.Schema) -> pa.Table:
    """Read all of `data` into an Arrow table with exactly `schema`.

    `data` is anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a RecordBatchReader, or a list of dicts.
    Raises SchemaMismatchError naming the column that does not fit.
    """
    held = hold(data)
    return (
        conform(without_index(held, schema), schema)
        if isinstance(held, pa.Table)
        else python_rows.to_table(held, schema)
    )


def hold(data: Any) -> pa.Table | Sequence[Any]:
    """Load all of `data` into memory, so that it can be read twice: an Arrow table, or the list of dicts as given."""
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return data
    raise SchemaMismatchError(
        f"cannot write data of type {type(data).__name__}",
        advice="pass an Arrow table, a pandas, Polars or DuckDB frame, a RecordBatchReader or a list of dicts",
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the columns of `schema`, in the schema's order. Raises SchemaMismatchError."""
    sources = match_names(table.column_names, schema.names)
    columns = [_column(table, sources.get(field.name), field) for field in schema]
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, source: str | None, field: pa.Field) -> pa.ChunkedArray:
    if source is None:
        return pa.chunked_array([missing(table.num_rows, field, field.name)])
    chunks = [cast(chunk, field, field.name) for chunk in table[source].chunks]
    return pa.chunked_array(chunks, field.type)


def without_index(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` without the columns that pandas adds for its index."""
    extra = [name for name in table.column_names if _PANDAS_INDEX.fullmatch(name) and name not in schema.names]
    return table.drop_columns(extra) if extra else table
