"""Expressions that grow with one column: their bounds in a file are those of the column, put into the expression."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from tidelog.log import predicate
from tidelog.log.errors import PredicateError
from tidelog.log.predicate import FUNCTIONS, Arithmetic, Call, Cast, Column, Expression, Interval, Literal, result_type


def column_of(expression: Expression, schema: pa.Schema) -> Column | None:
    """The column with which `expression` grows, or at least never falls; None if there is none.

    Such an expression is null where the column is.
    """
    match expression:
        case Column():
            return expression
        case Cast(inner, kind):
            return column_of(inner, schema) if _is_ordered(inner, schema) and _keeps_order(kind) else None
        case Arithmetic("+" | "-" as symbol, left, right):
            inner, step = (right, left) if symbol == "+" and not predicate.columns(left) else (left, right)
            if predicate.columns(step) or not _can_step(expression, step, schema):
                return None
            return column_of(inner, schema)
        case Call(name, arguments):
            place = FUNCTIONS[name].monotone
            if place is None or not _is_ordered(arguments[place], schema):
                return None
            if any(predicate.columns(other) for other in (*arguments[:place], *arguments[place + 1 :])):
                return None
            return column_of(arguments[place], schema)
        case _:
            return None


def with_column(expression: Expression, old: Column, new: Column) -> Expression:
    """The expression with another column."""
    if expression == old:
        return new
    return predicate.with_parts(expression, [with_column(part, old, new) for part in predicate.parts(expression)])


def _keeps_order(kind: pa.DataType) -> bool:
    return not pt.is_string(kind) and not pt.is_boolean(kind)


def _is_ordered(inner: Expression, schema: pa.Schema) -> bool:
    """Whether the values are numbers, dates or timestamps. Texts of them have another order."""
    kind = _type(inner, schema)
    return kind is not None and not (pt.is_string(kind) or pt.is_boolean(kind) or pt.is_nested(kind))


def _can_step(sum_: Expression, step: Expression, schema: pa.Schema) -> bool:
    """Whether adding `step` keeps the order. Adding infinity does not, nor do months that shorten days to one."""
    kind = _type(sum_, schema)
    if kind is None or pt.is_floating(kind):
        return False
    has_months = isinstance(step, Literal) and isinstance(step.value, Interval) and step.value.months != 0
    return not (has_months and pt.is_timestamp(kind))


def _type(expression: Expression, schema: pa.Schema) -> pa.DataType | None:
    try:
        return result_type(expression, schema)
    except PredicateError:
        return None
