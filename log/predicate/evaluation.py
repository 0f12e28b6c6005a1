"""Evaluate predicates and expressions on rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data.conform import cast
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import PredicateError, SchemaMismatchError
from tidelog.log.predicate import conditions, dates, numbers
from tidelog.log.predicate.casts import cast_to, coerce, constant_of, converted, decimal_to_float, members
from tidelog.log.predicate.conditions import any_of, as_condition, compare, junction
from tidelog.log.predicate.functions import FUNCTIONS
from tidelog.log.predicate.parser import parse
from tidelog.log.predicate.rows import Bound, Datum, RowBlock, computed, constant, shared
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
    nan_ordered,
    parts,
    to_sql,
)
from tidelog.log.predicate.types import BOOLEAN, INT, LONG, MAX_DIGITS, TypeMismatch, common_type, is_moment


class Condition:
    """A predicate, ready to be evaluated on rows of `schema`.

    Raises PredicateError if the predicate does not fit the types of its columns.
    """

    def __init__(self, expression: Expression, schema: pa.Schema) -> None:
        self._expression = expression
        self._bound = bind(expression, schema)
        if not pt.is_boolean(self._bound.kind):
            text = clipped(to_sql(expression))
            raise PredicateError(f"{text!r} is not a condition", advice="write a comparison such as k > 5", token=text)

    def outcomes(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """For each row: true, false or null. Raises pa.ArrowException if the predicate fails for a row."""
        return self._bound.array(RowBlock.of(rows))

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """For each row, whether the predicate is true. Raises PredicateError if it fails for a row."""
        try:
            return pc.fill_null(self.outcomes(rows), False)  # noqa: FBT003 - a value
        except pa.ArrowException as error:
            text = clipped(to_sql(self._expression))
            raise PredicateError(
                f"the predicate {text!r} cannot be evaluated on all rows: {error}",
                advice=_advice(self._expression, str(error)),
                token=text,
            ) from error


_UNREADABLE = re.compile(r"'(.*)' is not (?:a|an|true) ", re.DOTALL)


def _advice(expression: Expression, fault: str) -> str:
    """What to do about a predicate that fails for a row."""
    unreadable = _UNREADABLE.match(fault)
    if unreadable is None:
        return "test first what an expression needs, as in CASE WHEN k <> 0 THEN 100 / k > 5 END"
    if unreadable[1] in set(_texts(expression)):
        return (
            "what stands in quotation marks, also in double ones, is a text: compare a column with a constant of its "
            "type, and write the name of a column without them or in backquotes"
        )
    return "compare a column of texts with a text, such as s = '5', or test it first, as in CASE WHEN ... THEN ... END"


def _texts(expression: Expression) -> Iterator[str]:
    """The constant texts in an expression."""
    values = expression.values if isinstance(expression, In) else [getattr(expression, "value", None)]
    yield from (value for value in values if isinstance(value, str))
    for part in parts(expression):
        yield from _texts(part)


def result_type(expression: Expression, schema: pa.Schema) -> pa.DataType:
    """The type of the expression's values. Raises PredicateError if it does not fit the types of its columns."""
    return bind(expression, schema).kind


def evaluate(text: str, table: pa.Table, field: pa.Field, *, nan_is_greatest: bool = False) -> pa.ChunkedArray:
    """The value of the SQL expression `text` for each row of `table`, in the type of `field`.

    `nan_is_greatest`: comparisons in it have Spark's order of floating numbers (`nan_ordered`).

    Raises PredicateError if it cannot be evaluated, SchemaMismatchError if a value does not fit the field.
    """
    tree = _value_tree(text, table.schema, field)
    if isinstance(tree, Literal) and not isinstance(tree.value, Interval):
        constant = constant_of(coerce(tree.value, field.type), field.type)
        return pa.chunked_array([_new_value(pa.repeat(constant, table.num_rows), field)])
    if isinstance(tree, Column) and len(tree.path) == 1:
        chunks = table[tree.path[0]].chunks
    else:
        bound = bind(nan_ordered(tree) if nan_is_greatest else tree, table.schema)
        try:
            chunks = [bound.array(RowBlock.of(batch)) for batch in table.to_batches()]
        except pa.ArrowException as error:
            quoted = clipped(text)
            raise PredicateError(
                f"{quoted!r} cannot be evaluated on all rows: {error}",
                advice="leave the rows out for which it fails, or make the column wider",
                token=quoted,
            ) from error
        chunks = chunks or [pa.nulls(0, bound.kind)]
    return pa.chunked_array([_new_value(_number_for(chunk, field.type), field) for chunk in chunks], field.type)


def _value_tree(text: str, schema: pa.Schema, field: pa.Field) -> Expression:
    """The tree of a new value for a column. Raises PredicateError, which says how a text is written."""
    try:
        return parse(text, schema)
    except PredicateError as error:
        if not pt.is_string(field.type) or not isinstance(text, str):
            raise
        quoted = to_sql(Literal(clipped(text)))
        raise PredicateError(
            f"the new value of {field.name!r} is no SQL expression: {error.message}",
            advice=f'{error.advice}; a new value is SQL: the text itself is written "{quoted}"',
            token=clipped(text),
        ) from error


def _new_value(values: pa.Array, field: pa.Field) -> pa.Array:
    """The values in the type of `field`. Raises SchemaMismatchError if one does not fit."""
    try:
        return cast(values, field, field.name)
    except SchemaMismatchError as error:
        if not field.nullable and values.null_count:
            raise SchemaMismatchError(
                f"the new value of {field.name!r} is null in {values.null_count} of the rows, but the column cannot "
                "be null",
                advice="use an expression that is never null",
                column=field.name,
            ) from error
        detail = f" ({error.__cause__})" if error.__cause__ else ""
        raise SchemaMismatchError(
            f"the new value of {field.name!r} is {sql_type(values.type)}, but the column is {sql_type(field.type)}"
            f"{detail}",
            advice=f"use an expression of that type, whose values fit{_example(field.type)}",
            column=field.name,
        ) from error


def _example(kind: pa.DataType) -> str:
    if pt.is_date(kind):
        return ", such as DATE '2026-01-31'"
    return ", such as TIMESTAMP '2026-01-31 12:00:00Z'" if pt.is_timestamp(kind) else ""


def _number_for(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Prepare numbers for a column of another numeric type, so that the cast checks values instead of types."""
    if pt.is_floating(kind) and pt.is_decimal(values.type):
        return decimal_to_float(kind, values)
    if pt.is_decimal(kind) and pt.is_integer(values.type):
        return values.cast(pa.decimal128(MAX_DIGITS, kind.scale))
    return values


# A longer IN list becomes a hash lookup.
_MAX_TESTS = 50
_INT_LIMIT = 2**31
# How a date without quotes is read: as two subtractions.
_BARE_DATE = re.compile(r"\(\((\d{4}) - (\d{1,2})\) - (\d{1,2})\)")


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
    bare = _BARE_DATE.search(text)
    advice = "use values of one type, or CAST"
    if bare:
        year, month, day = map(int, bare.groups())
        advice = f"write a date in quotes, as in '{year}-{month:02}-{day:02}'"
    advice = str(mismatch) or advice
    return PredicateError(f"the types in {text!r} do not match{clipped(reason)}", advice=advice, token=text)


def _in(node: In, schema: pa.Schema) -> Bound:
    inner, values = bind(node.inner, schema), node.values
    kind = _texts_read_as(inner.kind, values)
    if kind is not None and len(values) <= _MAX_TESTS:
        inner = shared(converted(inner, kind))
        return any_of([compare("=", inner, converted(constant(scalar(value)), kind)) for value in values])
    if kind is not None:
        return _in_set(converted(inner, kind), kind, values)
    if len(values) <= _MAX_TESTS:
        inner = shared(inner)
        return any_of([compare("=", inner, constant(scalar(value))) for value in values])
    # The lookup would convert a value of another type, or find nothing, where a short list is refused.
    for value in {type(value): value for value in reversed(values) if value is not None}.values():
        bind(Comparison("=", node.inner, Literal(value)), schema)
    return _in_set(inner, pa.float64() if pt.is_float32(inner.kind) else inner.kind, values)


def _texts_read_as(kind: pa.DataType, values: Sequence[Value]) -> pa.DataType | None:
    """The type of all sides of an IN where texts stand beside values of other types; None if they do not.

    A constant text beside a date or a timestamp is read by the comparison.
    """
    texts = sum(isinstance(value, str) for value in values)
    others = len(values) - values.count(None) - texts
    if not (others if pt.is_string(kind) else texts) or is_moment(kind):
        return None
    found = common_type([kind, *(scalar(value).type for value in values)])
    if found is None:
        raise TypeMismatch
    return found


def _in_set(inner: Bound, kind: pa.DataType, values: Sequence[Value]) -> Bound:
    """A long IN as one lookup, of values of the type `kind`."""
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
    return computed(BOOLEAN, conditions.like_matcher(pattern, escape), [converted(inner, pa.string())])


def _arithmetic(symbol: str, left: Expression, right: Expression, schema: pa.Schema) -> Bound:
    for side, other in ((right, left), (left, right)):
        if isinstance(side, Literal) and isinstance(side.value, Interval):
            if side is left and symbol != "+":
                raise TypeMismatch
            interval = -side.value if symbol == "-" else side.value
            return dates.shifted(symbol, bind(other, schema), interval)
    sides = [(bind(side, schema), _literal_decimal(side)) for side in (left, right)]
    return numbers.arithmetic(symbol, *sides[0], *sides[1])


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
    return conditions.choose([as_condition(test) for test in tests], results, bind(case.otherwise, schema))
