"""Convert the tree to Arrow expressions, which evaluate it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data.cast import cast
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import PredicateError, SchemaMismatchError
from tidelog.log.predicate.constants import coerce, constant_of, fitting_scalar, members
from tidelog.log.predicate.parser import parse
from tidelog.log.predicate.tree import (
    And,
    Arithmetic,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Value,
    clipped,
    column_nodes,
    column_type,
    parts,
    to_sql,
)

# A longer IN list becomes a hash lookup.
_MAX_TESTS = 50
# The digits of Spark's widest decimal.
_MAX_DIGITS = 38

_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    # As in Spark, overflow is an error.
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": operator.truediv,
}


def to_arrow(expression: Expression, schema: pa.Schema) -> pc.Expression:
    """The Arrow expression that filters a table of `schema`.

    Raises PredicateError if the predicate does not fit the types of its columns.
    """
    try:
        result = _arrow(expression, schema)
        schema.empty_table().filter(result)
    except pa.ArrowException as error:
        raise _not_evaluable(expression, schema) from error
    return result


def evaluate(text: str, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """The value of the SQL expression `text` for each row of `table`, in the type of `field`.

    Raises PredicateError if it cannot be evaluated, SchemaMismatchError if a value does not fit the field.
    """
    tree = parse(text, table.schema)
    if isinstance(tree, Literal):
        constant = constant_of(coerce(tree.value, field.type), field.type)
        return pa.chunked_array([_new_value(pa.repeat(constant, table.num_rows), field)])
    if isinstance(tree, Column) and len(tree.path) == 1:
        values = table[tree.path[0]]
    else:
        try:
            values = _values(tree, table)
        except pa.ArrowException as error:
            if _failure(tree, table.schema) is not None:
                raise _not_evaluable(tree, table.schema) from error
            quoted = clipped(text)
            raise PredicateError(
                f"{quoted!r} cannot be evaluated on all rows: {error}",
                advice="leave the rows out for which it fails, or make the column wider",
                token=quoted,
            ) from error
    chunks = [_new_value(_number_for(chunk, field.type), field) for chunk in values.chunks]
    return pa.chunked_array(chunks, field.type)


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
            advice="use an expression of that type, whose values fit",
            column=field.name,
        ) from error


def _values(expression: Expression, table: pa.Table) -> pa.ChunkedArray:
    from pyarrow import acero  # noqa: PLC0415 - imports pandas, which takes longer than all the rest

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([_arrow(expression, table.schema)], ["value"]))
    return acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)["value"]


def _failure(expression: Expression, schema: pa.Schema) -> pa.ArrowException | None:
    """The error that evaluating `expression` raises for any table of `schema`, even an empty one."""
    try:
        _values(expression, schema.empty_table())
    except pa.ArrowException as error:
        return error
    return None


def _not_evaluable(expression: Expression, schema: pa.Schema) -> PredicateError:
    """The error for an expression that `schema` cannot evaluate; names the smallest part that fails."""
    part, failure = expression, _failure(expression, schema)
    while found := [(inner, error) for inner in parts(part) if (error := _failure(inner, schema)) is not None]:
        part, failure = found[0]
    text = clipped(to_sql(part))
    if failure is None:
        return PredicateError(f"{text!r} is not a condition", advice="write a comparison such as k > 5", token=text)
    if not isinstance(failure, (pa.ArrowNotImplementedError, pa.ArrowTypeError)):
        advice = "use numbers that the types of both sides can hold: smaller ones, or with fewer digits"
        return PredicateError(f"{text!r} cannot be evaluated: {failure}", advice=advice, token=text)
    types = {to_sql(column): column_type(column, schema) for column in column_nodes(part)}
    reason = ": " + ", ".join(f"{name} is {kind}" for name, kind in types.items()) if types else ""
    return PredicateError(f"the types in {text!r} do not match{reason}", advice="use values of one type", token=text)


def _number_for(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Prepare numbers for a column of another numeric type, so that the cast checks values instead of types."""
    if pt.is_floating(kind) and pt.is_decimal(values.type):
        return values.cast(kind)
    if pt.is_decimal(kind) and pt.is_integer(values.type):
        return values.cast(pa.decimal128(_MAX_DIGITS, kind.scale))
    return values


def _arrow(expression: Expression, schema: pa.Schema) -> Any:
    match expression:
        case Column(path):
            return pc.field(*path)
        case Literal(value):
            return pc.scalar(float(value) if isinstance(value, Decimal) else value)
        case Arithmetic(symbol, left, right):
            return _FUNCTIONS[symbol](*_operands(symbol, left, right, schema))
        case Comparison(symbol, left, right):
            return _FUNCTIONS[symbol](*_comparable(left, right, schema))
        case And(left, right):
            return _arrow(left, schema) & _arrow(right, schema)
        case Or(left, right):
            return _arrow(left, schema) | _arrow(right, schema)
        case Not(inner):
            return ~_arrow(inner, schema)
        case IsNull(inner):
            return _arrow(inner, schema).is_null()
        case In(inner, values):
            if len(values) > _MAX_TESTS:
                return _in_set(inner, values, schema)
            tests = [_arrow(Comparison("=", inner, Literal(value)), schema) for value in values]
            return functools.reduce(operator.or_, tests)
        case StartsWith(inner, prefix):
            return pc.starts_with(_arrow(inner, schema), prefix)
        case _:
            assert_never(expression)


def _in_set(inner: Expression, values: tuple[Value, ...], schema: pa.Schema) -> Any:
    """A long IN as one lookup. As an OR of thousands of levels it would crash Arrow, and the process with it."""
    if not isinstance(inner, Column):
        raise PredicateError(
            f"IN with more than {_MAX_TESTS} values needs a column on its left, not an expression",
            advice="use a shorter list, or a column",
            token=to_sql(inner),
        )
    for value in {type(value): value for value in reversed(values) if value is not None}.values():
        # The lookup would convert a value of another type, or find nothing, where a short list is refused.
        to_arrow(Comparison("=", inner, Literal(value)), schema)
    kind = column_type(inner, schema)
    column = _arrow(inner, schema)
    if pt.is_float32(kind):
        kind, column = pa.float64(), column.cast(pa.float64())
    wanted = pa.array([member for value in values for member in members(value, kind)], kind)
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    found = column.isin(wanted)
    # A null is neither in the list nor outside it. With a null in the list, neither is a value that is not found.
    if None in values:
        found = pc.if_else(found, found, null)
    return pc.if_else(column.is_valid(), found, null)


def _operands(symbol: str, left: Expression, right: Expression, schema: pa.Schema) -> tuple[Any, Any]:
    """Both sides of an arithmetic operation, widened so that narrow columns do not overflow.

    Spark's `/` is never integer division. Arrow would narrow a constant to the smallest type that holds it. Next to a
    decimal, a constant becomes a decimal too, so that no digit is rounded.
    """
    if symbol != "/" and any(_is_decimal(side, schema) for side in (left, right)):
        return _exact(left, schema), _exact(right, schema)
    fractional = symbol == "/" or any(_is_fraction(side) for side in (left, right))
    return _operand(left, schema, fractional=fractional), _operand(right, schema, fractional=fractional)


def _operand(side: Expression, schema: pa.Schema, *, fractional: bool) -> Any:
    if isinstance(side, Column) and pt.is_integer(column_type(side, schema)):
        return _arrow(side, schema).cast(pa.float64() if fractional else pa.int64(), safe=False)
    if isinstance(side, Literal) and isinstance(side.value, (int, float, Decimal)):
        return pc.scalar(pa.scalar(float(side.value) if fractional else side.value))
    return _arrow(side, schema).cast(pa.float64(), safe=False) if fractional else _arrow(side, schema)


def _is_decimal(side: Expression, schema: pa.Schema) -> bool:
    """Whether the value is a decimal in every row."""
    match side:
        case Column():
            return bool(pt.is_decimal(column_type(side, schema)))
        case Arithmetic(symbol, left, right):
            return symbol != "/" and any(_is_decimal(inner, schema) for inner in (left, right))
        case _:
            return False


def _exact(side: Expression, schema: pa.Schema) -> Any:
    if isinstance(side, Literal) and isinstance(side.value, (int, Decimal)) and not isinstance(side.value, bool):
        return pc.scalar(pa.scalar(Decimal(side.value)))
    return _arrow(side, schema)


def _is_fraction(side: Expression) -> bool:
    return isinstance(side, Literal) and isinstance(side.value, (float, Decimal))


def _comparable(left: Expression, right: Expression, schema: pa.Schema) -> tuple[Any, Any]:
    """Both sides of a comparison. A constant takes the type of the column that it is compared with."""
    return _compared(left, right, schema), _compared(right, left, schema)


def _compared(side: Expression, other: Expression, schema: pa.Schema) -> Any:
    """One side. An integer column compared with a fraction becomes a 64-bit float; Arrow alone would use 32 bits."""
    if isinstance(side, Column) and _is_fraction(other) and pt.is_integer(column_type(side, schema)):
        return _arrow(side, schema).cast(pa.float64(), safe=False)
    return _side(side, other, schema)


def _side(side: Expression, other: Expression, schema: pa.Schema) -> Any:
    if isinstance(side, Literal) and isinstance(other, Column):
        kind = column_type(other, schema)
        if side.value is None:
            return pc.scalar(pa.scalar(None, kind))
        return pc.scalar(fitting_scalar(side.value, kind))
    return _arrow(side, schema)
