"""From SQL text (Spark's dialect) to the tree."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import sqlglot
from sqlglot import exp

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.constants import coerce
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
    depth,
)

_BEYOND_INTEGERS = 2**63
# Python's own limit is a thousand calls, of which each level takes some; Arrow's ends the process.
_MAX_DEPTH = 450
_TERMINAL_CODE = re.compile("\x1b\\[[0-9;]*m")

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


def parse(text: str, schema: pa.Schema) -> Expression:
    """The tree of `text`, its columns found in `schema` (case does not matter, as in Spark). Raises PredicateError."""
    return _tree(text, _Builder(schema))


def require_syntax(text: str) -> None:
    """Raise PredicateError if `text` is not a predicate that tidelog supports, whatever the columns are."""
    _tree(text, _Builder(None))


def _tree(text: str, builder: _Builder) -> Expression:
    if not isinstance(text, str):
        raise PredicateError(f"a predicate is SQL text, not a {type(text).__name__}", token=str(text))
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
        found = builder.build(tree)
        too_deep = depth(found) > _MAX_DEPTH
    except sqlglot.errors.SqlglotError as error:
        # The parser underlines the place for a terminal.
        plain = _TERMINAL_CODE.sub("", str(error))
        raise PredicateError(
            f"the predicate cannot be parsed: {plain}",
            advice="write a condition over columns as Spark's SQL has it, such as \"k > 5 AND day = '2024-01-01'\"",
            token=text,
        ) from error
    except RecursionError:
        too_deep = True
    if too_deep:
        advice = "write a long OR of one column as IN (...)"
        raise PredicateError("the predicate is nested too deeply", advice=advice, token=text[:100])
    return found


class _Builder:
    """From sqlglot's tree to ours; without a schema every column is taken to exist."""

    def __init__(self, schema: pa.Schema | None) -> None:
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
        if self._schema is None:
            return Column(tuple(parts))
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
            return coerce(value, pa.date32())
        if node.to.is_type("timestamp", "timestamptz", "timestampltz"):
            return coerce(value, pa.timestamp("us", tz="UTC"))
        if node.to.is_type("timestampntz"):
            return coerce(value, pa.timestamp("us"))
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
