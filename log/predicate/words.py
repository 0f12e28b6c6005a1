"""The words of a SQL text, to see whether it can read a column, even if tidelog cannot evaluate it."""

from __future__ import annotations

from tidelog.log.predicate.bounds import MAX_CHARACTERS


def words(text: str) -> frozenset[str] | None:
    """The names, strings and signs in the text, in lower case and without quotation marks; None if it has no end.

    A name in backquotes is one word.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    from sqlglot.errors import SqlglotError  # noqa: PLC0415 - takes a tenth of a second

    from tidelog.log.predicate.dialect import DIALECT  # noqa: PLC0415 - imports sqlglot

    try:
        return frozenset(token.text.lower() for token in DIALECT.tokenize(text))
    except SqlglotError:
        return None
