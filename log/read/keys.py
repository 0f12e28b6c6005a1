"""Rows identified by key columns: choose the columns, check the keys, and find the rows that have one of them.

Values are compared as in `group_numbers`: NaN is equal to NaN, and -0.0 to 0.0. Keys cannot contain null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.arrays import Int64Array
from tidelog.log.data.grouping import comparable, group_numbers
from tidelog.log.data.ordering import require_ordered
from tidelog.log.data.row_values import shown
from tidelog.log.errors import ConfigurationError, DuplicateKeyError, SchemaMismatchError
from tidelog.log.format import properties
from tidelog.log.format.schema import own_names
from tidelog.log.predicate import And, Column, Comparison, Expression, In, Literal
from tidelog.log.presentable import brief, did_you_mean

# Up to this number of values a predicate lists each; beyond, it has their range, which is enough for statistics.
_FEW_VALUES = 50
# The number of duplicate keys that an error shows.
_NAMED_KEYS = 3


def keys_of_upsert(
    given: Sequence[str], schema: pa.Schema, configuration: Mapping[str, str], *, other_keys: bool
) -> list[str]:
    """The key columns of an upsert, as `key_columns` returns them.

    Raises ConfigurationError if they are not the table's primary key, in any order, and `other_keys` does not allow it.
    """
    keys = key_columns(given, schema, configuration)
    if other_keys and not given:
        raise ConfigurationError("other_keys=True is given without keys", advice="pass keys=[...], or leave it out")
    primary = list(properties.primary_key(configuration))
    if primary and not other_keys and {name.lower() for name in keys} != {name.lower() for name in primary}:
        is_wrong = not {name.lower() for name in primary} <= {name.lower() for name in schema.names}
        raise ConfigurationError(
            f"keys={keys!r} are not the table's primary key, {primary!r} ({properties.PRIMARY_KEY}), and an upsert "
            "replaces all rows that are equal in its keys",
            advice=f"the table has no such columns, so correct {properties.PRIMARY_KEY} with set_properties"
            if is_wrong
            else "leave keys out, or pass other_keys=True if that is meant",
        )
    return keys


def check_primary_key(schema: pa.Schema, configuration: Mapping[str, str]) -> None:
    """Raise ConfigurationError if the columns of the primary key, if there is one, cannot be a key.

    Their case does not matter here, as another engine may have written it.
    """
    primary = properties.primary_key(configuration)
    if primary:
        key_columns(primary, schema, configuration)


def key_columns(given: Sequence[str], schema: pa.Schema, configuration: Mapping[str, str]) -> list[str]:
    """The key columns as the table names them: those given, or else its primary key. Raises ConfigurationError."""
    if isinstance(given, str):
        raise ConfigurationError("keys must be a list of column names, not a string", advice=f"pass [{given!r}]")
    keys = own_names(given or (), schema) or own_names(properties.primary_key(configuration), schema)
    if not keys:
        raise ConfigurationError(
            "no keys are given",
            advice=f"pass keys=[...], or set the property {properties.PRIMARY_KEY}",
        )
    for name in keys:
        if name not in schema.names:
            raise ConfigurationError(
                f"there is no key column {brief(name)}",
                advice=f"{did_you_mean(name, schema.names)}the columns are {', '.join(schema.names)}",
            )
        if pt.is_nested(schema.field(name).type):
            raise ConfigurationError(
                f"the key column {name!r} is nested, with type {schema.field(name).type}",
                advice="choose key columns that are not structs, lists or maps",
            )
    return keys


def order_columns(given: str | Sequence[str] | None, schema: pa.Schema, configuration: Mapping[str, str]) -> list[str]:
    """The columns of an order as the table names them: those given, or else its own. Raises ConfigurationError."""
    names = [given] if isinstance(given, str) else list(properties.order_by(configuration) if given is None else given)
    names = own_names(names, schema)
    for name in names:
        if name not in schema.names:
            raise ConfigurationError(
                f"there is no column {brief(name)} to order rows by",
                advice=f"{did_you_mean(name, schema.names)}the columns are {', '.join(schema.names)}",
            )
        try:
            require_ordered(name, schema.field(name).type)
        except SchemaMismatchError as error:
            raise ConfigurationError(error.message, advice=error.advice) from error
    return names


class Keys:
    """Distinct keys without nulls, one row each; `names` are the key columns, `path` is the table for errors.

    Raises SchemaMismatchError for a null, DuplicateKeyError for a key that occurs twice.
    """

    def __init__(self, rows: pa.Table, names: Sequence[str], path: str) -> None:
        self.names = list(names)
        self.table = rows.select(self.names)
        _require_no_null(self.table)
        _require_distinct(self.table, path)
        self._steps = list(self._numbered())

    def places(self, rows: pa.Table) -> Int64Array:
        """The index of each row's key among the keys, or -1 if it is not one of them. `rows` has the key columns."""
        codes = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)])
        for name, (values, known) in zip(self.names, self._steps, strict=True):
            codes = _place(_next_codes(codes, rows[name], values), known)
        return np.asarray(pc.fill_null(codes, -1), dtype=np.int64)

    def _numbered(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """For each key column its distinct values, and the codes of the keys by the columns up to it.

        Only the keys are hashed, no matter how many rows are looked up. After each column a code is replaced with its
        index among the distinct codes. After the last column that index is the key's own, because keys are distinct.
        """
        codes = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), self.table.num_rows)])
        for name in self.names:
            values = comparable(self.table[name]).unique()
            codes = _next_codes(codes, self.table[name], values)
            known = codes.unique()
            yield values, known
            codes = _place(codes, known)

    def predicate(self) -> Expression:
        """A predicate that is true for every row with one of the keys, and narrow enough to prune files."""
        if not self.table.num_rows:
            return Literal(False)  # noqa: FBT003 - a value
        parts = [part for name in self.names if (part := _may_be(name, self.table[name])) is not None]
        if not parts:
            return Literal(True)  # noqa: FBT003 - a value
        whole = parts[0]
        for part in parts[1:]:
            whole = And(whole, part)
        return whole


def _may_be(name: str, values: pa.ChunkedArray) -> Expression | None:
    """A predicate that a column has one of `values`, or is in their range; None if no predicate covers all of them."""
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
    """Extend the codes by one more column; null where its value is not among `values`."""
    return pc.add(pc.multiply(codes, len(values)), _place(comparable(column), values))


def _place(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    return pc.index_in(column, value_set=values).cast(pa.int64())


def _numbers(table: pa.Table) -> Int64Array:
    return np.asarray(group_numbers(table, table.column_names), dtype=np.int64)


def _require_no_null(keys: pa.Table) -> None:
    for name in keys.column_names:
        nulls = keys[name].null_count
        if nulls:
            raise SchemaMismatchError(
                f"the key column {name!r} is null in {nulls} rows of the data, and a null key matches no row (in a "
                "partition column, an empty string counts as null)",
                advice="fill or drop those rows",
                column=name,
            )


def _require_distinct(keys: pa.Table, path: str) -> None:
    numbers = _numbers(keys)
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    if first.all():
        return
    duplicates = np.unique(numbers[~first])
    rows = [int(np.flatnonzero(numbers == number)[0]) for number in duplicates[:_NAMED_KEYS]]
    named = " or ".join(_key_text(shown(keys.slice(row, 1))) for row in rows)
    count = "1 key" if len(duplicates) == 1 else f"{len(duplicates)} keys"
    raise DuplicateKeyError(
        f"the data has several rows for {count}, such as {named}",
        advice="keep one row per key, such as the newest",
        path=path,
        key=named,
    )


def _key_text(key: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items())
