"""Parse SQL text in Spark's dialect into the tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
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
    clipped,
    depth,
)

_BEYOND_INTEGERS = 2**63
# The digits of the widest decimal that Arrow has.
_MAX_DIGITS = 76
# Python stops at a thousand nested calls, and each level needs up to three. Arrow crashes the process.
_MAX_DEPTH = 100
# Parsing takes some ten microseconds for each word or sign, and judging one condition by a table's statistics about a
# millisecond. So a predicate costs less than a second, or a second or two if it has a list of the greatest length.
MAX_CHARACTERS = 2**20
MAX_WORDS = 5_000
MAX_LIST_VALUES = 50_000
MAX_CONDITIONS = 500

# One that does not end goes to the end of the text. Nothing here looks at a character twice, however long the text is.
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|`[^`]*+(?:`|\Z)""", re.DOTALL)
# With one of these, strings may begin and end elsewhere: comments, and a letter before a string such as r'...'.
_ODD_QUOTES = re.compile(r"--|/\*|\w\?")
_LIST_VALUE = re.compile(r"(?<![\w.?])-?[\w.?]++\s*+,")
_WORD = re.compile(r"\w+|[^\w\s]")

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
    return _tree(text, schema)


def require_syntax(text: str) -> None:
    """Raise PredicateError if `text` is not a predicate that tidelog supports, whatever the columns are."""
    _tree(text, None)


def _tree(text: str, schema: pa.Schema | None) -> Expression:
    if not isinstance(text, str):
        raise PredicateError(
            f"a predicate must be SQL text, not {type(text).__name__}", advice='write a string such as "k > 5"'
        )
    _require_bounded(text)
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
        found = _Builder(text, schema).build(tree)
        too_deep = depth(found) > _MAX_DEPTH
    except sqlglot.errors.SqlglotError as error:
        raise _syntax_error(text, error) from error
    except RecursionError:
        too_deep = True
    if too_deep:
        raise PredicateError(
            "the predicate is nested too deeply", advice="use fewer parentheses and shorter sums", token=clipped(text)
        )
    return found


def _require_bounded(text: str) -> None:
    """Raise PredicateError for a text that is not Unicode, or so long that parsing it would take seconds."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        lone = text[error.start : error.end]
        raise PredicateError(
            f"the predicate has the character {lone!r}, which is half of a surrogate pair",
            advice="decode the text that it comes from in another way",
            token=repr(lone),
        ) from error
    if len(text) > MAX_CHARACTERS:
        raise _too_long(text, f"more than {MAX_CHARACTERS:,} characters")
    # A string or a quoted name counts as one word; where it is not certain what is a string, each word in it counts.
    plain = _STRING.sub("?", text)
    outside, values = _LIST_VALUE.subn("", text if _ODD_QUOTES.search(plain) else plain)
    if values > MAX_LIST_VALUES:
        raise _too_long(text, f"more than {MAX_LIST_VALUES:,} values in lists")
    if next(islice(_WORD.finditer(outside), MAX_WORDS, None), None) is not None:
        raise _too_long(text, f"more than {MAX_WORDS:,} words and signs outside of lists")


def _too_long(text: str, bound: str) -> PredicateError:
    advice = "write a long OR of one column as IN (...), or run the operation in parts"
    return PredicateError(f"the predicate has {bound}", advice=advice, token=clipped(text))


class _Builder:
    """Convert sqlglot's tree to ours; without a schema every column is taken to exist."""

    def __init__(self, text: str, schema: pa.Schema | None) -> None:
        self._text = text
        self._schema = schema
        self._conditions = 0

    def build(self, node: exp.Expr) -> Expression:
        """The tree of `node`. Raises PredicateError for a node, or an argument of it, that is not supported."""
        if _has_unknown_arguments(node):
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
                return _balanced(And, [self._condition(part) for part in _chain(node)])
            case exp.Or():
                return _balanced(Or, [self._condition(part) for part in _chain(node)])
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

    def _condition(self, node: exp.Expr) -> Expression:
        """One part of a chain of AND or OR."""
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise _too_long(self._text, f"more than {MAX_CONDITIONS} conditions")
        return self.build(node)

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
                    f"there is no column {clipped('.'.join(parts))!r}",
                    advice=f"the columns are {known}",
                    token=clipped(part),
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


def _has_unknown_arguments(node: exp.Expr) -> bool:
    return any(value for name, value in node.args.items() if name not in _UNDERSTOOD)


def _chain(node: exp.And | exp.Or) -> Iterator[exp.Expr]:
    """The parts of a chain such as `a AND b AND c`, in order. Its tree leans to the left, as deep as it is long."""
    parts: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node) and not _has_unknown_arguments(left):
        parts.append(left.args["expression"])
        left = left.this
    return iter([left, *reversed(parts)])


def _balanced(join: Callable[[Expression, Expression], Expression], parts: list[Expression]) -> Expression:
    """The chain as a tree of the least depth. AND and OR are associative, also over null."""
    while len(parts) > 1:
        pairs = [join(*parts[first : first + 2]) for first in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def _number(text: str) -> Value:
    digits = text.removeprefix("-").lstrip("0")
    if text.removeprefix("-").isdigit():
        # No column holds a number beyond 64 bits, so an approximate value compares correctly.
        number = int(digits or 0) if len(digits) <= len(str(_BEYOND_INTEGERS)) else 2 * _BEYOND_INTEGERS
        signed = -number if text.startswith("-") else number
        return signed if -_BEYOND_INTEGERS <= signed < _BEYOND_INTEGERS else float(text)
    if "e" in text.lower():
        return float(text)
    if len(digits.replace(".", "")) > _MAX_DIGITS:
        raise PredicateError(
            f"the number {clipped(text)} has more than {_MAX_DIGITS} digits",
            advice="no column holds such a number; write fewer digits",
            token=clipped(text),
        )
    return Decimal(text)


def _syntax_error(text: str, error: sqlglot.errors.SqlglotError) -> PredicateError:
    advice = "write a condition over columns in Spark's SQL, such as \"k > 5 AND day = '2024-01-01'\""
    if not text.strip():
        return PredicateError("the predicate cannot be parsed: it is empty", advice=advice)
    places = getattr(error, "errors", None)  # only of errors that the parser itself found
    near = (
        f" near {clipped(places[0]['highlight'])!r} (line {places[0]['line']}, column {places[0]['col']})"
        if places
        else ""
    )
    return PredicateError(f"the predicate cannot be parsed{near}", advice=advice, token=clipped(text))


def _unsupported(node: exp.Expr) -> PredicateError:
    text = clipped(node.sql(dialect="spark"))
    return PredicateError(
        f"{text!r} is not supported in a predicate",
        advice="use comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE 'prefix%' and arithmetic over columns",
        token=text,
    )
