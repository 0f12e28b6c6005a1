"""Predicates: SQL text (Spark's dialect) to a small tree, and from the tree to what evaluates it.

What a text may hold: comparisons, AND/OR/NOT, IN, BETWEEN, IS NULL, LIKE 'prefix%', arithmetic, over the table's
columns (nested ones by dots). Anything else is a PredicateError naming the token. SQL's three-valued logic holds: a row
is kept only where the predicate is true, not where it is null.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import sqlglot
from sqlglot import exp

from tidelog.log.cast import cast
from tidelog.log.errors import PredicateError

_BEYOND_INTEGERS = 2**63
# Python's own limit is a thousand calls, of which each level takes some; Arrow's ends the process.
_MAX_DEPTH = 450
# A longer IN list becomes a look-up.
_MAX_TESTS = 50
# Of Spark's widest decimal.
_MAX_DIGITS = 38

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

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
# The parts of a parsed node that are looked at. A part that is not would change the meaning unseen.
_UNDERSTOOD = {
    "this",
    "expression",
    "expressions",
    "low",
    "high",
    "negate",
    "is_string",
    "table",
    "db",
    "to",
    "typed",
    "safe",
}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    # Checked: a sum that does not fit is an error, as in Spark, not another number.
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": operator.truediv,
}


def parse(text: str, schema: pa.Schema) -> Expression:
    """The tree of `text`, its columns found in `schema` (case does not matter, as in Spark). Raises PredicateError."""
    if not isinstance(text, str):
        raise PredicateError(f"a predicate is SQL text, not a {type(text).__name__}", token=str(text))
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
        found = _Builder(schema).build(tree)
        too_deep = _depth(found) > _MAX_DEPTH
    except sqlglot.errors.SqlglotError as error:
        raise PredicateError(f"the predicate cannot be parsed: {error}", token=text) from error
    except RecursionError:
        too_deep = True
    if too_deep:
        advice = "write a long OR of one column as IN (...)"
        raise PredicateError("the predicate is nested too deeply", advice=advice, token=text[:100])
    return found


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


def _depth(expression: Expression) -> int:
    """How many levels an expression has."""
    match expression:
        case Column() | Literal():
            return 1
        case Not(inner) | IsNull(inner) | In(inner, _) | StartsWith(inner, _):
            return 1 + _depth(inner)
        case Arithmetic(_, left, right) | Comparison(_, left, right) | And(left, right) | Or(left, right):
            return 1 + max(_depth(left), _depth(right))
        case _:
            assert_never(expression)


def to_arrow(expression: Expression, schema: pa.Schema) -> pc.Expression:
    """The Arrow expression that filters a table of `schema`. Raises PredicateError for types that do not compare."""
    result = _arrow(expression, schema)
    try:
        schema.empty_table().filter(result)
    except pa.ArrowException as error:
        raise PredicateError(f"the predicate does not fit the table's types: {error}", token=str(expression)) from error
    return result


def evaluate(text: str, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """The value of the SQL expression `text` for each row of `table`, in the type of `field`.

    Raises PredicateError where it cannot be evaluated, SchemaMismatchError where a value does not fit the field.
    """
    tree = parse(text, table.schema)
    if isinstance(tree, Literal):
        constant = _constant_of(_coerce(tree.value, field.type), field.type)
        return pa.chunked_array([cast(pa.repeat(constant, table.num_rows), field, field.name)])
    if isinstance(tree, Column) and len(tree.path) == 1:
        values = table[tree.path[0]]
    else:
        # Brings pandas with it, which takes longer to import than all the rest.
        from pyarrow import acero  # noqa: PLC0415

        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        project = acero.Declaration("project", acero.ProjectNodeOptions([_arrow(tree, table.schema)], ["value"]))
        try:
            values = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)["value"]
        except pa.ArrowException as error:
            raise PredicateError(f"{text!r} cannot be evaluated on all rows: {error}", token=text) from error
    chunks = [cast(_number_for(chunk, field.type), field, field.name) for chunk in values.chunks]
    return pa.chunked_array(chunks, field.type)


def _constant_of(value: Value, kind: pa.DataType) -> pa.Scalar:
    """A constant as near to the type of a column as its meaning allows; `cast` judges the rest."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if pt.is_floating(kind):
            return pa.scalar(float(value), kind)
        if pt.is_decimal(kind) and isinstance(value, int):
            return pa.scalar(Decimal(value))
    return pa.scalar(value)


def _number_for(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers on their way into a column of another kind of number: judged by their digits, not by their type's."""
    if pt.is_floating(kind) and pt.is_decimal(values.type):
        return values.cast(kind)
    if pt.is_decimal(kind) and pt.is_integer(values.type):
        return values.cast(pa.decimal128(_MAX_DIGITS, kind.scale))
    return values


class _Builder:
    """From sqlglot's tree to ours."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def build(self, node: exp.Expr) -> Expression:
        """The tree of `node`. Raises PredicateError for a node, or a part of one, that is not evaluated."""
        if any(value for name, value in node.args.items() if name not in _UNDERSTOOD):
            raise _unsupported(node)
        return Not(self._positive(node)) if node.args.get("negate") else self._positive(node)

    def _positive(self, node: exp.Expr) -> Expression:
        if type(node) in _COMPARISONS:
            return Comparison(_COMPARISONS[type(node)], self.build(node.this), self.build(node.expression))
        if type(node) in _ARITHMETIC:
            return Arithmetic(_ARITHMETIC[type(node)], self.build(node.this), self.build(node.expression))
        match node:
            case exp.Paren():
                return self.build(node.this)
            case exp.And():
                return And(self.build(node.left), self.build(node.right))
            case exp.Or():
                return Or(self.build(node.left), self.build(node.right))
            case exp.Not():
                return Not(self.build(node.this))
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                value = self.build(node.this)
                low, high = self.build(node.args["low"]), self.build(node.args["high"])
                return And(Comparison(">=", value, low), Comparison("<=", value, high))
            case exp.Like():
                return self._like(node)
            case exp.Column() | exp.Dot():
                return self._column(node)
            case _:
                return Literal(self._constant(node))

    def _is(self, node: exp.Is) -> Expression:
        if isinstance(node.expression, exp.Null):
            return IsNull(self.build(node.this))
        raise _unsupported(node)

    def _in(self, node: exp.In) -> Expression:
        if not node.expressions:
            raise _unsupported(node)
        return In(self.build(node.this), tuple(self._constant(value) for value in node.expressions))

    def _like(self, node: exp.Like) -> Expression:
        pattern = self._constant(node.expression)
        if not isinstance(pattern, str) or "_" in pattern or "%" in pattern[:-1] or "\\" in pattern:
            raise _unsupported(node)
        if pattern.endswith("%"):
            return StartsWith(self.build(node.this), pattern[:-1])
        return Comparison("=", self.build(node.this), Literal(pattern))

    def _column(self, node: exp.Column | exp.Dot) -> Column:
        names = [identifier.name for identifier in node.find_all(exp.Identifier, bfs=False)]
        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else names
        kind: Any = pa.struct(list(self._schema))
        path = []
        for part in parts:
            fields = [kind.field(index) for index in range(kind.num_fields)] if pt.is_struct(kind) else []
            found = [field for field in fields if field.name == part] or [
                field for field in fields if field.name.lower() == part.lower()
            ]
            if not found:
                known = ", ".join(self._schema.names)
                raise PredicateError(
                    f"there is no column {'.'.join(parts)!r}", advice=f"the columns are {known}", token=part
                )
            path.append(found[0].name)
            kind = found[0].type
        return Column(tuple(path))

    def _constant(self, node: exp.Expr) -> Value:
        match node:
            case exp.Literal() if node.is_string:
                return str(node.this)
            case exp.Literal():
                return _number(str(node.this))
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Paren():
                return self._constant(node.this)
            case exp.Neg() if isinstance(node.this, (exp.Literal, exp.Paren, exp.Neg)):
                if isinstance(node.this, exp.Literal) and not node.this.is_string:
                    return _number(f"-{node.this.this}")
                value = self._constant(node.this)
                if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                    return -value
                raise _unsupported(node)
            case exp.Cast():
                return self._typed_constant(node)
            case _:
                raise _unsupported(node)

    def _typed_constant(self, node: exp.Cast) -> Value:
        """DATE '2013-01-01' and TIMESTAMP '...', which sqlglot reads as casts."""
        if not isinstance(node.this, exp.Literal) or not node.this.is_string:
            raise _unsupported(node)
        value = str(node.this.this)
        if node.to.is_type("date"):
            return _coerce(value, pa.date32())
        if node.to.is_type("timestamp", "timestamptz", "timestampltz"):
            return _coerce(value, pa.timestamp("us", tz="UTC"))
        if node.to.is_type("timestampntz"):
            return _coerce(value, pa.timestamp("us"))
        raise _unsupported(node)


def _number(text: str) -> Value:
    if text.removeprefix("-").isdigit():
        # Beyond 64 bits no column holds the number, and comparing needs no more than its size.
        return int(text) if -_BEYOND_INTEGERS <= int(text) < _BEYOND_INTEGERS else float(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _unsupported(node: exp.Expr) -> PredicateError:
    text = node.sql(dialect="spark")
    return PredicateError(
        f"{text!r} is not supported in a predicate",
        advice="use comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE 'prefix%' and arithmetic over columns",
        token=text,
    )


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
    """A long IN as one look-up: as an OR Arrow would walk down thousands of levels, which ends the process."""
    if not isinstance(inner, Column):
        raise PredicateError(
            f"more than {_MAX_TESTS} values are compared with an expression", advice="use a column", token=str(inner)
        )
    kind = column_type(inner, schema)
    column = _arrow(inner, schema)
    if pt.is_float32(kind):
        kind, column = pa.float64(), column.cast(pa.float64())
    wanted = pa.array([member for value in values for member in _members(value, kind)], kind)
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    found = column.isin(wanted)
    # A null is neither in nor out; nor is anything else, of which a null might be the equal.
    if None in values:
        found = pc.if_else(found, found, null)
    return pc.if_else(column.is_valid(), found, null)


def _members(value: Value, kind: pa.DataType) -> list[Value]:
    """The constant as a value of the type, or nothing where no value of it is its equal."""
    coerced = _coerce(value, kind)
    if coerced is None:
        return []
    if isinstance(coerced, (int, float, Decimal)) and not isinstance(coerced, bool):
        if pt.is_floating(kind):
            return [float(coerced)]
        if pt.is_integer(kind) and coerced != int(coerced):
            return []
        coerced = int(coerced) if pt.is_integer(kind) else Decimal(coerced)
    try:
        return [pa.scalar(coerced, kind).as_py()]
    except pa.ArrowInvalid as error:
        if pt.is_integer(kind) or pt.is_decimal(kind):  # too large, or with digits that the column lacks
            return []
        raise PredicateError(f"{value!r} does not compare with a column of type {kind}", token=str(value)) from error
    except pa.ArrowTypeError as error:
        raise PredicateError(f"{value!r} does not compare with a column of type {kind}", token=str(value)) from error


def _operands(symbol: str, left: Expression, right: Expression, schema: pa.Schema) -> tuple[Any, Any]:
    """Both sides of an arithmetic operation, wide enough not to overflow where a column is narrow.

    Spark's `/` is never integer division. Arrow would narrow a constant to the smallest type that holds it. Beside a
    decimal a constant is one, so that no digit is rounded.
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
    """Whether a side's value is a decimal in every row."""
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
    """Both sides, a constant taking the type of the column that it stands beside."""
    return _compared(left, right, schema), _compared(right, left, schema)


def _compared(side: Expression, other: Expression, schema: pa.Schema) -> Any:
    """One side; an integer column beside a fraction as a float of 64 bits, which Arrow would take one of 32 for."""
    if isinstance(side, Column) and _is_fraction(other) and pt.is_integer(column_type(side, schema)):
        return _arrow(side, schema).cast(pa.float64(), safe=False)
    return _side(side, other, schema)


def _side(side: Expression, other: Expression, schema: pa.Schema) -> Any:
    if isinstance(side, Literal) and isinstance(other, Column):
        kind = column_type(other, schema)
        if side.value is None:
            return pc.scalar(pa.scalar(None, kind))
        return pc.scalar(_fitting_scalar(side.value, kind))
    return _arrow(side, schema)


def _fitting_scalar(value: Value, kind: pa.DataType) -> pa.Scalar:
    """The constant as an Arrow scalar that compares with `kind` without losing anything of it."""
    coerced = _coerce(value, kind)
    if pt.is_decimal(kind) and isinstance(coerced, int) and not isinstance(coerced, bool):
        return pa.scalar(Decimal(coerced))
    if isinstance(coerced, Decimal) and not pt.is_decimal(kind):
        return pa.scalar(float(coerced))
    if isinstance(coerced, bool) or not isinstance(coerced, (int, float)):
        exact = pt.is_date(kind) or pt.is_timestamp(kind)
        return pa.scalar(coerced, kind) if exact else pa.scalar(coerced)
    return pa.scalar(coerced)


def column_type(column: Column, schema: pa.Schema) -> pa.DataType:
    """The Arrow type of a column or nested field."""
    kind: Any = pa.struct(list(schema))
    for name in column.path:
        kind = kind.field(kind.get_field_index(name)).type
    return kind


def _coerce(value: Value, kind: pa.DataType) -> Value:
    """A text beside a date or time column is read as one, and a date beside a time as its midnight, as Spark does.

    Raises PredicateError.
    """
    if isinstance(value, date) and not isinstance(value, datetime) and pt.is_timestamp(kind):
        return datetime(value.year, value.month, value.day, tzinfo=UTC if kind.tz else None)
    if not isinstance(value, str) or not (pt.is_date(kind) or pt.is_timestamp(kind)):
        return value
    try:
        if pt.is_date(kind):
            return date.fromisoformat(value)
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise PredicateError(f"{value!r} is not a {kind}", advice="write it as ISO-8601", token=value) from error
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
