"""Convert Python rows (dicts) to Arrow columns of a table's types.

Arrow's own conversion to a given type is lenient (1.5 becomes the integer 1). Here a value first gets the type that
Arrow infers and is then cast like any column, so that the same rules hold for dicts and for frames. Dicts alone may
have dates and times as ISO-8601 text, as JSON has them.
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

from tidelog.log.data.cast import cast, match_names, misfit, missing, offsets_with_nulls, spread_struct
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import MAX_LEVELS

# Digits of a second below a microsecond, and the hour that follows a date, in ISO-8601.
_FINE_SECONDS = re.compile(r"[.,]\d{7}")
_HAS_TIME = re.compile(r"[T ]\d\d")
# How many characters of a wrong text an error shows.
_SHOWN = 60
# What Arrow makes lists and structs of.
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
            columns.append(_column([row.get(source) for row in rows], field, full))
    return columns


def _column(values: list[Any], field: pa.Field, where: str) -> pa.Array:
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
    elements = _column(list(itertools.chain.from_iterable(present)), field.type.value_field, f"{where}.element")
    return pa.ListArray.from_arrays(_offsets(values), elements, type=field.type)


def _maps(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    present = _present(values, field, where, (Mapping, Sequence))
    pairs = [pair for value in present for pair in _pairs(value, field, where)]
    keys = _column([key for key, _ in pairs], field.type.key_field, f"{where}.key")
    items = _column([item for _, item in pairs], field.type.item_field, f"{where}.value")
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=field.type)


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


def _offsets(values: list[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(list(itertools.accumulate(lengths, initial=0)), pa.int32())
    if None not in values:
        return offsets
    return offsets_with_nulls(offsets, pa.array([value is not None for value in values]))


def _type_name(values: list[Any]) -> str:
    return "/".join(sorted({type(value).__name__ for value in values if value is not None}))
