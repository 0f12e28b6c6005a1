"""Conform data to a table's schema: columns matched by name, safe casts only, missing nullable columns as null.

A cast is safe if every value keeps its digits and its meaning. An integer becomes a wider number if each value fits
exactly. A string never becomes a number, a timestamp without a zone never one with a zone, and a struct's field that
the table lacks is never dropped. Nested types follow the same rules, field by field.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data import blocks
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import MAX_LEVELS, table_schema
from tidelog.log.presentable import did_you_mean

# The column that pandas writes for an index that is more than the row number.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


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
            require_end(frame.iloc[:, place], str(frame.columns[place]))


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


# --- one column, cast -------------------------------------------------------------------------------------------------


def cast(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    """Cast `values` to the type of `field` and check for nulls.

    `where` is the column's path, for the SchemaMismatchError if they do not fit.
    """
    if pt.is_dictionary(values.type):
        values = _decoded(values)
    if not field.nullable and values.null_count:
        raise SchemaMismatchError(
            f"column {where!r} cannot be null, but {values.null_count} rows of the data have no value",
            advice="fill or drop those rows",
            column=where,
        )
    if pt.is_null(values.type):
        return pa.nulls(len(values), field.type)
    if pt.is_nested(field.type) or pt.is_nested(values.type):
        return _cast_nested(values, field, where)
    if values.type.equals(field.type):
        return values
    if not _same_meaning(values.type, field.type):
        raise misfit(where, field, values.type)
    try:
        result = values.cast(field.type, safe=True)
    except pa.ArrowException as error:
        raise misfit(where, field, values.type, error) from error
    # Even a safe cast in Arrow rounds a float64 to a float32.
    if pt.is_floating(values.type) and not _same_numbers(values, result):
        raise misfit(where, field, values.type)
    return result


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    """The values behind a dictionary. Arrow's `take` does not support string views, which Polars' categoricals use."""
    known = values.dictionary
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
    return pa.nulls(count, field.type)


def offsets_with_nulls(offsets: pa.Array, valid: pa.Array) -> pa.Array:
    """A list's offsets, null where the list is null: Arrow's `from_arrays` takes validity in this form."""
    present = pa.concat_arrays([valid, pa.array([True])])
    return pc.if_else(present, offsets.cast(pa.int32()), pa.scalar(None, pa.int32()))


def _cast_nested(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    if values.offset:
        values = pa.concat_arrays([values])
    if pt.is_struct(kind) and pt.is_struct(values.type):
        return _cast_struct(values, field, where)
    if pt.is_map(kind) and pt.is_map(values.type):
        keys = cast(_used(values, values.keys), kind.key_field, f"{where}.key")
        items = cast(_used(values, values.items), kind.item_field, f"{where}.value")
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind)
    if pt.is_list(kind) and (pt.is_list(values.type) or pt.is_large_list(values.type)):
        elements = cast(_used(values, values.values), kind.value_field, f"{where}.element")
        return pa.ListArray.from_arrays(_offsets(values), elements, type=kind)
    if pt.is_list(kind) and pt.is_fixed_size_list(values.type):
        return _cast_nested(values.cast(pa.list_(values.type.value_field)), field, where)
    raise misfit(where, field, values.type)


def _cast_struct(values: pa.StructArray, field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    names = [child.name for child in values.type]
    sources = match_names(names, [child.name for child in kind], where)
    # Values below a null parent mean nothing, and libraries leave anything there: ignore them.
    present = values.filter(values.is_valid()) if values.null_count else values
    children = []
    for child in kind:
        full = f"{where}.{child.name}"
        if child.name in sources:
            children.append(cast(present.field(names.index(sources[child.name])), child, full))
        else:
            children.append(missing(len(present), child if len(present) else _loose(child), full))
    return spread_struct(children, kind, values.is_valid())


def spread_struct(children: list[pa.Array], kind: pa.StructType, valid: pa.Array) -> pa.Array:
    """A struct array that is null where `valid` is false; `children` have the fields of the other rows only.

    Below a null parent a child repeats another row's value. No reader sees it, and a child that cannot be null has
    none.
    """
    count = pc.sum(valid.cast(pa.int64())).as_py() or 0
    if count == len(valid):
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if count == 0:
        return pa.array([None] * len(valid), kind)
    places = pc.max_element_wise(pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), 0)
    spread = [child.take(places) for child in children]
    return pa.StructArray.from_arrays(spread, fields=list(kind), mask=pc.invert(valid))


def _used(values: pa.Array, inner: pa.Array) -> pa.Array:
    """The elements that the lists refer to; the array may have unused ones before and after them."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return inner.slice(first, last - first)


def _offsets(values: pa.Array) -> pa.Array:
    offsets = pc.subtract(values.offsets, values.offsets[0]).cast(pa.int32())
    return offsets_with_nulls(offsets, values.is_valid()) if values.null_count else offsets


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


# Digits of a second below a microsecond, and the hour that follows a date, in ISO-8601.
_FINE_SECONDS = re.compile(r"[.,]\d{7}")
_HAS_TIME = re.compile(r"[T ]\d\d")
# How many characters of a wrong text an error shows.
_SHOWN = 60
# What Arrow makes lists and structs of.
# --- Python rows (dicts) ----------------------------------------------------------------------------------------------
#
# Arrow's own conversion to a given type is lenient (1.5 becomes the integer 1). Here a value first gets the type that
# Arrow infers and is then cast like any column, so that the same rules hold for dicts and for frames. Dicts alone may
# have dates and times as ISO-8601 text, as JSON has them.

_CONTAINERS = (list, tuple, dict, set, ValuesView, np.ndarray)


def to_table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`. Raises SchemaMismatchError naming what does not fit."""
    require_dicts(rows)
    return pa.table(_columns(rows, list(schema), ""), schema=schema)


def require_dicts(rows: Sequence[Any]) -> None:
    """Raise SchemaMismatchError unless each row is a dict."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(
                f"row {number} must be a dict, not {type(row).__name__}", advice="pass a list of dicts"
            )


def by_ownership(held: pa.Table | Sequence[Any], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Split the data's columns into the table's own, in its types, and extra ones, in types that Delta has."""
    if isinstance(held, pa.Table):
        held = without_index(held, schema)
        names = held.column_names
    else:
        names = list(dict.fromkeys(str(name) for row in held for name in row))
    wanted = {name.lower(): name for name in schema.names}
    foreign = [name for name in names if name.lower() not in wanted]
    present = {wanted[name.lower()] for name in names if name not in foreign}
    own = pa.schema([field for field in schema if field.name in present])
    if isinstance(held, pa.Table):
        extra = held.select(foreign)
        known = conform(held.drop_columns(foreign), own)
    else:
        extra = pa.table({name: plain_column([row.get(name) for row in held], name) for name in foreign})
        known = to_table([{key: row[key] for key in row if str(key) not in foreign} for row in held], own)
    return known, conform(extra, table_schema(extra.schema))


def plain_column(values: list[Any], where: str) -> pa.Array:
    """Values of a column that the table lacks, in the type that Arrow infers.

    Raises SchemaMismatchError if they have no common type.
    """
    require_end(values, where)
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"column {where!r} of the data mixes types: {_type_name(values)}",
            advice="use one type for all of its values",
            column=where,
        ) from error


def require_end(values: Iterable[Any], where: str) -> None:
    """Raise SchemaMismatchError for lists and dicts that are nested without end, or deeper than a table can hold.

    Arrow would follow them until the process crashes.
    """
    for _ in range(MAX_LEVELS + 1):
        values = _contents(values)
        if not values:
            return
    raise SchemaMismatchError(
        f"column {where!r} of the data is nested too deeply, or holds a list or dict that contains itself",
        advice="write flatter values",
        column=where,
    )


def _contents(values: Iterable[Any]) -> list[Any]:
    """What is in the lists and dicts among the values. One that occurs several times counts once."""
    if not _has_containers(values):
        return []
    containers = {id(value): value for value in values if isinstance(value, _CONTAINERS)}.values()
    inner = (
        value.values() if isinstance(value, dict) else value.ravel() if isinstance(value, np.ndarray) else value
        for value in containers
        if not isinstance(value, np.ndarray) or value.dtype == object
    )
    return list(itertools.chain.from_iterable(inner))


def _has_containers(values: Iterable[Any]) -> bool:
    return any(issubclass(kind, _CONTAINERS) for kind in set(map(type, values)))


def _columns(rows: Sequence[Mapping[str, Any]], fields: Sequence[pa.Field], where: str) -> list[pa.Array]:
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    sources = match_names(names, [field.name for field in fields], where)
    columns = []
    for field in fields:
        full = f"{where}.{field.name}" if where else field.name
        source = sources.get(field.name)
        if source is None:
            columns.append(missing(len(rows), field if rows else field.with_nullable(True), full))  # noqa: FBT003
        else:
            columns.append(_values_column([row.get(source) for row in rows], field, full))
    return columns


def _values_column(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    kind = field.type
    if pt.is_struct(kind):
        return _structs(values, field, where)
    if pt.is_map(kind):
        return _maps(values, field, where)
    if pt.is_list(kind):
        return _lists(values, field, where)
    if _has_containers(values):
        # Arrow would look into them first, and a list that contains itself has no end.
        raise misfit(where, field, _type_name(values))
    if (pt.is_date(kind) or pt.is_timestamp(kind)) and any(isinstance(value, str) for value in values):
        values = [_from_iso(value, field, where) if isinstance(value, str) else value for value in values]
    try:
        found = pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise misfit(where, field, _type_name(values), error) from error
    if pt.is_float32(kind) and (pt.is_floating(found.type) or pt.is_integer(found.type)):
        return _to_float32(found, field, where)
    return cast(found, field, where)


def _from_iso(text: str, field: pa.Field, where: str) -> date | datetime:
    """A date or time from its ISO-8601 text. One with a zone has an offset or `Z`, one without a zone has none."""
    kind, moment = field.type, None
    try:
        if pt.is_date(kind):
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    # Python would leave out the digits below a microsecond, and take a date for its midnight.
    if moment is None or _FINE_SECONDS.search(text) or not _HAS_TIME.search(text):
        example = "2026-01-31" if pt.is_date(kind) else "2026-01-31T12:30:00"
        advice = f"write it in ISO-8601, such as {example}{'Z' if pt.is_timestamp(kind) and kind.tz else ''}"
    elif (moment.tzinfo is None) == (kind.tz is None):
        return moment
    elif kind.tz is None:
        advice = "leave out the time zone: the column is without one"
    else:
        advice = "add the offset from UTC, such as +01:00 or Z"
    raise SchemaMismatchError(
        f"column {where!r} is {kind} in the table but the text {text[:_SHOWN]!r} in the data",
        advice=advice,
        column=where,
    )


def _to_float32(values: pa.Array, field: pa.Field, where: str) -> pa.Array:
    """Round to float32, which Python lacks. A finite number that would become infinite is an error."""
    result = cast(values, pa.field(field.name, pa.float64(), nullable=field.nullable), where).cast(pa.float32())
    if pc.sum(pc.is_inf(result)).as_py() != pc.sum(pc.is_inf(values.cast(pa.float64()))).as_py():
        raise misfit(where, field, values.type)
    return result


def _structs(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    present = _present(values, field, where, Mapping)
    children = _columns(present, list(field.type), where)
    return spread_struct(children, field.type, pa.array([value is not None for value in values], pa.bool_()))


def _lists(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    present = _present(values, field, where, Sequence)
    elements = _values_column(list(itertools.chain.from_iterable(present)), field.type.value_field, f"{where}.element")
    return pa.ListArray.from_arrays(_value_offsets(values), elements, type=field.type)


def _maps(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    present = _present(values, field, where, (Mapping, Sequence))
    pairs = [pair for value in present for pair in _pairs(value, field, where)]
    keys = _values_column([key for key, _ in pairs], field.type.key_field, f"{where}.key")
    items = _values_column([item for _, item in pairs], field.type.item_field, f"{where}.value")
    return pa.MapArray.from_arrays(_value_offsets(values), keys, items, type=field.type)


def _pairs(value: Mapping[Any, Any] | Sequence[Any], field: pa.Field, where: str) -> Iterable[Any]:
    """The keys and values of a map."""
    if isinstance(value, Mapping):
        return value.items()
    if all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in value):  # noqa: PLR2004 - a key and a value
        return value
    raise SchemaMismatchError(
        f"column {where!r} is {field.type} in the table, but a list of other things than pairs in the data",
        advice="write a map as a dict, or as a list of (key, value) pairs",
        column=where,
    )


def _present(values: list[Any], field: pa.Field, where: str, kinds: Any) -> list[Any]:
    """The values that are not null. Raises SchemaMismatchError unless each is an instance of `kinds`."""
    present = [value for value in values if value is not None]
    wrong = next((v for v in present if not isinstance(v, kinds) or isinstance(v, (str, bytes))), None)
    if wrong is not None:
        raise misfit(where, field, type(wrong).__name__)
    if not field.nullable and len(present) < len(values):
        cast(pa.nulls(len(values)), field, where)  # raises
    return present


def _value_offsets(values: list[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(list(itertools.accumulate(lengths, initial=0)), pa.int32())
    if None not in values:
        return offsets
    return offsets_with_nulls(offsets, pa.array([value is not None for value in values]))


def _type_name(values: list[Any]) -> str:
    return "/".join(sorted({type(value).__name__ for value in values if value is not None}))
