"""Spark's SQL as sqlglot reads it, but with functions as they were written, and with Spark's grammar of operators.

`STATEMENTS` has all of its words, `EXPRESSIONS` only those of an expression.

sqlglot would turn a function of Spark into one of its own, whose meaning can differ. Its comparisons bind in several
steps, and below IN, BETWEEN, LIKE and IS. Spark's bind alike, from left to right, and above these four, of which a
condition has at most one (`SqlBaseParser.g4`, `booleanExpression` and `valueExpression`):

| text | Spark's meaning |
|---|---|
| `a <=> b < c` | `(a <=> b) < c` |
| `a < b IN (c)` | `(a < b) IN (c)` |
| `a BETWEEN b AND c = d` | `a BETWEEN b AND (c = d)` |
| `NOT a = b IS NULL` | `NOT ((a = b) IS NULL)` |
| `a || b + c` | `(a || b) + c` |
| `a = NOT b`, `a IS NULL = b` | an error |
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from tidelog.log.errors import PrerequisiteError

# Functions with a syntax of their own, such as CAST(a AS b).
_OWN_SYNTAX = ("CAST", "EXTRACT", "POSITION", "SUBSTR", "SUBSTRING", "TRIM")
_FUNCTIONS = {name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX}
_COMPARISONS: dict[TokenType, type[exp.Binary]] = {
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.NULLSAFE_EQ: exp.NullSafeEQ,
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
    TokenType.GT: exp.GT,
    TokenType.GTE: exp.GTE,
}
_PREDICATES = (TokenType.BETWEEN, TokenType.IN, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE)


# The words that have a meaning of their own in an expression. Any other one is a name, as in Spark: a column of that
# name wins against a function that needs no parentheses, such as current_date.
# fmt: off
WORDS = frozenset({
    "AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP",
    "ESCAPE", "DIV", "DISTINCT", "FROM", "FOR", "AS", "CASE", "WHEN", "THEN", "ELSE", "END", "INTERVAL", "SELECT",
    "WITH", "EXISTS",
})
# fmt: on


def _has_meaning(text: str, kind: TokenType) -> bool:
    return not text[0].isalpha() or text in WORDS or kind in SparkParser.TYPE_TOKENS


class _Parser(SparkParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = _FUNCTIONS
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
    TERM: ClassVar[dict[TokenType, Any]] = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}
    UNARY_PARSERS: ClassVar[dict[TokenType, Callable[[Any], exp.Expr | None]]] = {
        **{token: parse for token, parse in SparkParser.UNARY_PARSERS.items() if token != TokenType.NOT},
        TokenType.DASH: lambda self: self.negated(),
    }

    def _parse_equality(self, *_: Any, **__: Any) -> exp.Expr | None:
        """A condition without AND and OR."""
        if self._match(TokenType.NOT):
            return self.expression(exp.Not(this=self._parse_equality()))
        value = self._parse_bitwise()
        if self._match(TokenType.IS):
            return self._after_is(value)
        negated = self._match(TokenType.NOT)
        if not self._match_set(_PREDICATES):
            if negated:
                self.raise_error("expected BETWEEN, IN, LIKE or ILIKE after NOT")
            return value
        found = self.RANGE_PARSERS[self._prev.token_type](self, value)
        return self._negate_range(found) if negated else found

    def _after_is(self, value: exp.Expr | None) -> exp.Expr | None:
        negated = self._match(TokenType.NOT)
        if self._match_text_seq("DISTINCT", "FROM"):
            kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return self.expression(kind(this=value, expression=self._parse_bitwise()))
        wanted = exp.Null() if self._match_text_seq("UNKNOWN") else self._parse_primary()
        found = self.expression(exp.Is(this=value, expression=wanted))
        return self.expression(exp.Not(this=found)) if negated else found

    def _parse_bitwise(self) -> exp.Expr | None:
        """A value: comparisons, of sums and so on."""
        found = super()._parse_bitwise()
        while self._match_set(_COMPARISONS):
            kind = _COMPARISONS[self._prev.token_type]
            found = self.expression(kind(this=found, expression=super()._parse_bitwise()))
        return found

    def negated(self) -> exp.Expr | None:
        """What follows a minus. One before a number is a part of it, so `-128::TINYINT` is no overflow."""
        before_number = self._match(TokenType.NUMBER, advance=False)
        found = self._parse_unary()
        number: Any = found
        while isinstance(number, exp.Cast):
            number = number.this
        if before_number and found is not number and number.this.strip("0."):  # -0.0D is a zero of its own
            number.set("this", f"-{number.this}")
            return found
        return self.expression(exp.Neg(this=found))


class _Plain(Spark):
    class Tokenizer(Spark.Tokenizer):
        # In Spark, '' inside of a text is one quotation mark.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    Parser = _Parser


class _Expressions(_Plain):
    class Tokenizer(_Plain.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            text: kind for text, kind in Spark.Tokenizer.KEYWORDS.items() if _has_meaning(text, kind)
        }

    Parser = _Parser


STATEMENTS = _Plain()
EXPRESSIONS = _Expressions()


def _require_grammar() -> None:
    """Raise PrerequisiteError if the installed sqlglot does not ask the parser above: it would group in its own way."""
    found = EXPRESSIONS.parse("NOT a <=> b < c IN (d = e)")[0]
    inner = found.this if isinstance(found, exp.Not) else None
    if not isinstance(inner, exp.In) or not isinstance(inner.this, exp.LT):
        raise PrerequisiteError(
            f"sqlglot {version('sqlglot')} groups comparisons in its own way, not in Spark's",
            advice="install a version of sqlglot that tidelog was tested with, such as 30.30",
        )


_require_grammar()
