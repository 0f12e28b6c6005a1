"""Rows as Python dicts: each value is judged by the type of its column, whatever the other rows hold.

Arrow's own conversion is lenient: 1.5 becomes the integer 1, a datetime loses its zone or, in a column of dates, its
time, and a text becomes bytes. So a value must have one of the Python types that its column can hold without loss.
Those of NumPy, pandas and Arrow stand for Python's. Dates and times may also be ISO-8601 text, as JSON has them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray
from tidelog.log.data import nested
from tidelog.log.data.conform import cast, conform, match_names, misfit, missing, without_index
from tidelog.log.data.inferred_columns import plain_column
from tidelog.log.data.python_values import CONTAINERS, LISTS, UnfitError, is_native, judge_of, native
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import table_schema

# How many characters of a wrong value an error shows.
_SHOWN = 60
# Sequences to Python, and single values to a table.
_NO_LISTS = (str, bytes, bytearray, memoryview)
# The bytes of the widest number that Arrow has, too.
_WIDEST = 8
# What Arrow and Python raise for a value that does not fit a type.
_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


class _Place(NamedTuple):
    """A column, or a part of a nested one: its path, and which row each of its values belongs to."""

    path: str
    row: Callable[[int], int]

    def below(self, name: str, owner: Callable[[int], int]) -> _Place:
        """A part, whose value n belongs to the value `owner(n)` here."""
        return _Place(f"{self.path}.{name}", lambda number: self.row(owner(number)))


def to_table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`. Raises SchemaMismatchError naming what does not fit."""
    require_dicts(rows)
    sources = match_names(row_names(rows), schema.names)
    columns = []
    for field in schema:
        source = sources.get(field.name)
        if source is None:
            loose = field.with_nullable(True)  # noqa: FBT003 - pyarrow's signature
            columns.append(missing(len(rows), field if rows else loose, field.name))
        else:
            columns.append(_column([row.get(source) for row in rows], field, _Place(field.name, int)))
    return pa.table(columns, schema=schema)


def by_ownership(held: pa.Table | Sequence[Any], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Split the data's columns into the table's own, in its types, and extra ones, in types that Delta has."""
    if isinstance(held, pa.Table):
        held = without_index(held, schema)
        names = held.column_names
    else:
        names = row_names(held)
    wanted = {name.lower(): name for name in schema.names}
    foreign = [name for name in names if name.lower() not in wanted]
    present = {wanted[name.lower()] for name in names if name not in foreign}
    own = pa.schema([field for field in schema if field.name in present])
    if isinstance(held, pa.Table):
        extra = held.select(foreign)
        known = conform(held.drop_columns(foreign), own)
    else:
        extra = pa.table({name: plain_column([row.get(name) for row in held], name) for name in foreign})
        known = to_table([{key: row[key] for key in row if key not in foreign} for row in held], own)
    return known, conform(extra, table_schema(extra.schema))


def require_dicts(rows: Sequence[Any]) -> None:
    """Raise SchemaMismatchError unless each row is a dict."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(
                f"row {number} must be a dict, not {type(row).__name__}", advice="pass a list of dicts"
            )


def row_names(rows: Sequence[Mapping[Any, Any]], where: str = "") -> list[str]:
    """The names that the rows have, each once."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        if not isinstance(name, str):
            of = f" of column {where!r}" if where else ""
            raise SchemaMismatchError(
                f"a name in the data{of} must be text, not the {type(name).__name__} {str(name)[:_SHOWN]}",
                advice="write the names of columns and fields as text",
                column=where,
            )
    return names


def _column(values: list[Any], field: pa.Field, place: _Place) -> pa.Array:
    kind = field.type
    types = set(map(type, values))
    if not all(map(is_native, types)):
        values = [native(value) for value in values]
        types = set(map(type, values))
    if not field.nullable and type(None) in types:
        cast(pa.array([None if value is None else True for value in values], pa.bool_()), field, place.path)  # raises
    if pt.is_struct(kind):
        return _structs(values, types, field, place)
    if pt.is_map(kind):
        return _maps(values, types, field, place)
    if pt.is_list(kind):
        return _lists(values, types, field, place)
    return _plain(values, types, field, place)


# --- values that are not nested ---------------------------------------------------------------------------------------


def _plain(values: list[Any], types: set[type], field: pa.Field, place: _Place) -> pa.Array:
    kind = field.type
    judge = judge_of(kind)
    if not types <= judge.exact:
        values = [_judged(value, number, field, place) for number, value in enumerate(values)]
    if judge.check is not None:
        number, advice = judge.check(values)
        if advice:
            raise _wrong(values[number], number, field, place, advice)
    try:
        found = pa.array(values, pa.float64() if pt.is_float32(kind) else kind)
    except _UNFIT as error:
        number, reason = _first_wrong(values, kind, error)
        if pt.is_decimal(kind):  # Arrow speaks of the digits of other values
            raise _wrong(values[number], number, field, place, "round it to the digits of the column") from error
        raise _wrong(values[number], number, field, place, "", reason) from error
    if not pt.is_float32(kind):
        return found
    overflows = _overflows(found)
    if overflows.any():
        number = int(np.argmax(overflows))
        raise _wrong(values[number], number, field, place, "the largest number of the column is about 3.4e38")
    return found.cast(kind)


def _judged(value: Any, number: int, field: pa.Field, place: _Place) -> Any:
    if value is None:
        return None
    try:
        return judge_of(field.type).convert(value, field.type)
    except UnfitError as error:
        raise _wrong(value, number, field, place, error.advice) from error


def _first_wrong(values: list[Any], kind: pa.DataType, error: Exception) -> tuple[int, Exception]:
    """The first of the values that Arrow does not take, and why."""
    for number, value in enumerate(values):
        try:
            pa.array([value], kind)
        except _UNFIT as reason:
            return number, reason
    return 0, error  # only all of them together are too much


def _wrong(
    value: Any, number: int, field: pa.Field, place: _Place, advice: str, reason: Exception | None = None
) -> SchemaMismatchError:
    """The error for a value that does not fit."""
    what = "text" if isinstance(value, str) else type(value).__name__
    detail = f": {reason}" if reason else ""
    return SchemaMismatchError(
        f"column {place.path!r} is {field.type} in the table but the {what}{_shown(value)} in row {place.row(number)} "
        f"of the data{detail}",
        advice=advice or "convert it in the data if that loses nothing",
        column=place.path,
    )


def _shown(value: Any) -> str:
    if isinstance(value, (str, bytes, bytearray)):
        return f" {value[:_SHOWN]!r}"
    try:
        return "" if isinstance(value, CONTAINERS) else f" {str(value)[:_SHOWN]}"
    except ValueError:  # an integer of thousands of digits
        return ""


def _overflows(values: pa.Array) -> BoolArray:
    """Which numbers would be infinite as float32. Others are rounded, because Python lacks the type."""
    wide = values.cast(pa.float64())
    return np.asarray(
        pc.fill_null(pc.and_not(pc.is_inf(wide.cast(pa.float32())), pc.is_inf(wide)), pa.scalar(value=False))
    )


# --- nested values ----------------------------------------------------------------------------------------------------


def _structs(values: list[Any], types: set[type], field: pa.Field, place: _Place) -> pa.Array:
    numbers = _present(values, types, field, place, (Mapping,))
    present = [values[number] for number in numbers]
    sources = match_names(row_names(present, place.path), [child.name for child in field.type], place.path)
    children = []
    for child in field.type:
        source, part = sources.get(child.name), place.below(child.name, numbers.__getitem__)
        if source is None:
            loose = child.with_nullable(True)  # noqa: FBT003 - pyarrow's signature
            children.append(missing(len(present), child if present else loose, part.path))
        else:
            children.append(_column([row.get(source) for row in present], child, part))
    is_null = np.ones(len(values), dtype=bool)
    is_null[numbers] = False
    if present and is_null.any():
        # Below a null struct, another row's values: a null there would be one of a field that cannot be null.
        spread = pa.array(np.maximum(np.cumsum(~is_null) - 1, 0))
        children = [child.take(spread) for child in children]
    return nested.build_struct(children, field.type, is_null)


def _lists(values: list[Any], types: set[type], field: pa.Field, place: _Place) -> pa.Array:
    numbers = _present(values, types, field, place, LISTS)
    present = [values[number] for number in numbers]
    offsets, is_null = _offsets(values, field, place)
    own, part = field.type.value_field, place.below("element", lambda number: bisect_right(offsets, number) - 1)
    elements = _numbers(present, own)
    if elements is None:
        elements = _column(list(itertools.chain.from_iterable(map(_listed, present))), own, part)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=field.type, mask=is_null)


def _numbers(present: list[Any], field: pa.Field) -> pa.Array | None:
    """The elements of arrays of NumPy with numbers of one type, such as embeddings.

    None for other lists, and if an element does not fit: one by one, they show which.
    """
    kinds = {value.dtype if type(value) is np.ndarray and value.ndim == 1 else None for value in present}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or kind.kind not in "biuf" or not kind.isnative or kind.itemsize > _WIDEST:
        return None
    found = pa.array(np.concatenate(present))
    try:
        if pt.is_float32(field.type) and pt.is_floating(found.type):
            return None if _overflows(found).any() else found.cast(pa.float32())
        return cast(found, field, "")
    except SchemaMismatchError:
        return None


def _listed(value: Any) -> Any:
    """A list's elements; those of an array of NumPy as Python's values, if it has such."""
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind not in "mM" else value


def _maps(values: list[Any], types: set[type], field: pa.Field, place: _Place) -> pa.Array:
    numbers = _present(values, types, field, place, (Mapping, *LISTS))
    offsets, is_null = _offsets(values, field, place)
    pairs = [pair for number in numbers for pair in _pairs(values[number], number, field, place)]

    def owner(number: int) -> int:
        return bisect_right(offsets, number) - 1

    keys = _column([key for key, _ in pairs], field.type.key_field, place.below("key", owner))
    items = _column([item for _, item in pairs], field.type.item_field, place.below("value", owner))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=field.type, mask=is_null)


def _pairs(value: Any, number: int, field: pa.Field, place: _Place) -> Iterable[Any]:
    """The keys and values of a map."""
    if isinstance(value, Mapping):
        return list(value.items())
    if all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in value):  # noqa: PLR2004 - a key and a value
        return list(value)
    raise SchemaMismatchError(
        f"column {place.path!r} is {field.type} in the table, but row {place.row(number)} of the data has a list of "
        "other things than pairs",
        advice="write a map as a dict, or as a list of (key, value) pairs",
        column=place.path,
    )


def _present(values: list[Any], types: set[type], field: pa.Field, place: _Place, kinds: tuple[type, ...]) -> list[int]:
    """Which values are not null. Raises SchemaMismatchError unless each of them is an instance of `kinds`."""
    present = [number for number, value in enumerate(values) if value is not None]
    unfit = {kind for kind in types if not issubclass(kind, kinds) or issubclass(kind, _NO_LISTS)} - {type(None)}
    if unfit:
        number = next(number for number in present if type(values[number]) in unfit)
        raise _wrong(values[number], number, field, place, "")
    return present


def _offsets(values: list[Any], field: pa.Field, place: _Place) -> tuple[list[int], pa.Array | None]:
    """Where the elements of each value start, and which values are null, if any is."""
    offsets = list(itertools.accumulate((0 if value is None else len(value) for value in values), initial=0))
    if offsets[-1] > nested.MOST_ELEMENTS:
        raise misfit(place.path, field, f"{offsets[-1]} elements")
    is_null = [value is None for value in values]
    return offsets, pa.array(is_null, pa.bool_()) if any(is_null) else None
