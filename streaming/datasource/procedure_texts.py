"""Statements that look after a table, as Delta's users type them, and the procedures that they mean.

Spark's parser knows CALL, and none of the others: OPTIMIZE, VACUUM, RESTORE, DESCRIBE HISTORY and DESCRIBE DETAIL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlglot
from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from tidelog.log.errors import ConfigurationError, PredicateError
from tidelog.log.predicate.dialect import STATEMENTS
from tidelog.log.presentable import brief
from tidelog.streaming.datasource.procedures import PROCEDURES

_SCHEMA = "tidelog.system"
_QUOTED = {TokenType.STRING, TokenType.IDENTIFIER}
_FIRST_WORD = re.compile(r"\s*(\w+)\s+(.*?)[\s;]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ProcedureCall:
    """A procedure, and its arguments by their names. `statement` is what the text said, such as OPTIMIZE."""

    name: str
    values: Mapping[str, Any]
    statement: str

    def __str__(self) -> str:
        """The statement CALL."""
        given = ", ".join(f"{name} => {_literal(value)}" for name, value in self.values.items())
        return f"CALL {_SCHEMA}.{self.name}({given})"


def _literal(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"'{value // timedelta(hours=1)} hours'"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def procedure_call(text: str) -> ProcedureCall | None:
    """The call that a statement means; None if it is no statement of these.

    Raises PredicateError for one with a part that no procedure has.
    """
    found = _FIRST_WORD.fullmatch(text)
    read = None if found is None else _STATEMENTS.get(found[1].upper())
    if found is None or read is None:
        return None
    try:
        words = _Words(found[2])
    except sqlglot.TokenError:
        return None  # the error is Spark's
    return read(words)


class _Words:
    """A statement after its first word, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens: list[Token] = list(sqlglot.tokenize(text, read=STATEMENTS))
        self._place = 0

    def take(self, *words: str) -> bool:
        """Whether these words are next. Then they are read."""
        if not self._are_next(words):
            return False
        self._place += len(words)
        return True

    def _are_next(self, words: tuple[str, ...]) -> bool:
        here = self._tokens[self._place : self._place + len(words)]
        return [token.text.upper() for token in here if token.token_type not in _QUOTED] == list(words)

    def table(self) -> str:
        """A path in quotes, or a name; empty if there is none."""
        if self.is_at_end():
            return ""
        first = self.one()
        if first.token_type == TokenType.STRING:
            return str(first.text)
        names = [first.text]
        while self.take(".") and not self.is_at_end():
            names.append(self.one().text)
        return ".".join(f"`{name.replace('`', '``')}`" for name in names)

    def one(self) -> Token:
        """The next token."""
        if self.is_at_end():
            raise PredicateError(f"{brief(self.text)} ends too early", advice=_FORMS)
        self._place += 1
        return self._tokens[self._place - 1]

    def until(self, *words: str) -> str:
        """The text before some words, or up to the end."""
        begin = self._place
        while not self.is_at_end() and not self._are_next(words):
            self._place += 1
        read = self._tokens[begin : self._place]
        return self.text[read[0].start : read[-1].end + 1] if read else ""

    def is_at_end(self) -> bool:
        return self._place >= len(self._tokens)

    def require_end(self) -> None:
        """Raise PredicateError if there is more."""
        if not self.is_at_end():
            more = self.text[self._tokens[self._place].start :]
            raise PredicateError(f"{brief(more)} is not supported here", advice=f"leave it out; {_FORMS}")


_FORMS = (
    "the statements are OPTIMIZE table [WHERE ...] [ZORDER BY (columns)], VACUUM table [LITE] [RETAIN n HOURS] "
    "[DRY RUN], RESTORE TABLE table TO VERSION | TIMESTAMP AS OF ..., DESCRIBE HISTORY table [LIMIT n] and "
    "DESCRIBE DETAIL table; SHOW PROCEDURES IN tidelog.system lists what does the same"
)


def _optimize(words: _Words) -> ProcedureCall:
    values: dict[str, Any] = {"table": words.table()}
    if words.take("WHERE"):
        values["where"] = words.until("ZORDER", "BY")
    if words.take("ZORDER", "BY"):
        values["level"] = "major"
        values["cluster_by"] = ", ".join(part.strip("` ") for part in words.until("").strip("()").split(","))
    words.require_end()
    return ProcedureCall("compact", values, "OPTIMIZE")


def _vacuum(words: _Words) -> ProcedureCall:
    values: dict[str, Any] = {"table": words.table()}
    while not words.is_at_end():
        if words.take("RETAIN"):
            values["older_than"] = timedelta(hours=float(_number(words)))
            if not words.take("HOURS"):
                words.require_end()
        elif words.take("DRY", "RUN"):
            values["dry_run"] = True
        elif words.take("LITE"):
            values["listing"] = False
        elif not words.take("FULL"):
            words.require_end()
    return ProcedureCall("vacuum", values, "VACUUM")


def _restore(words: _Words) -> ProcedureCall:
    words.take("TABLE")
    values: dict[str, Any] = {"table": words.table()}
    words.take("TO")
    if words.take("VERSION", "AS", "OF"):
        values["version"] = _whole(words)
    elif words.take("TIMESTAMP", "AS", "OF"):
        values["timestamp"] = words.one().text
    words.require_end()
    return ProcedureCall("restore", values, "RESTORE")


def _describe(words: _Words) -> ProcedureCall | None:
    is_history = words.take("HISTORY")
    if (not is_history and not words.take("DETAIL")) or words.is_at_end():
        return None
    values: dict[str, Any] = {"table": words.table()}
    if is_history and words.take("LIMIT"):
        values["limit"] = _whole(words)
    words.require_end()
    name, statement = ("history", "DESCRIBE HISTORY") if is_history else ("detail", "DESCRIBE DETAIL")
    return ProcedureCall(name, values, statement)


def _number(words: _Words) -> str:
    token = words.one()
    if token.token_type not in {TokenType.NUMBER, TokenType.STRING} or not re.fullmatch(r"\d+(\.\d+)?", token.text):
        raise PredicateError(f"{brief(token.text)} is not a number", advice=_FORMS)
    return str(token.text)


def _whole(words: _Words) -> int:
    text = _number(words)
    if "." in text:
        raise PredicateError(f"{text} is not a whole number", advice=_FORMS)
    return int(text)


# --- CALL -------------------------------------------------------------------------------------------------------------


def _call(words: _Words) -> ProcedureCall | None:
    """CALL as text, for Spark Connect, whose server knows no procedures of tidelog's."""
    try:
        parsed: Any = sqlglot.parse_one(words.text, dialect=STATEMENTS)
    except sqlglot.ParseError:
        return None
    *above, function = parsed.flatten() if isinstance(parsed, exp.Dot) else [parsed]
    names = [part.name.lower() for part in above]
    if not isinstance(function, exp.Anonymous) or names != _SCHEMA.split("."):
        return None
    name = str(function.this).lower()
    if name not in PROCEDURES:
        raise ConfigurationError(
            f"the catalog tidelog has no procedure system.{name}", advice=f"use one of {', '.join(PROCEDURES)}"
        )
    known = [parameter.name for parameter in PROCEDURES[name].parameters]
    values: dict[str, Any] = {}
    for place, given in enumerate(function.expressions):
        is_named = isinstance(given, exp.Kwarg)
        key = given.this.name.lower() if is_named else known[place] if place < len(known) else ""
        if key not in known or key in values:
            raise ConfigurationError(
                f"{brief(given.sql(dialect=STATEMENTS))} is no argument of system.{name}, or is given twice",
                advice=f"its parameters are {', '.join(known)}",
            )
        values[key] = _value(given.expression if is_named else given)
    return ProcedureCall(name, values, "CALL")


def _value(node: Any) -> Any:
    """A constant."""
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else int(node.this) if node.this.isdigit() else float(node.this)
    if isinstance(node, exp.Interval):
        return f"{node.this.name} {node.text('unit')}"
    if isinstance(node, exp.Cast):
        return _value(node.this)
    if isinstance(node, exp.Array) or (isinstance(node, exp.Anonymous) and node.name.lower() == "array"):
        return [_value(each) for each in node.expressions]
    raise PredicateError(
        f"{brief(node.sql(dialect=STATEMENTS))} is not a constant", advice="write a text, a number, or true and false"
    )


_STATEMENTS: Mapping[str, Callable[[_Words], ProcedureCall | None]] = {
    "CALL": _call,
    "DESC": _describe,
    "DESCRIBE": _describe,
    "OPTIMIZE": _optimize,
    "RESTORE": _restore,
    "VACUUM": _vacuum,
}
