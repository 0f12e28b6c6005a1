"""LIKE: patterns with % for any text and _ for one character."""

from __future__ import annotations

import re

import pyarrow.compute as pc

from tidelog.log.errors import PredicateError
from tidelog.log.predicate.rows import Kernel
from tidelog.log.predicate.tree import clipped

# The regular expressions of Arrow take time in proportion to the length of the text times that of the pattern.
MAX_PATTERN = 1_000
_SPECIAL = re.compile(r"[^\w\s]")


def pattern_parts(pattern: str, escape: str) -> list[str | None]:
    """The pattern as texts, with "" for each `_` and None for each run of `%`. Raises PredicateError.

    Two texts never follow each other.
    """
    if len(escape) != 1:
        raise PredicateError(
            f"ESCAPE needs one character, not {clipped(escape)!r}", advice="write ESCAPE '!'", token=clipped(escape)
        )
    found: list[str | None] = []
    text: list[str] = []

    def flush() -> None:
        if text:
            found.append("".join(text))
            text.clear()

    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("%", "_", escape):
                raise _bad_escape(pattern, escape)
            text.append(escaped)
        elif character == "_":
            flush()
            found.append("")
        elif character == "%":
            flush()
            if found[-1:] != [None]:
                found.append(None)
        else:
            text.append(character)
    flush()
    return found


def prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text that each match begins with, and whether anything that begins with it matches."""
    parts = pattern_parts(pattern, escape)
    first = parts[0] if parts and parts[0] else ""
    return first, parts in ([first, None], [None])


def matcher(pattern: str, escape: str) -> Kernel:
    """The kernel that tests texts. Raises PredicateError."""
    parts = pattern_parts(pattern, escape)
    match parts:
        case []:
            return lambda texts: pc.equal(texts, "")
        case [None]:
            return lambda texts: pc.starts_with(texts, "")
        case [str(text)] if text:
            return lambda texts: pc.equal(texts, text)
        case [str(text), None] if text:
            return lambda texts: pc.starts_with(texts, text)
        case [None, str(text)] if text:
            return lambda texts: pc.ends_with(texts, text)
        case [None, str(text), None] if text:
            return lambda texts: pc.match_substring(texts, text)
    if len(pattern) > MAX_PATTERN:
        raise PredicateError(
            f"the pattern {clipped(pattern)!r} has more than {MAX_PATTERN:,} characters",
            advice="use a shorter pattern, or one with % at its ends only",
            token=clipped(pattern),
        )
    regex = "".join({None: ".*", "": "."}.get(part) or _quoted(part) for part in parts)
    return lambda texts: pc.match_substring_regex(texts, rf"(?s)\A{regex}\z")


def _quoted(text: str | None) -> str:
    # `re.escape` escapes for Python; a NUL in the text ends the expression in RE2.
    return _SPECIAL.sub(lambda found: rf"\x{{{ord(found[0]):x}}}", text or "").replace("\0", r"\x00")


def _bad_escape(pattern: str, escape: str) -> PredicateError:
    return PredicateError(
        f"in the pattern {clipped(pattern)!r}, {escape!r} must be followed by %, _ or itself",
        advice=f"write {escape * 2!r} for {escape!r}, or choose another character with ESCAPE",
        token=clipped(pattern),
    )
