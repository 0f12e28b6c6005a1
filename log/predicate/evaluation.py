"""Evaluate predicates and expressions on rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.log.data.conform import cast
from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import PredicateError, SchemaMismatchError
from tidelog.log.predicate.binding import bind
from tidelog.log.predicate.constants import coerce, constant_of
from tidelog.log.predicate.nan_order import nan_ordered
from tidelog.log.predicate.parser import parse
from tidelog.log.predicate.rows import RowBlock
from tidelog.log.predicate.tree import Column, Expression, Interval, Literal, clipped, to_sql
from tidelog.log.predicate.types import MAX_DIGITS


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
                advice="test first what an expression needs, as in CASE WHEN k <> 0 THEN 100 / k > 5 END",
                token=text,
            ) from error


def result_type(expression: Expression, schema: pa.Schema) -> pa.DataType:
    """The type of the expression's values. Raises PredicateError if it does not fit the types of its columns."""
    return bind(expression, schema).kind


def evaluate(text: str, table: pa.Table, field: pa.Field, *, nan_is_greatest: bool = False) -> pa.ChunkedArray:
    """The value of the SQL expression `text` for each row of `table`, in the type of `field`.

    `nan_is_greatest`: comparisons in it have Spark's order of floating numbers (`nan_ordered`).

    Raises PredicateError if it cannot be evaluated, SchemaMismatchError if a value does not fit the field.
    """
    tree = parse(text, table.schema)
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


def _number_for(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Prepare numbers for a column of another numeric type, so that the cast checks values instead of types."""
    if pt.is_floating(kind) and pt.is_decimal(values.type):
        return values.cast(kind)
    if pt.is_decimal(kind) and pt.is_integer(values.type):
        return values.cast(pa.decimal128(MAX_DIGITS, kind.scale))
    return values
