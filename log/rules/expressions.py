"""The SQL of a table's rules, evaluated on Arrow's rows.

Comparisons have Spark's order: NaN equals itself, and is above all numbers.
What tidelog cannot evaluate is UnsupportedFeatureError, which names the expression. An expression that fails for a row,
such as a division by zero, is ConstraintViolationError.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidelog.log import predicate
from tidelog.log.errors import ConstraintViolationError, PredicateError, UnsupportedFeatureError
from tidelog.log.format.schema import TIMESTAMP, fields_within
from tidelog.log.predicate import Call, Column, Condition, nan_ordered, words
from tidelog.log.predicate.tree import clipped

_NOTHING = pa.table([pa.nulls(1)], names=[""])
# What reads or makes a time in the zone of the session, beside columns of zoned timestamps.
_OF_ZONE = frozenset({"timestamp", "to_timestamp", "to_date", "current_date", "curdate", "localtimestamp", "now"})


def is_evaluable(expression: str, schema: pa.Schema) -> bool:
    """Whether tidelog can evaluate the expression over the columns of `schema`."""
    try:
        predicate.result_type(predicate.parse(expression, schema), schema)
    except PredicateError:
        return False
    return True


def depends_on_zone(expression: str, schema: pa.Schema) -> bool:
    """Whether the time zone of a session can change the value. May say yes if it does not."""
    zoned = _OF_ZONE | {field.name.lower() for field in schema if _has_zone(field)}
    found = words(expression)
    return found is None or not zoned.isdisjoint(found)


def _has_zone(field: pa.Field) -> bool:
    return any(inner.type == TIMESTAMP for inner in fields_within(field))


def mentions(expression: str, names: Iterable[str]) -> bool:
    """Whether the expression can read one of the columns. May say yes if it does not."""
    found = words(expression)
    return found is None or not found.isdisjoint(name.lower() for name in names)


def outcomes(expression: str, rows: pa.Table, what: str, path: str) -> pa.BooleanArray:
    """For each row, whether the condition is true; null counts as false."""
    require_evaluable(expression, rows.schema, what, path)
    try:
        tree = nan_ordered(predicate.parse(expression, rows.schema))
        return Condition(tree, rows.schema).mask(rows)
    except PredicateError as error:
        raise _failed(expression, error, what, path) from error


def values(expression: str, rows: pa.Table, field: pa.Field, what: str, path: str) -> pa.ChunkedArray:
    """The value of the expression for each row, in the type of `field`.

    Raises SchemaMismatchError if one does not fit.
    """
    require_evaluable(expression, rows.schema, what, path)
    try:
        return predicate.evaluate(expression, rows, field, nan_is_greatest=True)
    except PredicateError as error:
        raise _failed(expression, error, what, path) from error


def value_of(expression: str, field: pa.Field, what: str, path: str) -> pa.Scalar:
    """The value of an expression without columns, in the type of `field`. Raises SchemaMismatchError."""
    return values(expression, _NOTHING, field, what, path)[0]


def equal_or_null(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.BooleanArray:
    """For each row, whether both values are equal or both null, as SQL's `<=>` says."""
    pair = pa.table([left, right], names=["left", "right"])
    equal = nan_ordered(Call("<=>", (Column(("left",)), Column(("right",)))))
    return Condition(equal, pair.schema).outcomes(pair)


def require_evaluable(expression: str, schema: pa.Schema, what: str, path: str) -> None:
    """Raise UnsupportedFeatureError if tidelog cannot evaluate the expression over the columns of `schema`."""
    try:
        predicate.result_type(predicate.parse(expression, schema), schema)
    except PredicateError as error:
        raise UnsupportedFeatureError(
            f"{what} of {path} needs {clipped(expression)!r}, which tidelog cannot evaluate without Spark: "
            f"{error.message}",
            advice="write through Spark: with a Sink that has writer='spark' or 'auto', or with upsert or overwrite of "
            "tidelog.streaming.table(spark, path)",
            path=path,
            features=clipped(expression),
        ) from error


def _failed(expression: str, error: PredicateError, what: str, path: str) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"{what} of {path} cannot be evaluated on all rows: {error.message}",
        advice="correct the rows for which it fails, or leave them out",
        path=path,
        constraint=what,
        expression=clipped(expression),
        row="",
    )
