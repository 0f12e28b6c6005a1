"""Patterns of paths, as a shell has them.

Within a name `*` stands for any characters, `?` for one, and `[a-f]` for one of these; `**` as a whole name stands for
any number of folders, also none. A wildcard at the beginning of a name does not stand for `.` or `_`, with which hidden
names begin. `[*]` stands for the character itself, and a `[` without a `]` for itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

ANY_FOLDERS = "**"
"""The name in a pattern that stands for any number of folders."""

_WILD = re.compile(r"[*?]|\[[^]/]+\]")
_HIDDEN = (".", "_")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//)?")


def as_pattern(path: str) -> str:
    """The pattern that only this path matches."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def is_pattern(text: str) -> bool:
    """Whether a path or a name has a wildcard."""
    return _WILD.search(text) is not None


def is_hidden(name: str) -> bool:
    """Whether wildcards pass over the name."""
    return name.startswith(_HIDDEN)


def split_pattern(path: str) -> tuple[str, tuple[str, ...]]:
    """The folder in which to search, and the names that follow: `/data/*/events` becomes `/data`, (`*`, `events`).

    The folder is as it is written; `.` if the pattern begins with a wildcard, and empty after a scheme.
    """
    scheme = (_SCHEME.match(path) or [""])[0]
    rest = path[len(scheme) :]
    names = rest.split("/")
    first = next((number for number, name in enumerate(names) if is_pattern(name)), len(names))
    folder = "/".join(names[:first])
    if first < len(names) and not folder:
        folder = "/" if rest.startswith("/") else "" if scheme else "."
    return scheme + folder, tuple(name for name in names[first:] if name)


def name_matches(name: str, pattern: str) -> bool:
    """Whether one name matches one part of a pattern."""
    if is_hidden(name) and is_pattern(pattern[:1]):
        return False
    return fnmatchcase(name, pattern)


def names_match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path match a whole pattern."""
    reached = {0}  # the places in the pattern that the names so far can have led to
    for name in names:
        reached = {
            place + (part != ANY_FOLDERS)
            for place in _with_no_folders(reached, pattern)
            if place < len(pattern)
            for part in [pattern[place]]
            if (part == ANY_FOLDERS and not is_hidden(name)) or (part != ANY_FOLDERS and name_matches(name, part))
        }
    return len(pattern) in _with_no_folders(reached, pattern)


def _with_no_folders(places: set[int], pattern: Sequence[str]) -> set[int]:
    """The places, and those behind a `**` that stands for no folder."""
    found = set(places)
    for place in range(len(pattern)):
        if place in found and pattern[place] == ANY_FOLDERS:
            found.add(place + 1)
    return found
