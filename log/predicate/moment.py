"""The time of a statement: one value of `current_timestamp` for all its files, tasks and attempts.

Before a statement uses a predicate, `at_time` replaces `current_timestamp()` and its relatives in the text by
constants. The text then means the same wherever and whenever it is evaluated: by an executor, by another attempt of the
statement, and by a rebase.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.log.predicate.bounds import MAX_CHARACTERS
from tidelog.log.system import to_datetime

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_TextOrNone = TypeVar("_TextOrNone", str, "str | None")

_ZONED = "TIMESTAMP '{0:%Y-%m-%d %H:%M:%S.%f}Z'"
_UNZONED = "TIMESTAMP_NTZ '{0:%Y-%m-%d %H:%M:%S.%f}'"
_DAY = "DATE '{0:%Y-%m-%d}'"
# The functions of the current time, and whether Spark takes them without parentheses, too.
CURRENT = {
    "current_timestamp": (_ZONED, True),
    "now": (_ZONED, False),
    "current_date": (_DAY, True),
    "curdate": (_DAY, False),
    "localtimestamp": (_UNZONED, False),
}
_QUOTED = ("STRING", "IDENTIFIER", "RAW_STRING")
_CANDIDATE = re.compile("|".join(CURRENT), re.IGNORECASE)


def at_time(text: _TextOrNone, now: Callable[[], int]) -> _TextOrNone:
    """The predicate with the time in place of `current_timestamp()`; `now` gives it, in milliseconds since 1970.

    Replaces `current_timestamp`, `now`, `current_date`, `curdate` and `localtimestamp`; dates are those of UTC. Leaves
    everything else as it is, also what `parse` will refuse. A column of such a name needs backquotes.
    """
    # A caller can pass anything, which `parse` refuses.
    if not isinstance(text, str):
        return text
    if len(text) > MAX_CHARACTERS or not _CANDIDATE.search(text):
        return text
    from sqlglot.errors import SqlglotError  # noqa: PLC0415 - takes a tenth of a second; most predicates need it not

    from tidelog.log.predicate.dialect import DIALECT  # noqa: PLC0415 - imports sqlglot

    try:
        tokens = DIALECT.tokenize(text)
    except SqlglotError:
        return text
    now, pieces, end = functools.cache(now), [], 0
    for place, token in enumerate(tokens):
        form = _form(tokens, place)
        if form is None:
            continue
        last = tokens[place + 2] if _has_parentheses(tokens, place) else token
        pieces += [text[end : token.start], form.format(to_datetime(now()))]
        end = last.end + 1
    return "".join(pieces) + text[end:]


def update_at_time(where: str, assignments: Any, now: Callable[[], int]) -> tuple[str, Any]:
    """The predicate and the expressions of an UPDATE, all at one time; see `at_time`."""
    now = functools.cache(now)
    if isinstance(assignments, Mapping):
        assignments = {name: at_time(text, now) for name, text in assignments.items()}
    return at_time(where, now), assignments


def _form(tokens: list[Token], place: int) -> str | None:
    """The form of the constant that replaces the token; None for any other token."""
    token = tokens[place]
    form, bare = CURRENT.get(token.text.lower(), (None, False))
    if form is None or token.token_type.name in _QUOTED:
        return None
    beside = {tokens[other].token_type.name for other in (place - 1, place + 1) if 0 <= other < len(tokens)}
    if "DOT" in beside:
        return None
    if _has_parentheses(tokens, place):
        return form
    called = place + 1 < len(tokens) and tokens[place + 1].token_type.name == "L_PAREN"
    return form if bare and not called else None


def _has_parentheses(tokens: list[Token], place: int) -> bool:
    following = [token.token_type.name for token in tokens[place + 1 : place + 3]]
    return following == ["L_PAREN", "R_PAREN"]
