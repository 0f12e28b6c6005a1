"""Conform data to a table's schema: columns matched by name, safe casts only, missing nullable columns as null.

A cast is safe if every value keeps its digits and its meaning. An integer becomes a wider number if each value fits
exactly. A string never becomes a number, a timestamp without a zone never one with a zone, and a struct's field that
the table lacks is never dropped. Nested types follow the same rules, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data import blocks, nested
from tidelog.log.data.inferred_columns import alike
from tidelog.log.errors import NullValueError, SchemaMismatchError
from tidelog.log.presentable import did_you_mean

# The column that pandas writes for an index that is more than the row number.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Of the largest uint64.
_INTEGER_DIGITS = 20


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
        f"data cannot be of type {type(data).__name__}",
        advice="pass an Arrow table, a pandas, Polars or DuckDB frame, a RecordBatchReader or a list of dicts",
    )


def _reader(data: Any) -> pa.RecordBatchReader:
    """The stream of a frame. pandas converts its columns here; Polars and others have Arrow's types already."""
    data = _with_types(data)
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


def _with_types(frame: Any) -> Any:
    """The frame; each column of Python objects in one of pandas with values of one type, or SchemaMismatchError."""
    kinds = getattr(getattr(frame, "dtypes", None), "array", None)  # only pandas has that
    if kinds is None:
        return frame
    for place, name in enumerate(frame.index.names):
        level = frame.index.get_level_values(place)
        if level.dtype == object:
            alike(level.tolist(), str(name), nan_is_null=True)
    for place, kind in enumerate(kinds):
        if kind == object:  # noqa: E721 - a dtype of NumPy
            values = frame.iloc[:, place].tolist()
            if (own := alike(values, str(frame.columns[place]), nan_is_null=True)) is not values:
                frame = frame.copy(deep=False)
                frame.isetitem(place, np.fromiter(own, dtype=object, count=len(own)))
    return frame


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
    try:
        if values.nbytes <= blocks.BLOCK_BYTES:
            return [values]
    except pa.ArrowTypeError:  # older pyarrow cannot count views inside a list or struct
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


# --- one column, cast -------------------------------------------------------------------------------------------------


def cast(values: pa.Array, field: pa.Field, where: str, hidden: int = 0) -> pa.Array:
    """Cast `values` to the type of `field` and check for nulls.

    `where` is the column's path, for the SchemaMismatchError if they do not fit. So many of the nulls are `hidden`:
    they stand for no value, as below a null struct.
    """
    if pt.is_dictionary(values.type):
        values = _decoded(values, field, where)
    if not field.nullable and values.null_count > hidden:
        raise NullValueError(
            f"column {where!r} cannot be null, but {values.null_count - hidden} rows of the data have no value",
            advice="fill or drop those rows",
            column=where,
        )
    if pt.is_null(values.type):
        return nested.nulls(len(values), field.type)
    if pt.is_nested(field.type) or pt.is_nested(values.type):
        return _cast_nested(values, field, where)
    if values.type.equals(field.type):
        return values
    if not _same_meaning(values.type, field.type):
        raise misfit(where, field, values.type)
    try:
        if pt.is_integer(values.type) and pt.is_decimal(field.type):
            # Arrow asks for the digits of all integers, whatever the values are.
            values = values.cast(pa.decimal128(_INTEGER_DIGITS, 0))
        result = values.cast(field.type, safe=True)
    except pa.ArrowException as error:
        raise misfit(where, field, values.type, error) from error
    # Even a safe cast in Arrow rounds a float64 to a float32.
    if pt.is_floating(values.type) and not _same_numbers(values, result):
        raise misfit(where, field, values.type)
    return result


def _decoded(values: pa.DictionaryArray, field: pa.Field, where: str) -> pa.Array:
    """The values behind a dictionary. Arrow's `take` does not support string views, which Polars' categoricals use."""
    known = values.dictionary
    if pt.is_nested(known.type):
        is_unused = np.ones(len(known), dtype=bool)
        is_unused[values.indices.drop_null().to_numpy()] = False
        known = cast(nested.nulls_at(known, is_unused), _loose(field), where)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(known.type, known.type)
    return known.cast(plain).take(values.indices)


def misfit(where: str, field: pa.Field, found: object, error: Exception | None = None) -> SchemaMismatchError:
    """The error for data of type `found` that does not fit the table's `field`."""
    detail = f": {error}" if error else ""
    advice = "cast it in the data if that loses nothing"
    if isinstance(found, pa.DataType) and pt.is_timestamp(found) and pt.is_timestamp(field.type):
        if found.tz is None:
            advice = "give the times of the data a zone, as in moment.replace(tzinfo=UTC)"
        elif field.type.tz is None:
            advice = "take the zone from the times of the data, as in moment.replace(tzinfo=None)"
    return SchemaMismatchError(
        f"column {where!r} is {field.type} in the table but {found} in the data{detail}", advice=advice, column=where
    )


def match_names(names: list[str], wanted: list[str], where: str = "") -> dict[str, str]:
    """Map the names in `wanted` to the `names` that fill them: the same name, or one that differs in case only.

    That is Spark's rule. Raises SchemaMismatchError for a name that is not wanted or that occurs twice.
    """
    by_lower = {name.lower(): name for name in wanted}
    exact = set(wanted)
    chosen: dict[str, str] = {}
    for name in names:
        target = name if name in exact else by_lower.get(name.lower())
        full = f"{where}.{name}" if where else name
        if target is None:
            raise SchemaMismatchError(
                f"the data has a column {full!r} that the table does not have",
                advice=f"{_meant(name, names, wanted)}drop the column from the data, or add it to the table first",
                column=full,
            )
        if target in chosen:
            raise SchemaMismatchError(
                f"the data has the column {full!r} twice",
                advice="rename or drop one of them; names that differ in case only count as the same",
                column=full,
            )
        chosen[target] = name
    return chosen


def _meant(name: str, names: list[str], wanted: list[str]) -> str:
    """The question whether `name` is one of the wanted columns that the data lacks."""
    given = {other.lower() for other in names}
    return did_you_mean(name, (other for other in wanted if other.lower() not in given))


def missing(count: int, field: pa.Field, where: str) -> pa.Array:
    """The nulls for a field that the data lacks. Raises SchemaMismatchError if the field cannot be null."""
    if not field.nullable:
        raise SchemaMismatchError(
            f"the data lacks the column {where!r}, which cannot be null",
            advice="add the column to the data",
            column=where,
        )
    return nested.nulls(count, field.type)


def _cast_nested(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    if pt.is_struct(kind) and pt.is_struct(values.type):
        return _cast_struct(values, field, where)
    if pt.is_map(kind) and pt.is_map(values.type):
        parts = [(kind.key_field, "key"), (kind.item_field, "value")]
    elif pt.is_list(kind) and nested.is_any_list(values.type):
        parts = [(kind.value_field, "element")]
    else:
        raise misfit(where, field, values.type)
    converts = [_converter(own, f"{where}.{name}") for own, name in parts]
    try:
        return nested.convert_lists(values, kind, converts)
    except pa.ArrowException as error:
        raise misfit(where, field, values.type, error) from error


def _converter(field: pa.Field, where: str) -> nested.Convert:
    return lambda values, hidden: cast(values, field, where, hidden)


def _cast_struct(values: pa.StructArray, field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    names = [child.name for child in values.type]
    sources = match_names(names, [child.name for child in kind], where)
    parts = values.flatten()  # null where the struct is
    children = []
    for child in kind:
        full = f"{where}.{child.name}"
        if child.name in sources:
            part = parts[names.index(sources[child.name])]
            children.append(cast(part, child, full, values.null_count))
        else:
            is_empty = values.null_count == len(values)
            children.append(missing(len(values), _loose(child) if is_empty else child, full))
    return nested.build_struct(children, kind, np.asarray(values.is_null()))


def _loose(field: pa.Field) -> pa.Field:
    return field.with_nullable(True)  # noqa: FBT003 - pyarrow's signature


def _same_meaning(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast between the types can keep the meaning; the cast itself checks each value."""
    if pt.is_integer(source):
        return bool(pt.is_integer(target) or pt.is_floating(target) or pt.is_decimal(target))
    if pt.is_timestamp(source):
        return bool(pt.is_timestamp(target) and (source.tz is None) == (target.tz is None))
    kinds = (_is_text, _is_binary, pt.is_boolean, pt.is_floating, pt.is_decimal, pt.is_date)
    return any(kind(source) and kind(target) for kind in kinds)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    fixed = pt.is_fixed_size_binary(kind)
    return bool(fixed or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind))


def _same_numbers(before: pa.Array, after: pa.Array) -> bool:
    wide = before.cast(pa.float64())
    same = pc.equal(wide, after.cast(pa.float64()))
    return bool(pc.all(pc.or_(same, pc.is_nan(wide))).as_py() is not False)
