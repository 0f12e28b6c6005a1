"""Columns of Python values whose type Arrow infers: those that the table lacks, and those of objects in pandas.

Arrow decides by the first values, and bends others to fit: after a date a datetime loses its time, after a datetime
with a zone one without is in UTC, and beside bytes a text becomes bytes. So values of a column have to be alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.log.data.python_values import CONTAINERS, is_native, native
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import MAX_LEVELS

# Of one of these types alone, all values are alike.
_PLAIN = (str, int, float, bool, bytes, Decimal)
# Arrow makes these one type without a loss, or raises an error.
_TOGETHER = (frozenset(("int", "float")), frozenset(("int", "Decimal")))
_NAMES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (Decimal, "Decimal"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    (date, "date"),
    (Mapping, "dict"),
    (CONTAINERS, "list"),
)


def plain_column(values: list[Any], where: str) -> pa.Array:
    """Values of a column that the table lacks, in the type that Arrow infers.

    Raises SchemaMismatchError if they have no common type.
    """
    require_alike(values, where)
    if not all(map(is_native, set(map(type, values)))):
        values = [native(value) for value in values]
    try:
        return pa.array(as_decimals(values))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        names = sorted({type(value).__name__ for value in values if value is not None})
        raise SchemaMismatchError(
            f"column {where!r} of the data cannot be read: its values are {'/'.join(names)}: {error}",
            advice="give it values of one type",
            column=where,
        ) from error


def as_decimals(values: list[Any]) -> list[Any]:
    """The values; integers beside decimals as such. Arrow takes the digits of the first for those of all."""
    if {int, Decimal} <= set(map(type, values)):
        return [Decimal(value) if isinstance(value, int) else value for value in values]
    return values


def require_alike(values: Iterable[Any], where: str, *, nan_is_null: bool = False) -> None:
    """Raise SchemaMismatchError for values that Arrow would bend to one type, and for those nested without end."""
    values = list(values)
    if _has_containers(values):
        require_end(values, where)
    _require_alike(values, where, nan_is_null=nan_is_null, is_column=True)


def _require_alike(values: list[Any], where: str, *, nan_is_null: bool, is_column: bool = False) -> None:
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) <= 1 and kinds.issubset(_PLAIN):
        return
    found: dict[str, int] = {}
    for number, given in enumerate(values):
        value = given if is_native(type(given)) else native(given)
        name = _name_of(value, nan_is_null=nan_is_null)
        if name is not None:
            found.setdefault(name, number)
        if getattr(value, "nanosecond", 0):
            raise SchemaMismatchError(
                f"column {where!r} of the data has a time with nanoseconds, {value}, which a table cannot hold",
                advice="round it to microseconds, such as by .floor('us')",
                column=where,
            )
    if len(found) > 1 and frozenset(found) not in _TOGETHER:
        shown = [f"{name} in row {number}" if is_column else name for name, number in found.items()]
        raise SchemaMismatchError(
            f"column {where!r} of the data cannot be read: it mixes types: {', '.join(shown)}",
            advice="give it values of one type",
            column=where,
        )
    if "list" in found:
        lists = [value for value in values if isinstance(value, CONTAINERS) and not isinstance(value, Mapping)]
        plain = [value for value in lists if not isinstance(value, np.ndarray) or value.dtype == object]
        _require_alike(list(itertools.chain.from_iterable(plain)), f"{where}.element", nan_is_null=nan_is_null)
    if "dict" in found:
        rows = [value for value in values if isinstance(value, Mapping)]
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            _require_alike([row.get(name) for row in rows], f"{where}.{name}", nan_is_null=nan_is_null)


def _name_of(value: Any, *, nan_is_null: bool) -> str | None:
    """What a value is; None if it is null."""
    if value is None or (nan_is_null and isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, datetime):
        return "datetime without a time zone" if value.utcoffset() is None else "datetime with a time zone"
    return next((name for kinds, name in _NAMES if isinstance(value, kinds)), type(value).__name__)


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
    containers = {id(value): value for value in values if isinstance(value, CONTAINERS)}.values()
    inner = (
        value.values() if isinstance(value, dict) else value.ravel() if isinstance(value, np.ndarray) else value
        for value in containers
        if not isinstance(value, np.ndarray) or value.dtype == object
    )
    return list(itertools.chain.from_iterable(inner))


def _has_containers(values: Iterable[Any]) -> bool:
    return any(issubclass(kind, CONTAINERS) for kind in set(map(type, values)))
