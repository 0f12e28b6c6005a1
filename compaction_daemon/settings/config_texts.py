"""What the texts of a configuration file stand for: environment variables, relative paths, and lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tidelog.log.errors import ConfigurationError
from tidelog.log.system import environment

_VARIABLE = re.compile(r"\$(\$?)\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A path of the machine that is neither absolute, nor below a home, nor a URL.
_RELATIVE = re.compile(r"(?![/~])(?![A-Za-z][A-Za-z0-9+.-]+:)")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ENTRY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def with_environment(text: str) -> str:
    """The text with `${NAME}` replaced by the environment's variable. `$${NAME}` stands for `${NAME}` itself.

    Raises ConfigurationError, which never shows a value.
    """

    def value(found: re.Match[str]) -> str:
        escaped, name = found.groups()
        if escaped:
            return found[0][1:]
        if not found[0].endswith("}") or not _NAME.fullmatch(name):
            raise ConfigurationError(
                "has a ${ that no name and } follow", advice="write ${NAME}, or $${ for the characters themselves"
            )
        known = environment(name)
        if known is None:
            raise ConfigurationError(
                f"needs the environment variable {name}, which is not set", advice=f"set {name}, or remove ${{{name}}}"
            )
        return known

    return _VARIABLE.sub(value, text)


def local_path(path: str, folder: str) -> str:
    """The path, or glob, with `folder` in front if it is relative to it."""
    return f"{folder}/{path}" if _RELATIVE.match(path) and path else path


def line_of(text: str, key: tuple[str | int, ...]) -> int | None:
    """The line on which a key of a TOML text stands, or the one that holds it; None if it is not found.

    Lines within a text of several lines are taken for keys if they look like ones, so this is for messages only.
    """
    best: tuple[int, int | None] = (0, None)
    for number, found in _keys(text):
        length = len(found)
        if found == key[:length] and length > best[0]:
            best = (length, number)
    return best[1]


def _keys(text: str) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    """The line and the name of each section and key. An entry of a list of sections ends with its number."""
    section: tuple[str | int, ...] = ()
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        header, entry = _HEADER.match(line), _ENTRY.match(line)
        if header:
            first, *rest = _parts(header[2])
            if header[1] == "[[":
                counts[first] += 1
            section = (first, *([counts[first] - 1] if counts[first] else []), *rest)
            yield number, section
        elif entry:
            yield number, (*section, *_parts(entry[1]))


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]
