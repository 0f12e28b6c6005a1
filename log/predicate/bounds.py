"""The bounds of a predicate's text, so that none takes seconds to parse."""

from __future__ import annotations

import re
from itertools import islice

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.tree import clipped

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


def require_bounded(text: str) -> None:
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
        raise too_long(text, f"more than {MAX_CHARACTERS:,} characters")
    # A string or a quoted name counts as one word; where it is not certain what is a string, each word in it counts.
    plain = _STRING.sub("?", text)
    outside, values = _LIST_VALUE.subn("", text if _ODD_QUOTES.search(plain) else plain)
    if values > MAX_LIST_VALUES:
        raise too_long(text, f"more than {MAX_LIST_VALUES:,} values in lists")
    if next(islice(_WORD.finditer(outside), MAX_WORDS, None), None) is not None:
        raise too_long(text, f"more than {MAX_WORDS:,} words and signs outside of lists")


def too_long(text: str, bound: str) -> PredicateError:
    """The error for a predicate beyond a bound."""
    advice = "write a long OR of one column as IN (...), or run the operation in parts"
    return PredicateError(f"the predicate has {bound}", advice=advice, token=clipped(text))
