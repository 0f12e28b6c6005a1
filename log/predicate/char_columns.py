"""Columns of the type CHAR(n), which Spark pads with spaces: the values to n characters, and what they are compared to.

The table calls such a column a string; its field's metadata has the type. A value in a file can be shorter, if it
partitions the table or another writer than Spark wrote it. As in a query of Spark:

| text, with `c CHAR(5)` and `d CHAR(3)` | meaning |
|---|---|
| `length(c)`, `c LIKE 'ab   '`, `c = some_string` | of the value, padded to 5 characters |
| `c = 'ab'`, also `<=>`, `<`, IN and CASE c WHEN | the constant is padded, too; to the longer of both |
| `c = d` | both are padded to 5 |
| `c BETWEEN 'a' AND 'ab'`, `nullif(c, 'ab')`, `c IN (d, 'ab')`, `c IN ('ab', NULL)` | only values of columns are |
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from tidelog.log.errors import PredicateError
from tidelog.log.format.schema import SPARK_TYPE
from tidelog.log.predicate.evaluation import bind
from tidelog.log.predicate.rows import constant_value, is_text_constant
from tidelog.log.predicate.tree import (
    Call,
    Case,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    clipped,
    column_field,
    columns,
    parts,
    to_sql,
    with_parts,
)

_NO_COLUMNS = pa.schema([])
# Each value of a batch is padded, so a greater length could fill the memory.
MAX_LENGTH = 4_096
_CHAR = re.compile(rb"char\(([0-9]{1,9})\)", re.IGNORECASE)


def char_length(expression: Expression, schema: pa.Schema) -> int | None:
    """The length of a column of the type CHAR(n); None for anything else."""
    if not isinstance(expression, Column):
        return None
    found = _CHAR.fullmatch((column_field(expression, schema).metadata or {}).get(SPARK_TYPE, b""))
    return int(found[1]) if found else None


def with_padding(node: Expression, schema: pa.Schema) -> Expression:
    """The expression with the padding that Spark adds for columns of the type CHAR(n)."""
    match node:
        case Column():
            return _to(char_length(node, schema) or 0, node)
        case IsNull(Column()) | Call("isnull" | "isnotnull", (Column(),)):
            return node
        case Comparison(_, left, right) | Call("<=>", (left, right)):
            return with_parts(node, _alike((left, right), schema))
        case Call("in", (value, *others)) if len(set(others)) == 1 or all(map(_is_constant_text, others)):
            return with_parts(node, _alike((value, *others), schema))
        case In(inner, values):
            side, *constants = _alike((inner, *map(Literal, values)), schema)
            return In(side, tuple(each.value for each in constants if isinstance(each, Literal)))
        case Case(operand, branches, otherwise) if operand is not None:
            tests = tuple(
                (with_padding(Comparison("=", operand, test), schema), with_padding(result, schema))
                for test, result in branches
            )
            return Case(None, tests, with_padding(otherwise, schema))
        case _:
            return with_parts(node, _each(node, schema))


def _each(node: Expression, schema: pa.Schema) -> list[Expression]:
    return [with_padding(part, schema) for part in parts(node)]


def _alike(sides: Sequence[Expression], schema: pa.Schema) -> list[Expression]:
    """The sides of a comparison: of one length, if all are columns of the type CHAR(n) and constant texts."""
    chars = [char_length(side, schema) for side in sides]
    texts = [_text_of(side) for side in sides]
    lengths = [len(text) if text is not None else length for length, text in zip(chars, texts, strict=True)]
    known = [length for length in lengths if length is not None]
    if not any(chars) or len(known) < len(sides):
        return [with_padding(side, schema) for side in sides]
    return [_to(max(known), side if text is None else Literal(text)) for side, text in zip(sides, texts, strict=True)]


def _to(length: int, node: Expression) -> Expression:
    """A text with at least so many characters."""
    if length > MAX_LENGTH:
        raise PredicateError(
            f"{clipped(to_sql(node))} would be padded to {length:,} characters, as it is compared with a CHAR(n)",
            advice=f"use a text of at most {MAX_LENGTH:,} characters, or read the rows and compare them yourself",
            token=clipped(to_sql(node)),
        )
    if isinstance(node, Literal):
        return Literal(str(node.value).ljust(length))
    return Call("padded", (node, Literal(length))) if length else node


def _text_of(side: Expression) -> str | None:
    """The value of a constant text."""
    if isinstance(side, Column) or columns(side):
        return None
    try:
        bound = bind(side, _NO_COLUMNS)
    except PredicateError:
        return None
    value = constant_value(bound) if is_text_constant(bound) else None
    return None if value is None else str(value)


def _is_constant_text(side: Expression) -> bool:
    return _text_of(side) is not None
