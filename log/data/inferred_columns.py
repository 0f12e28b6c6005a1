"""Columns of Python values whose type Arrow infers: those that the table lacks, and those of objects in pandas.

Arrow decides by the first values, and bends others to fit: after a date a datetime loses its time, after a datetime
with a zone one without is in UTC, and beside bytes a text becomes bytes. So values of a column have to be alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.log.data.python_values import CONTAINERS, is_native, native
from tidelog.log.errors import SchemaMismatchError
from tidelog.log.format.schema import MAX_LEVELS

# What values of a type are, where that needs no look at them.
_BY_TYPE: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    Decimal: "Decimal",
    str: "text",
    bytes: "bytes",
    date: "date",
    dict: "dict",
    list: "list",
}
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
    values = alike(values, where)
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        names = sorted({type(value).__name__ for value in values if value is not None})
        raise SchemaMismatchError(
            f"column {where!r} of the data cannot be read: its values are {'/'.join(names)}: {error}",
            advice="give it values of one type",
            column=where,
        ) from error


def alike(values: list[Any], where: str, *, nan_is_null: bool = False) -> list[Any]:
    """The values as Python's own; the list itself if they are. Integers beside decimals become such.

    Raises SchemaMismatchError for values that Arrow would bend to one type, and for those nested without end.
    """
    if _has_containers(values):
        require_end(values, where)
    if _require_alike(values, where, nan_is_null=nan_is_null, is_column=True):
        # pyarrow mixes up or even crashes on values of NumPy among others.
        values = _natives(values)
    if {int, Decimal} <= set(map(type, values)):
        # Arrow takes the digits of the first for those of all.
        return [Decimal(value) if isinstance(value, int) else value for value in values]
    return values


def _natives(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for given in values:
        value = given if is_native(type(given)) else native(given)
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
            value = _natives(value)
        elif isinstance(value, dict):
            value = dict(zip(value, _natives(value.values()), strict=True))
        found.append(value)
    return found


def _require_alike(values: list[Any], where: str, *, nan_is_null: bool, is_column: bool = False) -> bool:
    """Whether any of the values only stands for one of Python. Raises SchemaMismatchError as `alike` does."""
    kinds = set(map(type, values)) - {type(None)}
    found, is_foreign = _told_by_types(values, kinds, nan_is_null=nan_is_null), False
    if found is None:
        found = _told_by_values(values, where, nan_is_null=nan_is_null, is_column=is_column)
        is_foreign = not all(map(is_native, kinds - {np.ndarray}))
    if "list" in found:
        is_plain = kinds <= {list}
        lists = [value for value in values if value is not None and (is_plain or _is_list(value))]
        plain = [value for value in lists if not isinstance(value, np.ndarray) or value.dtype == object]
        elements = list(itertools.chain.from_iterable(plain))
        is_foreign |= _require_alike(elements, f"{where}.element", nan_is_null=nan_is_null)
    if "dict" in found:
        is_plain = kinds <= {dict}
        rows = [value for value in values if value is not None and (is_plain or isinstance(value, Mapping))]
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            of_name = [row.get(name) for row in rows]
            is_foreign |= _require_alike(of_name, f"{where}.{name}", nan_is_null=nan_is_null)
    return is_foreign


def _is_list(value: Any) -> bool:
    return isinstance(value, CONTAINERS) and not isinstance(value, Mapping)


def _told_by_types(values: Iterable[Any], kinds: Collection[type], *, nan_is_null: bool) -> Collection[str] | None:
    """What the values are, if their types are enough to know that they are alike; None if each has to be looked at."""
    if nan_is_null and float in kinds and all(value != value for value in values if type(value) is float):  # noqa: PLR0124 - NaN
        kinds = set(kinds) - {float}
    if kinds == {datetime}:
        zones = {value.tzinfo for value in values if type(value) is datetime}
        return ("datetime without a time zone",) if zones == {None} else None
    names = frozenset(_BY_TYPE.get(kind, "") for kind in kinds)
    return names if "" not in names and (len(names) <= 1 or names in _TOGETHER) else None


def _told_by_values(values: Iterable[Any], where: str, *, nan_is_null: bool, is_column: bool) -> Collection[str]:
    """What the values are. Raises SchemaMismatchError as `alike` does."""
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
    return found


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
