"""SQL text in Spark's dialect: parsed into the tree within bounds, its words, and the time of a statement in it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tidelog.log.errors import PredicateError
from tidelog.log.format.schema import SPARK_TYPE
from tidelog.log.predicate.tree import CURRENT, Expression, clipped, depth, too_long
from tidelog.log.system import to_datetime

if TYPE_CHECKING:
    import sqlglot
    from sqlglot.tokenizer_core import Token


# Python stops at a thousand nested calls, and each level needs up to three.
_MAX_DEPTH = 100


def parse(text: str, schema: pa.Schema) -> Expression:
    """The tree of `text`, with columns resolved against `schema`. As in Spark, case does not matter.

    Raises PredicateError.
    """
    return _tree(text, schema)


def require_syntax(text: str) -> None:
    """Raise PredicateError if `text` is not a predicate that tidelog supports, whatever the columns are."""
    _tree(at_time(text, lambda: 0), None)


def _tree(text: str, schema: pa.Schema | None) -> Expression:
    if not isinstance(text, str):
        raise PredicateError(
            f"a predicate must be SQL text, not {type(text).__name__}", advice='write a string such as "k > 5"'
        )
    text = _with_time(text, schema)
    _require_bounded(text)
    padded = schema if any(SPARK_TYPE in (field.metadata or ()) for field in schema or ()) else None
    import sqlglot  # noqa: PLC0415 - takes a tenth of a second, which programs without predicates save

    from tidelog.log.predicate.builder import Builder  # noqa: PLC0415 - imports sqlglot
    from tidelog.log.predicate.char_columns import with_padding  # noqa: PLC0415 - imports what imports this module
    from tidelog.log.predicate.dialect import EXPRESSIONS  # noqa: PLC0415 - imports sqlglot

    try:
        tree = sqlglot.parse_one(text, dialect=EXPRESSIONS)
        found = Builder(text, schema).build(tree)
        if padded is not None:
            found = with_padding(found, padded)
        too_deep = depth(found) > _MAX_DEPTH
    except sqlglot.errors.SqlglotError as error:
        raise _syntax_error(text, error, schema) from error
    except RecursionError:
        too_deep = True
    if too_deep:
        raise PredicateError(
            "the predicate is nested too deeply", advice="use fewer parentheses and shorter sums", token=clipped(text)
        )
    return found


def _syntax_error(text: str, error: sqlglot.errors.SqlglotError, schema: pa.Schema | None) -> PredicateError:
    advice = "write a condition over columns in Spark's SQL, such as \"k > 5 AND day = '2024-01-01'\""
    spoken = frozenset() if schema is None else _spoken(text)
    words = [] if schema is None else [name for name in schema.names if name.upper() in spoken]
    if words:
        advice = f"a column that is named like a word of SQL needs backquotes: `{words[0]}`"
    if not text.strip():
        return PredicateError("the predicate cannot be parsed: it is empty", advice=advice)
    places = getattr(error, "errors", None)  # only of errors that the parser itself found
    near = (
        f" near {clipped(places[0]['highlight'])!r} (line {places[0]['line']}, column {places[0]['col']})"
        if places
        else ""
    )
    return PredicateError(f"the predicate cannot be parsed{near}", advice=advice, token=clipped(text))


def _spoken(text: str) -> frozenset[str]:
    """The words in the text that have a meaning of their own, in capitals."""
    from tidelog.log.predicate.dialect import WORDS  # noqa: PLC0415 - imports sqlglot

    return WORDS & {token.text.upper() for token in _tokens(text) or () if token.token_type.name not in _QUOTED}


# --- the words of a text ----------------------------------------------------------------------------------------------


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

    from tidelog.log.predicate.dialect import EXPRESSIONS  # noqa: PLC0415 - imports sqlglot

    try:
        return EXPRESSIONS.tokenize(text)
    except SqlglotError:
        return None


# --- bounds -----------------------------------------------------------------------------------------------------------


# Parsing takes some ten microseconds for each word or sign, and judging one condition by a table's statistics about a
# millisecond. So a predicate costs less than a second, or a second or two if it has a list of the greatest length.
MAX_CHARACTERS = 2**20
MAX_WORDS = 5_000
MAX_LIST_VALUES = 50_000

# One that does not end goes to the end of the text. Nothing here looks at a character twice, however long the text is.
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|`[^`]*+(?:`|\Z)""", re.DOTALL)
# With one of these, strings may begin and end elsewhere: comments, and a letter before a string such as r'...'.
_ODD_QUOTES = re.compile(r"--|/\*|\w\?")
_LIST_VALUE = re.compile(r"(?<![\w.?])-?[\w.?]++\s*+,")
_WORD = re.compile(r"\w+|[^\w\s]")


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
        raise too_long(text, f"more than {MAX_CHARACTERS:,} characters")
    # A string or a quoted name counts as one word; where it is not certain what is a string, each word in it counts.
    plain = _STRING.sub("?", text)
    outside, values = _LIST_VALUE.subn("", text if _ODD_QUOTES.search(plain) else plain)
    if values > MAX_LIST_VALUES:
        raise too_long(text, f"more than {MAX_LIST_VALUES:,} values in lists")
    if next(islice(_WORD.finditer(outside), MAX_WORDS, None), None) is not None:
        raise too_long(text, f"more than {MAX_WORDS:,} words and signs outside of lists")


# --- the time of a statement ------------------------------------------------------------------------------------------


_TextOrNone = TypeVar("_TextOrNone", str, "str | None")

_QUOTED = ("STRING", "IDENTIFIER", "RAW_STRING")
_CANDIDATE = re.compile("|".join(CURRENT), re.IGNORECASE)
_TIME = re.compile(r" /\* ((?:DATE|TIMESTAMP) '[0-9 :.Z-]+') \*/")


def at_time(text: _TextOrNone, now: Callable[[], int]) -> _TextOrNone:
    """The predicate with the time in place of `current_timestamp()`; `now` gives it, in milliseconds since 1970.

    So the text means the same wherever and whenever it is evaluated: by an executor, by another attempt of the
    statement, and by a rebase.

    Replaces `current_timestamp()`, `now()`, `current_date()`, `curdate()` and `localtimestamp()`; dates are those of
    UTC. A bare `current_date` or `current_timestamp` could also be a column, which `parse` knows: the time then follows
    it as a comment. Leaves everything else as it is, also what `parse` will refuse.
    """
    # A caller can pass anything, which `parse` refuses.
    if not isinstance(text, str):
        return text
    now = functools.cache(now)

    def timed(call: _Call) -> str | None:
        constant = call.form.format(to_datetime(now()))
        if not call.is_bare:
            return constant
        return None if call.time else f"{call.text} /* {constant} */"

    return _replaced(text, timed)


def _with_time(text: str, schema: pa.Schema | None) -> str:
    """The text with the times that `at_time` left as comments, where no column has the name; without them elsewhere."""
    names = None if schema is None else {name.lower() for name in schema.names}

    def settled(call: _Call) -> str | None:
        is_column = names is None or call.text.lower() in names
        return (call.text if is_column else call.time) if call.time else None

    return _replaced(text, settled)


def update_at_time(where: str, assignments: Any, now: Callable[[], int]) -> tuple[str, Any]:
    """The predicate and the expressions of an UPDATE, all at one time; see `at_time`."""
    now = functools.cache(now)
    if isinstance(assignments, Mapping):
        assignments = {name: at_time(text, now) for name, text in assignments.items()}
    return at_time(where, now), assignments


@dataclass(frozen=True, slots=True)
class _Call:
    """A function of the current time in a text, and the constant that it is, as a form.

    `is_bare`: without parentheses; then `time` is the constant that follows it as a comment, if there is one.
    """

    text: str
    form: str
    is_bare: bool
    time: str | None


def _replaced(text: str, change: Callable[[_Call], str | None]) -> str:
    """The text with other texts in place of the functions of the current time; None leaves one as it is."""
    tokens = _tokens(text) if _CANDIDATE.search(text) else None
    if tokens is None:
        return text
    pieces, end = [], 0
    for place, token in enumerate(tokens):
        form, bare = CURRENT.get(token.text.lower(), (None, False))
        if form is None or token.token_type.name in _QUOTED or _is_field(tokens, place):
            continue
        is_call = _has_parentheses(tokens, place)
        if not is_call and (not bare or _is_followed_by(tokens, place, "L_PAREN")):
            continue
        last = tokens[place + 2].end + 1 if is_call else token.end + 1
        comment = None if is_call else _TIME.match(text, last)
        call = _Call(text[token.start : last], form, is_bare=not is_call, time=comment and comment[1])
        new = change(call)
        if new is not None:
            pieces += [text[end : token.start], new]
            end = comment.end() if comment else last
    return "".join(pieces) + text[end:]


def _is_field(tokens: list[Token], place: int) -> bool:
    return _is_followed_by(tokens, place, "DOT") or (place > 0 and tokens[place - 1].token_type.name == "DOT")


def _is_followed_by(tokens: list[Token], place: int, sign: str) -> bool:
    return place + 1 < len(tokens) and tokens[place + 1].token_type.name == sign


def _has_parentheses(tokens: list[Token], place: int) -> bool:
    following = [token.token_type.name for token in tokens[place + 1 : place + 3]]
    return following == ["L_PAREN", "R_PAREN"]
