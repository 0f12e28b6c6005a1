"""The tree of a predicate, and questions about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias, assert_never

import pyarrow as pa

from tidelog.log.data.type_names import sql_type
from tidelog.log.errors import PredicateError


@dataclass(frozen=True, slots=True)
class Interval:
    """A span of time. `microseconds` is None if it has whole days only, which keeps a date a date."""

    months: int = 0
    days: int = 0
    microseconds: int | None = None

    @property
    def total_microseconds(self) -> int:
        """Its length without the months. A day has 24 hours."""
        return self.days * 86_400_000_000 + (self.microseconds or 0)

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, None if self.microseconds is None else -self.microseconds)


Value: TypeAlias = str | int | float | bool | Decimal | date | datetime | Interval | None

MAX_CONDITIONS = 500
"""No predicate has more. Judging one condition by a table's statistics takes about a millisecond."""

_ZONED = "TIMESTAMP '{0:%Y-%m-%d %H:%M:%S.%f}Z'"
_UNZONED = "TIMESTAMP_NTZ '{0:%Y-%m-%d %H:%M:%S.%f}'"
_DAY = "DATE '{0:%Y-%m-%d}'"
# The functions of the current time: the constant in their place, and whether Spark takes them without parentheses, too.
CURRENT = {
    "current_timestamp": (_ZONED, True),
    "now": (_ZONED, False),
    "current_date": (_DAY, True),
    "curdate": (_DAY, False),
    "localtimestamp": (_UNZONED, False),
}

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
    """`left operator right`, with one of + - * / % DIV."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right`, with one of = != < <= > >=. `nan_is_greatest`: NaN equals itself and is above numbers."""

    operator: str
    left: Expression
    right: Expression
    nan_is_greatest: bool = False


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
class Like:
    """`inner LIKE pattern ESCAPE escape`."""

    inner: Expression
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True, slots=True)
class Cast:
    """CAST(inner AS kind)."""

    inner: Expression
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Case:
    """CASE, with or without an operand. Each branch is a condition, or a value of the operand, and a result."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A function, by its name in lowercase."""

    name: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = (
    Column | Literal | Arithmetic | Comparison | And | Or | Not | IsNull | In | Like | Cast | Case | Call
)


def columns(expression: Expression) -> set[str]:
    """The names of the top-level columns that `expression` reads."""
    return {column.path[0] for column in column_nodes(expression)}


def columns_of_parts(expression: Expression) -> dict[int, frozenset[str]]:
    """What `columns` gives for the expression and for each part of it, however deep: by the part's identity, `id`."""
    found: dict[int, frozenset[str]] = {}

    def note(node: Expression) -> frozenset[str]:
        own = frozenset(node.path[:1]) if isinstance(node, Column) else frozenset()
        found[id(node)] = own.union(*map(note, parts(node)))
        return found[id(node)]

    note(expression)
    return found


def column_nodes(expression: Expression) -> list[Column]:
    """The columns and fields in `expression`, in order and with repetitions."""
    if isinstance(expression, Column):
        return [expression]
    return [column for part in parts(expression) for column in column_nodes(part)]


def depth(expression: Expression) -> int:
    """The number of levels of an expression."""
    return 1 + max((depth(part) for part in parts(expression)), default=0)


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside this one."""
    match expression:
        case Column() | Literal():
            return ()
        case Not(inner) | IsNull(inner) | In(inner, _) | Like(inner, _, _) | Cast(inner, _):
            return (inner,)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return left, right
        case Case(operand, branches, otherwise):
            first = () if operand is None else (operand,)
            return (*first, *(part for branch in branches for part in branch), otherwise)
        case Call(_, arguments):
            return arguments
        case _:
            assert_never(expression)


def with_parts(expression: Expression, new: Sequence[Expression]) -> Expression:
    """The same expression with other `parts`."""
    match expression:
        case Column() | Literal():
            return expression
        case Not() | IsNull() | In() | Like() | Cast():
            return replace(expression, inner=new[0])
        case Arithmetic() | Comparison() | And() | Or():
            return replace(expression, left=new[0], right=new[1])
        case Case(operand, _, _):
            first = 0 if operand is None else 1
            rest = new[first:-1]
            branches = tuple(zip(rest[::2], rest[1::2], strict=True))
            return Case(new[0] if first else None, branches, new[-1])
        case Call(name, _):
            return Call(name, tuple(new))
        case _:
            assert_never(expression)


def to_sql(expression: Expression) -> str:  # noqa: PLR0912 - a case for each kind of node
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
        case Like(inner, pattern, escape):
            ending = "" if escape == "\\" else f" ESCAPE {_sql_literal(escape)}"
            return f"{_operand_sql(inner)} LIKE {_sql_literal(pattern)}{ending}"
        case Cast(inner, kind):
            return f"CAST({to_sql(inner)} AS {sql_type(kind).upper()})"
        case Case(operand, branches, otherwise):
            start = "" if operand is None else f" {to_sql(operand)}"
            tests = "".join(f" WHEN {to_sql(test)} THEN {to_sql(result)}" for test, result in branches)
            return f"CASE{start}{tests} ELSE {to_sql(otherwise)} END"
        case Call(name, arguments):
            return _call_sql(name, arguments)
        case _:
            assert_never(expression)


def _call_sql(name: str, arguments: tuple[Expression, ...]) -> str:
    if name == "negative":
        return f"-{_operand_sql(arguments[0])}"
    if name == "padded":
        name = "rpad"
    if name in ("||", "<=>"):
        return f" {name} ".join(map(_operand_sql, arguments))
    return f"{name}({', '.join(map(to_sql, arguments))})"


def clipped(text: str) -> str:
    """The start of a SQL text, short enough for an error message."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def too_long(text: str, bound: str) -> PredicateError:
    """The error for a predicate beyond a bound."""
    advice = "write a long OR of one column as IN (...), or run the operation in parts"
    return PredicateError(f"the predicate has {bound}", advice=advice, token=clipped(text))


def _operand_sql(expression: Expression) -> str:
    text = to_sql(expression)
    return text if _is_atom(expression) else f"({text})"


def _is_atom(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return expression.name.isidentifier() and expression.name != "negative"
    return isinstance(expression, Column | Literal | Cast | Case)


def _side_sql(expression: Expression, other: type[And | Or]) -> str:
    text = to_sql(expression)
    return f"({text})" if isinstance(expression, other) else text


def backquoted(name: str) -> str:
    """A name in SQL, whatever its characters are."""
    return "`" + name.replace("`", "``") + "`"


def _quoted_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else backquoted(name)


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
        case Interval():
            return _sql_interval(value)
        case _:
            return str(value)


def _sql_interval(value: Interval) -> str:
    if value.months:
        return f"INTERVAL {value.months} MONTH"
    if value.microseconds is None:
        return f"INTERVAL {value.days} DAY"
    return f"INTERVAL {Decimal(value.total_microseconds) / 1_000_000:f} SECOND"


def column_type(column: Column, schema: pa.Schema) -> pa.DataType:
    """The Arrow type of a column or nested field."""
    return column_field(column, schema).type


def column_field(column: Column, schema: pa.Schema) -> pa.Field:
    """A column of the schema, or a nested field."""
    found: Any = pa.field("", pa.struct(list(schema)))
    for name in column.path:
        found = found.type.field(found.type.get_field_index(name))
    return found


# --- Spark's order of floating numbers --------------------------------------------------------------------------------


def nan_ordered(expression: Expression) -> Expression:
    """The expression with all of its comparisons in Spark's order.

    `In` has constants only, and none is NaN, so its meaning is the same in both.
    """
    expression = with_parts(expression, [nan_ordered(part) for part in parts(expression)])
    match expression:
        case Comparison():
            return replace(expression, nan_is_greatest=True)
        case Case(operand, branches, otherwise) if operand is not None:
            return Case(None, tuple((_compared("=", operand, test), found) for test, found in branches), otherwise)
        case Call("between", (value, low, high)):
            return And(_compared(">=", value, low), _compared("<=", value, high))
        case Call("in", (value, *others)):
            return _any_of([_compared("=", value, other) for other in others])
        case Call("nullif", (value, other)):
            return Case(None, ((_compared("=", value, other), Literal(None)),), value)
        case Call("<=>", (left, right)):
            neither_null = And(Not(IsNull(left)), Not(IsNull(right)))
            return Or(And(IsNull(left), IsNull(right)), And(neither_null, _compared("=", left, right)))
        case _:
            return expression


def _compared(symbol: str, left: Expression, right: Expression) -> Comparison:
    return Comparison(symbol, left, right, nan_is_greatest=True)


def _any_of(tests: Sequence[Expression]) -> Expression:
    """Whether one is true, as a tree that is not deep."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return Or(_any_of(tests[:middle]), _any_of(tests[middle:]))
