"""From sqlglot's tree to ours. What tidelog does not evaluate is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from tidelog.log.errors import PredicateError
from tidelog.log.predicate import like, sql_names
from tidelog.log.predicate.bounds import MAX_CONDITIONS, too_long
from tidelog.log.predicate.constants import coerce
from tidelog.log.predicate.intervals import interval_of
from tidelog.log.predicate.literals import number, sql_type_of, unsupported
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
    columns,
    to_sql,
)
from tidelog.log.presentable import did_you_mean

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
}
# The arguments of sqlglot's nodes that are evaluated. Ignoring another one would silently change the meaning.
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
    "catalog",
    "to",
    "typed",
    "safe",
    "ifs",
    "default",
    "true",
    "false",
    "unit",
    "position",
    "start",
    "length",
    "substr",
}


class Builder:
    """Convert sqlglot's tree to ours; without a schema every column is taken to exist."""

    def __init__(self, text: str, schema: pa.Schema | None) -> None:
        self._text = text
        self._schema = schema
        self._names = frozenset() if schema is None else frozenset(name.lower() for name in schema.names)
        self._conditions = 0

    def build(self, node: exp.Expr) -> Expression:
        """The tree of `node`. Raises PredicateError for a node, or an argument of it, that is not supported."""
        if any(value for name, value in node.args.items() if name not in _UNDERSTOOD):
            raise unsupported(node)
        found = self._positive(node)
        self._require_column(found)
        return Not(found) if node.args.get("negate") else found

    def _positive(self, node: exp.Expr) -> Expression:
        if type(node) in _COMPARISONS:
            return Comparison(_COMPARISONS[type(node)], *self._sides(node))
        if type(node) in _ARITHMETIC:
            return _arithmetic(_ARITHMETIC[type(node)], self.build(node.this), self.build(node.expression), node)
        method = self._METHODS.get(type(node))
        return method(self, node) if method else Literal(self._constant(node))

    def _inner(self, node: exp.Paren) -> Expression:
        return self.build(node.this)

    def _not(self, node: exp.Not) -> Expression:
        return Not(self.build(node.this))

    def _interval(self, node: exp.Interval) -> Expression:
        return Literal(interval_of(node))

    def _sides(self, node: exp.Expr) -> tuple[Expression, Expression]:
        """Both sides of a comparison."""
        return self.build(node.this), self.build(node.expression)

    def _require_column(self, found: Expression) -> None:
        """Raise PredicateError for a column name in quotation marks that make it a text."""
        match found:
            case Comparison(_, left, right):
                sides: tuple[Expression, ...] = (left, right)
            case In(left, _) | Like(left, _, _) | IsNull(left):
                sides = (left,)
            case _:
                return
        names = [side.value for side in sides if isinstance(side, Literal) and isinstance(side.value, str)]
        quoted = [name for name in names if name.lower() in self._names]
        if quoted and not columns(found):
            raise PredicateError(
                f"{clipped(to_sql(found))!r} reads no column: {quoted[0]!r} in quotation marks is a text",
                advice=f"quote the column with backquotes: `{quoted[0]}`",
                token=quoted[0],
            )

    def _chain(self, node: exp.And | exp.Or) -> Expression:
        join: Callable[[Expression, Expression], Expression] = And if isinstance(node, exp.And) else Or
        return _balanced(join, [self._condition(part) for part in _parts_of_chain(node)])

    def _condition(self, node: exp.Expr) -> Expression:
        """One part of a chain of AND or OR."""
        self._count()
        return self.build(node)

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise too_long(self._text, f"more than {MAX_CONDITIONS} conditions")

    def _is(self, node: exp.Is) -> Expression:
        match node.expression:
            case exp.Null():
                return IsNull(self.build(node.this))
            case exp.Boolean() as wanted:
                return Call("istrue" if wanted.this else "isfalse", (self.build(node.this),))
            case _:
                raise unsupported(node)

    def _null_safe(self, node: exp.NullSafeEQ | exp.NullSafeNEQ) -> Expression:
        same = Call("<=>", self._sides(node))
        return same if isinstance(node, exp.NullSafeEQ) else Not(same)

    def _in(self, node: exp.In) -> Expression:
        if not node.expressions:
            raise unsupported(node)
        inner = self.build(node.this)
        if all(map(_is_constant, node.expressions)):
            return In(inner, tuple(self._constant(value) for value in node.expressions))
        return Call("in", (inner, *(self._condition(value) for value in node.expressions)))

    def _between(self, node: exp.Between) -> Expression:
        value, low, high = (self.build(node.args[name]) for name in ("this", "low", "high"))
        if isinstance(value, (Column, Literal)):
            return And(Comparison(">=", value, low), Comparison("<=", value, high))
        return Call("between", (value, low, high))

    def _like(self, node: exp.Like | exp.ILike) -> Expression:
        return self._like_with(node, "\\")

    def _escape(self, node: exp.Escape) -> Expression:
        found = node.this
        escape = self._constant(node.expression)
        if not isinstance(found, (exp.Like, exp.ILike)) or not isinstance(escape, str):
            raise unsupported(node)
        if any(value for name, value in found.args.items() if name not in _UNDERSTOOD):
            raise unsupported(node)
        like_node = self._like_with(found, escape)
        return Not(like_node) if found.args.get("negate") else like_node

    def _like_with(self, node: exp.Like | exp.ILike, escape: str) -> Expression:
        pattern = self._constant(node.expression) if _is_constant(node.expression) else 0
        if pattern is None:
            return Comparison("=", Literal(None), Literal(None))
        if not isinstance(pattern, str):
            raise unsupported(node, "a pattern is a constant text")
        inner = self.build(node.this)
        if isinstance(node, exp.ILike):
            inner, pattern = Call("lower", (inner,)), pattern.lower()
        like.matcher(pattern, escape)  # raises for a pattern that is not valid
        return Like(inner, pattern, escape)

    def _column(self, node: exp.Column | exp.Dot) -> Column:
        if any(not isinstance(part, (exp.Identifier, exp.Column, exp.Dot)) for part in node.walk()):
            raise unsupported(node)
        names = [identifier.name for identifier in node.find_all(exp.Identifier, bfs=False)]
        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else names
        return Column(tuple(parts)) if self._schema is None else _resolved(parts, self._schema)

    def _case(self, node: exp.Case) -> Expression:
        operand = None if node.this is None else self.build(node.this)
        branches = []
        for branch in node.args["ifs"]:
            self._count()
            branches.append((self.build(branch.this), self.build(branch.args["true"])))
        default = node.args.get("default")
        return Case(operand, tuple(branches), Literal(None) if default is None else self.build(default))

    def _if(self, node: exp.If) -> Expression:
        arguments = [node.this, node.args["true"], node.args.get("false")]
        if any(argument is None for argument in arguments):
            raise unsupported(node, "if takes a condition and two values")
        return self._call("if", arguments, node)

    def _function(self, node: exp.Anonymous) -> Expression:
        name = str(node.this).lower()
        arguments = list(node.expressions)
        if name in ("ltrim", "rtrim") and len(arguments) > 1:  # Spark takes the characters first
            arguments.reverse()
        return self._call(name, arguments, node)

    def _renamed(self, node: exp.Expr) -> Expression:
        """A function that sqlglot parses by a syntax of its own."""
        name, arguments = sql_names.call_of(node)
        return self._call(name, arguments, node)

    def _call(self, name: str, arguments: list[exp.Expr], node: exp.Expr) -> Expression:
        sql_names.require_function(name, len(arguments), node)
        return Call(name, tuple(self.build(argument) for argument in arguments))

    def _pipe(self, node: exp.DPipe) -> Expression:
        return Call("||", (self.build(node.this), self.build(node.expression)))

    def _negative(self, node: exp.Neg) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return Literal(number(f"-{node.this.this}"))
        inner = self.build(node.this)
        if isinstance(inner, Literal):
            if isinstance(inner.value, Interval):
                return Literal(-inner.value)
            if isinstance(inner.value, (int, float, Decimal)) and not isinstance(inner.value, bool):
                return Literal(-inner.value)
        return Call("negative", (inner,))

    def _cast(self, node: exp.Cast) -> Expression:
        is_typed_literal = not isinstance(node, exp.TryCast) and isinstance(node.this, exp.Literal)
        kind = sql_type_of(node)
        if is_typed_literal:
            return Literal(self._typed_constant(node, kind))
        return Cast(self.build(node.this), kind)

    def _typed_constant(self, node: exp.Cast, kind: pa.DataType) -> Value:
        """DATE '2013-01-01' and TIMESTAMP '...', which sqlglot parses as casts."""
        value = coerce(str(node.this.this), kind)
        if isinstance(value, str):
            raise unsupported(node)
        return value

    def _constant(self, node: exp.Expr) -> Value:
        match node:
            case exp.Literal() if node.is_string:
                return str(node.this)
            case exp.RawString():
                return str(node.this)
            case exp.Literal():
                return number(str(node.this))
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Paren():
                return self._constant(node.this)
            case exp.Neg() | exp.Cast():
                found = self.build(node)
                if isinstance(found, Literal):
                    return found.value
            case _:
                pass
        raise unsupported(node)

    _METHODS: ClassVar[Mapping[type[exp.Expr], Callable[[Builder, Any], Expression]]] = {
        exp.Paren: _inner,
        exp.And: _chain,
        exp.Or: _chain,
        exp.Not: _not,
        exp.Is: _is,
        exp.In: _in,
        exp.Between: _between,
        exp.Like: _like,
        exp.ILike: _like,
        exp.Escape: _escape,
        exp.NullSafeEQ: _null_safe,
        exp.NullSafeNEQ: _null_safe,
        exp.Column: _column,
        exp.Dot: _column,
        exp.Case: _case,
        exp.If: _if,
        exp.Anonymous: _function,
        exp.DPipe: _pipe,
        exp.Neg: _negative,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Interval: _interval,
        **dict.fromkeys(sql_names.OWN_SYNTAX, _renamed),
    }


def _is_constant(node: exp.Expr) -> bool:
    match node:
        case exp.Literal() | exp.RawString() | exp.Boolean() | exp.Null():
            return True
        case exp.Paren() | exp.Neg():
            return _is_constant(node.this)
        case _:
            return isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast)


def _arithmetic(symbol: str, left: Expression, right: Expression, node: exp.Expr) -> Expression:
    spans = [side.value for side in (left, right) if isinstance(side, Literal) and isinstance(side.value, Interval)]
    if len(spans) < 2:  # noqa: PLR2004 - both sides
        return Arithmetic(symbol, left, right)
    first, second = spans
    if symbol not in ("+", "-") or bool(first.months) != bool(second.months):
        raise unsupported(node, "add months and days to a date one after the other")
    second = second if symbol == "+" else -second
    whole_days = first.microseconds is None and second.microseconds is None
    micros = None if whole_days else (first.microseconds or 0) + (second.microseconds or 0)
    return Literal(Interval(first.months + second.months, first.days + second.days, micros))


def _parts_of_chain(node: exp.And | exp.Or) -> Iterator[exp.Expr]:
    """The parts of a chain such as `a AND b AND c`, in order. Its tree leans to the left, as deep as it is long."""
    parts: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node) and not any(value for name, value in left.args.items() if name not in _UNDERSTOOD):
        parts.append(left.args["expression"])
        left = left.this
    return iter([left, *reversed(parts)])


def _balanced(join: Callable[[Expression, Expression], Expression], parts: list[Expression]) -> Expression:
    """The chain as a tree of the least depth. AND and OR are associative, also over null."""
    while len(parts) > 1:
        pairs = [join(*parts[first : first + 2]) for first in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def _resolved(parts: list[str], schema: pa.Schema) -> Column:
    """The column or field as the schema names it."""
    kind: Any = pa.struct(list(schema))
    path = []
    for part in parts:
        fields = [kind.field(index) for index in range(kind.num_fields)] if pt.is_struct(kind) else []
        found = [field for field in fields if field.name == part] or [
            field for field in fields if field.name.lower() == part.lower()
        ]
        if not found:
            hint = did_you_mean(part, (field.name for field in fields))
            raise PredicateError(
                f"there is no column {clipped('.'.join(parts))!r}",
                advice=f"{hint}the columns are {', '.join(schema.names)}",
                token=clipped(part),
            )
        path.append(found[0].name)
        kind = found[0].type
    return Column(tuple(path))
