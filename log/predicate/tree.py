"""The tree of a predicate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias, assert_never

import pyarrow as pa

Value: TypeAlias = str | int | float | bool | Decimal | date | datetime | None

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_LONGEST_QUOTE = 200


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. `path` has one name, or several for a field of a struct."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right`, with one of + - * /."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right`, with one of = != < <= > >=."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class And:
    """True if both sides are."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Or:
    """True if either side is."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite. Null stays null."""

    inner: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is null."""

    inner: Expression


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value is one of `values`. As in SQL, a null among them turns a miss into null."""

    inner: Expression
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class StartsWith:
    """LIKE 'prefix%'."""

    inner: Expression
    prefix: str


Expression: TypeAlias = Column | Literal | Arithmetic | Comparison | And | Or | Not | IsNull | In | StartsWith


def columns(expression: Expression) -> set[str]:
    """The names of the top-level columns that `expression` reads."""
    match expression:
        case Column(path):
            return {path[0]}
        case Literal():
            return set()
        case Not(inner) | IsNull(inner) | In(inner, _) | StartsWith(inner, _):
            return columns(inner)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return columns(left) | columns(right)
        case _:
            assert_never(expression)


def column_nodes(expression: Expression) -> list[Column]:
    """The columns and fields in `expression`, in order and with repetitions."""
    if isinstance(expression, Column):
        return [expression]
    return [column for part in parts(expression) for column in column_nodes(part)]


def depth(expression: Expression) -> int:
    """The number of levels of an expression."""
    match expression:
        case Column() | Literal():
            return 1
        case Not(inner) | IsNull(inner) | In(inner, _) | StartsWith(inner, _):
            return 1 + depth(inner)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return 1 + max(depth(left), depth(right))
        case _:
            assert_never(expression)


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside this one."""
    match expression:
        case Column() | Literal():
            return ()
        case Not(inner) | IsNull(inner) | In(inner, _) | StartsWith(inner, _):
            return (inner,)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return left, right
        case _:
            assert_never(expression)


def to_sql(expression: Expression) -> str:
    """The expression as SQL text, for error messages."""
    match expression:
        case Column(path):
            return ".".join(_quoted_name(name) for name in path)
        case Literal(value):
            return _sql_literal(value)
        case Arithmetic(symbol, left, right) | Comparison(symbol, left, right):
            return f"{_operand_sql(left)} {symbol} {_operand_sql(right)}"
        case And(left, right):
            return f"{_side_sql(left, Or)} AND {_side_sql(right, Or)}"
        case Or(left, right):
            return f"{_side_sql(left, And)} OR {_side_sql(right, And)}"
        case Not(inner):
            return f"NOT {_operand_sql(inner)}"
        case IsNull(inner):
            return f"{_operand_sql(inner)} IS NULL"
        case In(inner, values):
            return f"{_operand_sql(inner)} IN ({', '.join(map(_sql_literal, values))})"
        case StartsWith(inner, prefix):
            return f"{_operand_sql(inner)} LIKE {_sql_literal(f'{prefix}%')}"
        case _:
            assert_never(expression)


def clipped(text: str) -> str:
    """The start of a SQL text, short enough for an error message."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def _operand_sql(expression: Expression) -> str:
    text = to_sql(expression)
    return text if isinstance(expression, Column | Literal) else f"({text})"


def _side_sql(expression: Expression, other: type[And | Or]) -> str:
    text = to_sql(expression)
    return f"({text})" if isinstance(expression, other) else text


def _quoted_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _sql_literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case datetime():
            return f"{'TIMESTAMP' if value.tzinfo else 'TIMESTAMP_NTZ'} '{value}'"
        case date():
            return f"DATE '{value}'"
        case _:
            return str(value)


def column_type(column: Column, schema: pa.Schema) -> pa.DataType:
    """The Arrow type of a column or nested field."""
    kind: Any = pa.struct(list(schema))
    for name in column.path:
        kind = kind.field(kind.get_field_index(name)).type
    return kind
