"""Conform data to a table's schema: columns matched by name, safe casts only, missing nullable columns as null."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data import blocks, python_rows
from tidelog.log.data.cast import cast, match_names, missing
from tidelog.log.errors import SchemaMismatchError

# The column that pandas writes for an index that is more than the row number.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def to_arrow_table(data: Any, schema: pa.Schema) -> pa.Table:
    """Read all of `data` into an Arrow table with exactly `schema`.

    `data` is anything with an Arrow stream (pyarrow, pandas, Polars, DuckDB), a LazyFrame of Polars (it is collected),
    a RecordBatchReader, or a list of dicts.
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
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a LazyFrame of Polars, or one like it
        data = data.collect()
    if hasattr(data, "__arrow_c_stream__"):
        return _reader(data).read_all()
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return data
    raise SchemaMismatchError(
        f"cannot write data of type {type(data).__name__}",
        advice="pass an Arrow table, a pandas, Polars or DuckDB frame, a RecordBatchReader or a list of dicts",
    )


def _reader(data: Any) -> pa.RecordBatchReader:
    """The stream of a frame. pandas converts its columns here; Polars and others have Arrow's types already."""
    _require_end(data)
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowNotImplementedError, ValueError, TypeError, OverflowError) as error:
        column = _unreadable_column(data)
        what = f"a {type(data).__name__}" if column is None else f"column {column!r} of the data"
        reason = error if isinstance(error, UnicodeError) or not error.args else error.args[0]
        advice = "give it values of one type, valid text and a name of its own"
        if column is None:
            advice = "pass a table or a frame with columns"
        raise SchemaMismatchError(f"{what} cannot be read: {reason}", advice=advice, column=column or "") from error


def _require_end(frame: Any) -> None:
    """Raise SchemaMismatchError if a column of Python objects in a pandas frame is nested without end."""
    kinds = getattr(frame, "dtypes", None)
    for place, kind in enumerate(getattr(kinds, "array", ())):  # only pandas has that
        if kind == object:  # noqa: E721 - a dtype of NumPy
            python_rows.require_end(frame.iloc[:, place], str(frame.columns[place]))


def _unreadable_column(frame: Any) -> str | None:
    """The first column of a pandas frame that is there twice, or that Arrow has no type for; None if there is none."""
    for name in getattr(frame, "columns", ()):
        try:
            pa.RecordBatchReader.from_stream(frame[[name]])
        except Exception:  # noqa: BLE001 - this only looks for the cause of an error
            return str(name)
    return None


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the columns of `schema`, in the schema's order. Raises SchemaMismatchError."""
    sources = match_names(table.column_names, schema.names)
    columns = [_column(table, sources.get(field.name), field) for field in schema]
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, source: str | None, field: pa.Field) -> pa.ChunkedArray:
    if source is None:
        return pa.chunked_array([missing(table.num_rows, field, field.name)])
    chunks = [cast(piece, field, field.name) for chunk in table[source].chunks for piece in _pieces(chunk, field.type)]
    return pa.chunked_array(chunks, field.type)


def _pieces(values: pa.Array, kind: pa.DataType) -> Iterable[pa.Array]:
    """`values` in parts that fit into one array of the type. Dictionaries and Arrow's large types can hold more."""
    if values.type.equals(kind) or len(values) <= 1:
        return [values]
    if pt.is_dictionary(values.type):
        rows = max(1, blocks.BLOCK_BYTES // max(1, _longest(values.dictionary)))
        return [values.slice(start, rows) for start in range(0, len(values), rows)]
    # All slices of a view share its bytes, so it would be cut into single rows; and older pyarrow cannot count them.
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(values.type)
    values = values if plain is None else values.cast(plain)
    if values.nbytes <= blocks.BLOCK_BYTES:
        return [values]
    table = pa.table([values], names=["values"])
    if table.slice(0, len(values) // 2).nbytes == table.nbytes:  # a view inside a list or struct
        return [values]
    # A copy of each, one at a time: in a slice, the offsets would still be too large for the type.
    return (pa.concat_arrays([block["values"].chunk(0)]) for block in blocks.blocks(table))


def _longest(texts: pa.Array) -> int:
    """The bytes of the longest text; 0 if these are no texts."""
    if pt.is_string_view(texts.type) or pt.is_binary_view(texts.type):
        texts = texts.cast(pa.large_binary())
    kinds = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
    return int(pc.max(pc.binary_length(texts)).as_py() or 0) if any(kind(texts.type) for kind in kinds) else 0


def without_index(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` without the columns that pandas adds for its index."""
    extra = [name for name in table.column_names if _PANDAS_INDEX.fullmatch(name) and name not in schema.names]
    return table.drop_columns(extra) if extra else table
