"""Rows by their keys: the key's columns, each key once, and which rows of a table have one of them.

Values are compared as in `group_numbers`: NaN is a value like others, -0.0 is 0.0. A null is no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import Int64Array
from tidelog.log.data.grouping import group_numbers
from tidelog.log.errors import ConfigurationError, DuplicateKeyError, SchemaMismatchError
from tidelog.log.format import properties
from tidelog.log.predicate import And, Column, Comparison, Expression, In, Literal

# More values of a column are looked for as the range that they span, which is all that statistics know to test.
_FEW_VALUES = 50
# So many of the keys that are wrong are named in an error.
_NAMED_KEYS = 3


def key_columns(given: Sequence[str], schema: pa.Schema, configuration: Mapping[str, str]) -> list[str]:
    """The key's columns: those given, else the table's own. Raises ConfigurationError."""
    if isinstance(given, str):
        raise ConfigurationError("keys is one text", advice=f"give a list: [{given!r}]")
    keys = list(dict.fromkeys(given or ())) or list(properties.primary_key(configuration))
    if not keys:
        raise ConfigurationError(
            "no keys are given", advice=f"pass keys=[...], or set the property {properties.PRIMARY_KEY}"
        )
    for name in keys:
        if name not in schema.names:
            raise ConfigurationError(
                f"there is no key column {name!r}", advice=f"the columns are {', '.join(schema.names)}"
            )
        if pt.is_nested(schema.field(name).type):
            raise ConfigurationError(f"the key column {name!r} is nested", advice="choose a plain column")
    return keys


class Keys:
    """Distinct keys without a null, one row each; `names` are their columns.

    Raises SchemaMismatchError for a null, DuplicateKeyError for a key that comes twice. `path` names the table.
    """

    def __init__(self, rows: pa.Table, names: Sequence[str], path: str) -> None:
        self.names = list(names)
        self.table = rows.select(self.names)
        _require_no_null(self.table)
        _require_distinct(self.table, path)
        self._steps = list(self._numbered())

    def places(self, rows: pa.Table) -> Int64Array:
        """For each row of `rows`, which has the key's columns, the place of its key; -1 for another one."""
        codes = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)])
        for name, (values, known) in zip(self.names, self._steps, strict=True):
            codes = _place(_next_codes(codes, rows[name], values), known)
        return np.asarray(pc.fill_null(codes, -1), dtype=np.int64)

    def _numbered(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """For each column its values, and the codes that the keys have by the columns up to it.

        Only the keys are hashed, however many rows are looked up. A code is the place among those codes; the last
        column's are the places of the keys, which are distinct.
        """
        codes = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), self.table.num_rows)])
        for name in self.names:
            values = _comparable(self.table[name]).unique()
            codes = _next_codes(codes, self.table[name], values)
            known = codes.unique()
            yield values, known
            codes = _place(codes, known)

    def predicate(self) -> Expression:
        """What is true for every row with one of the keys, and false for as many others as statistics can tell."""
        parts = [part for name in self.names if (part := _may_be(name, self.table[name])) is not None]
        if not parts:
            return Literal(True)  # noqa: FBT003 - a value
        whole = parts[0]
        for part in parts[1:]:
            whole = And(whole, part)
        return whole


def _may_be(name: str, values: pa.ChunkedArray) -> Expression | None:
    """That a column holds one of `values`, or lies between them; None where no predicate says it of each."""
    if pt.is_binary(values.type):
        return None
    if pt.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return None  # NaN is equal to nothing in a predicate
    distinct = values.unique()
    column = Column((name,))
    try:
        if len(distinct) <= _FEW_VALUES:
            return In(column, tuple(distinct.to_pylist()))
        low, high = (value.as_py() for value in pc.min_max(distinct).values())
    except (ValueError, OverflowError):
        return None  # a date or time outside of Python's years
    return And(Comparison(">=", column, Literal(low)), Comparison("<=", column, Literal(high)))


def _next_codes(codes: pa.ChunkedArray, column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """Codes of the columns so far and one more; null where a value is none of `values`."""
    return pc.add(pc.multiply(codes, len(values)), _place(_comparable(column), values))


def _place(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    return pc.index_in(column, value_set=values).cast(pa.int64())


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.add(column, pa.scalar(0, column.type)) if pt.is_floating(column.type) else column  # -0.0 is 0.0


def _numbers(table: pa.Table) -> Int64Array:
    return np.asarray(group_numbers(table, table.column_names), dtype=np.int64)


def _require_no_null(keys: pa.Table) -> None:
    for name in keys.column_names:
        nulls = keys[name].null_count
        if nulls:
            raise SchemaMismatchError(
                f"the key column {name!r} is null in {nulls} rows of the data, and null is equal to nothing "
                "(an empty text partitions as null)",
                advice="fill or drop those rows",
                column=name,
            )


def _require_distinct(keys: pa.Table, path: str) -> None:
    numbers = _numbers(keys)
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    if first.all():
        return
    doubled = np.unique(numbers[~first])
    places = [int(np.flatnonzero(numbers == number)[0]) for number in doubled[:_NAMED_KEYS]]
    named = ", ".join(str(keys.slice(place, 1).to_pylist()[0]) for place in places)
    raise DuplicateKeyError(
        f"{len(doubled)} keys have several rows each in the data, among them {named}",
        advice="keep one row a key, such as the newest",
        path=path,
        key=named,
    )
