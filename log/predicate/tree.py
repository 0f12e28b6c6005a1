"""The tree of a predicate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias, assert_never

import pyarrow as pa

Value: TypeAlias = str | int | float | bool | Decimal | date | datetime | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; `path` has one name, or more for a field of a struct."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right`; operator is one of + - * /."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right`; operator is one of = != < <= > >=."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class And:
    """Both sides."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Or:
    """Either side."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null stays null."""

    inner: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is missing."""

    inner: Expression


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value is one of `values`; a null among them makes a miss null, as SQL has it."""

    inner: Expression
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class StartsWith:
    """LIKE 'prefix%'."""

    inner: Expression
    prefix: str


Expression: TypeAlias = Column | Literal | Arithmetic | Comparison | And | Or | Not | IsNull | In | StartsWith


def columns(expression: Expression) -> set[str]:
    """The top-level columns that `expression` reads."""
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


def depth(expression: Expression) -> int:
    """How many levels an expression has."""
    match expression:
        case Column() | Literal():
            return 1
        case Not(inner) | IsNull(inner) | In(inner, _) | StartsWith(inner, _):
            return 1 + depth(inner)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return 1 + max(depth(left), depth(right))
        case _:
            assert_never(expression)


def column_type(column: Column, schema: pa.Schema) -> pa.DataType:
    """The Arrow type of a column or nested field."""
    kind: Any = pa.struct(list(schema))
    for name in column.path:
        kind = kind.field(kind.get_field_index(name)).type
    return kind
