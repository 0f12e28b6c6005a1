"""The words of a SQL text, to see whether it can read a column, even if tidelog cannot evaluate it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.predicate.bounds import MAX_CHARACTERS

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


def words(text: str) -> frozenset[str] | None:
    """The names, strings and signs in the text, in lower case and without quotation marks; None if it has no end.

    A name in backquotes is one word.
    """
    tokens = _tokens(text)
    return None if tokens is None else frozenset(token.text.lower() for token in tokens)


def double_quoted(text: str) -> frozenset[str] | None:
    """What stands between double quotation marks, in lower case, with "" as one. Spark reads texts, others names.

    None if engines may not agree where it ends: if it has no end for Spark, or backslashes, which not all read alike.
    """
    if '"' not in text:
        return frozenset()
    tokens = None if "\\" in text else _tokens(text)
    if tokens is None:
        return None
    spelled = (text[token.start : token.end + 1] for token in tokens)
    return frozenset(piece[1:-1].replace('""', '"').lower() for piece in spelled if piece.startswith('"'))


def _tokens(text: str) -> list[Token] | None:
    if len(text) > MAX_CHARACTERS:
        return None
    from sqlglot.errors import SqlglotError  # noqa: PLC0415 - takes a tenth of a second

    from tidelog.log.predicate.dialect import DIALECT  # noqa: PLC0415 - imports sqlglot

    try:
        return DIALECT.tokenize(text)
    except SqlglotError:
        return None
