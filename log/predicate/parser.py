"""Parse SQL text in Spark's dialect into the tree."""

from __future__ import annotations

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
# Python stops at a thousand nested calls, and each level needs more than one. Arrow crashes the process.
_MAX_DEPTH = 450
_LONGEST_TOKEN = 100

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
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
    "to",
    "typed",
    "safe",
}


def parse(text: str, schema: pa.Schema) -> Expression:
    """The tree of `text`, with columns resolved against `schema`. As in Spark, case does not matter.

    Raises PredicateError.
    """
    return _tree(text, _Builder(schema))


def require_syntax(text: str) -> None:
    """Raise PredicateError if `text` is not a predicate that tidelog supports, whatever the columns are."""
    _tree(text, _Builder(None))


def _tree(text: str, builder: _Builder) -> Expression:
    if not isinstance(text, str):
        raise PredicateError(
            f"a predicate must be SQL text, not {type(text).__name__}", advice='write a string such as "k > 5"'
        )
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
        found = builder.build(tree)
        too_deep = depth(found) > _MAX_DEPTH
    except sqlglot.errors.SqlglotError as error:
        raise _syntax_error(text, error) from error
    except RecursionError:
        too_deep = True
    if too_deep:
        advice = "write a long OR of one column as IN (...)"
        raise PredicateError("the predicate is nested too deeply", advice=advice, token=text[:_LONGEST_TOKEN])
    return found


class _Builder:
    """Convert sqlglot's tree to ours; without a schema every column is taken to exist."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema

    def build(self, node: exp.Expr) -> Expression:
        """The tree of `node`. Raises PredicateError for a node, or an argument of it, that is not supported."""
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
        """DATE '2013-01-01' and TIMESTAMP '...', which sqlglot parses as casts."""
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
        # No column holds a number beyond 64 bits, so an approximate value compares correctly.
        return int(text) if -_BEYOND_INTEGERS <= int(text) < _BEYOND_INTEGERS else float(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _syntax_error(text: str, error: sqlglot.errors.SqlglotError) -> PredicateError:
    advice = "write a condition over columns in Spark's SQL, such as \"k > 5 AND day = '2024-01-01'\""
    if not text.strip():
        return PredicateError("the predicate cannot be parsed: it is empty", advice=advice)
    places = getattr(error, "errors", None)  # only of errors that the parser itself found
    near = f" near {places[0]['highlight']!r} (line {places[0]['line']}, column {places[0]['col']})" if places else ""
    return PredicateError(f"the predicate cannot be parsed{near}", advice=advice, token=text)


def _unsupported(node: exp.Expr) -> PredicateError:
    text = node.sql(dialect="spark")
    return PredicateError(
        f"{text!r} is not supported in a predicate",
        advice="use comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE 'prefix%' and arithmetic over columns",
        token=text,
    )
