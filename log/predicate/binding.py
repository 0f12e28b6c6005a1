"""Bind an expression to a schema: find the type of each part, by Spark's rules, and how it is computed.

As in Spark, the right side of AND and OR, and a branch of CASE, are computed only for the rows that need them, so an
error in another row does not matter.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.errors import PredicateError
from tidelog.log.predicate import arithmetic, choices, like
from tidelog.log.predicate.casts import cast_to, converted
from tidelog.log.predicate.comparisons import any_of, compare
from tidelog.log.predicate.constants import members
from tidelog.log.predicate.functions import FUNCTIONS
from tidelog.log.predicate.logic import as_condition, junction
from tidelog.log.predicate.rows import Bound, Datum, computed, constant, shared
from tidelog.log.predicate.tree import (
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    Interval,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Value,
    clipped,
    column_nodes,
    column_type,
    to_sql,
)
from tidelog.log.predicate.types import BOOLEAN, INT, LONG, TypeMismatch

# A longer IN list becomes a hash lookup.
_MAX_TESTS = 50
_INT_LIMIT = 2**31


def bind(expression: Expression, schema: pa.Schema) -> Bound:
    """The expression, ready to be computed for rows of `schema`.

    Raises PredicateError that names the smallest part whose types do not fit.
    """
    try:
        return _bind(expression, schema)
    except TypeMismatch as mismatch:
        raise _misfit(expression, schema, mismatch) from None
    except pa.ArrowException as error:
        text = clipped(to_sql(expression))
        advice = "use numbers that the types of both sides can hold: smaller ones, or with fewer digits"
        raise PredicateError(f"{text!r} cannot be evaluated: {error}", advice=advice, token=text) from error


def _bind(expression: Expression, schema: pa.Schema) -> Bound:  # noqa: PLR0911, PLR0912 - a case for each kind of node
    match expression:
        case Column(path):
            return Bound(column_type(expression, schema), lambda rows: rows.column(path))
        case Literal(value):
            return constant(scalar(value))
        case And(left, right):
            return junction(bind(left, schema), bind(right, schema), stop=False)
        case Or(left, right):
            return junction(bind(left, schema), bind(right, schema), stop=True)
        case Not(inner):
            return computed(BOOLEAN, pc.invert, [as_condition(bind(inner, schema))])
        case IsNull(inner):
            return computed(BOOLEAN, pc.is_null, [bind(inner, schema)])
        case Comparison(symbol, left, right, nan_is_greatest):
            return compare(symbol, bind(left, schema), bind(right, schema), nan_is_greatest=nan_is_greatest)
        case In():
            return _in(expression, schema)
        case Like(inner, pattern, escape):
            return _like(bind(inner, schema), pattern, escape)
        case Arithmetic(symbol, left, right):
            return _arithmetic(symbol, left, right, schema)
        case Cast(inner, kind):
            return _cast(bind(inner, schema), kind)
        case Case():
            return _case(expression, schema)
        case Call(name, arguments):
            return FUNCTIONS[name].bind([bind(argument, schema) for argument in arguments])


def scalar(value: Value) -> pa.Scalar:
    """A constant in the type that Spark gives it."""
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, Interval):
            raise TypeMismatch("an interval can only be added to a date or timestamp, or subtracted from one")
        return pa.scalar(value)
    return pa.scalar(value, INT if -_INT_LIMIT <= value < _INT_LIMIT else LONG)


def _misfit(expression: Expression, schema: pa.Schema, mismatch: TypeMismatch) -> PredicateError:
    text = clipped(to_sql(expression))
    types = {to_sql(column): column_type(column, schema) for column in column_nodes(expression)}
    reason = ": " + ", ".join(f"{name} is {kind}" for name, kind in types.items()) if types else ""
    advice = str(mismatch) or "use values of one type, or CAST"
    return PredicateError(f"the types in {text!r} do not match{clipped(reason)}", advice=advice, token=text)


def _in(node: In, schema: pa.Schema) -> Bound:
    inner, values = shared(bind(node.inner, schema)), node.values
    if len(values) <= _MAX_TESTS:
        tests = [compare("=", inner, constant(scalar(value))) for value in values]
        return any_of(tests)
    # The lookup would convert a value of another type, or find nothing, where a short list is refused.
    for value in {type(value): value for value in reversed(values) if value is not None}.values():
        bind(Comparison("=", node.inner, Literal(value)), schema)
    return _in_set(inner, values)


def _in_set(inner: Bound, values: tuple[Value, ...]) -> Bound:
    """A long IN as one lookup."""
    kind = pa.float64() if pt.is_float32(inner.kind) else inner.kind
    wanted = pa.array([member for value in values for member in members(value, kind)], kind)
    null = pa.scalar(None, BOOLEAN)
    with_null = None in values

    def kernel(data: Datum) -> Datum:
        found = pc.is_in(data, value_set=wanted)
        # A null is neither in the list nor outside it. With a null in the list, neither is a value that is not found.
        found = pc.if_else(found, found, null) if with_null else found
        return pc.if_else(pc.is_valid(data), found, null)

    return computed(BOOLEAN, kernel, [converted(inner, kind)])


def _like(inner: Bound, pattern: str, escape: str) -> Bound:
    if not pt.is_string(inner.kind) and not pt.is_null(inner.kind):
        raise TypeMismatch("LIKE takes text; CAST the value to STRING")
    return computed(BOOLEAN, like.matcher(pattern, escape), [converted(inner, pa.string())])


def _arithmetic(symbol: str, left: Expression, right: Expression, schema: pa.Schema) -> Bound:
    for side, other in ((right, left), (left, right)):
        if isinstance(side, Literal) and isinstance(side.value, Interval):
            if side is left and symbol != "+":
                raise TypeMismatch
            interval = -side.value if symbol == "-" else side.value
            return arithmetic.shifted(symbol, bind(other, schema), interval)
    sides = [(bind(side, schema), _literal_decimal(side)) for side in (left, right)]
    return arithmetic.arithmetic(symbol, *sides[0], *sides[1])


def _literal_decimal(side: Expression) -> pa.DataType | None:
    """The decimal type of an integer constant next to a decimal: as many digits as it has."""
    if isinstance(side, Literal) and isinstance(side.value, int) and not isinstance(side.value, bool):
        return pa.scalar(Decimal(side.value)).type
    return None


def _cast(inner: Bound, kind: pa.DataType) -> Bound:
    found = cast_to(inner, kind)
    if found is None:
        raise TypeMismatch("cast it to another type")
    return found


def _case(case: Case, schema: pa.Schema) -> Bound:
    tests = [bind(test, schema) for test, _ in case.branches]
    results = [bind(result, schema) for _, result in case.branches]
    if case.operand is not None:
        operand = shared(bind(case.operand, schema))
        tests = [compare("=", operand, test) for test in tests]
    return choices.choose([as_condition(test) for test in tests], results, bind(case.otherwise, schema))
