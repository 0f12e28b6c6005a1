r"""Text from a table or a path, made fit for people: for terminals, logs and tracebacks.

A table can come from anybody, and so can the names in it. A terminal obeys control characters: an escape sequence can
hide or forge lines, or change what is typed next, and a bidirectional control reorders what is shown. So they are
spelled out, such as `\x1b`, wherever text is shown. Credentials in a URL are replaced with `***`.

Errors (`tidelog.log.errors`), log records (`tidelog.log.system.logger`) and the command line (`tidelog.cli.output`) go
through here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice

HIDDEN = "***"

# Their user part names a container, not a user: abfss://container@account.dfs.core.windows.net/folder.
_CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs", "az")
# How alike a name and a known one are, of 1, to be worth a question: `ammount` and `amount` are, `day` and `date` not.
_ALIKE = 0.7
# The comparison of two long names can be slow, so that more or longer ones of a hostile table would take seconds.
_LONGEST_NAME = 64
# What an error shows of a value.
_LONGEST_VALUE = 200
_MOST_NAMES = 1000
_ADDRESS = re.compile(r"\S+")
_PORT = re.compile(r"\d{1,5}(?![^/?#])")
# Parts of connection strings, and parameters of URLs.
_PARAMETER = re.compile(
    r"((?:\b(?:AccountKey|SharedAccessKey|SharedAccessSignature|sig|X-(?:Amz|Goog)-(?:Signature|Security-Token))"
    r"|(?<=[?&;])(?:\w*(?:token|password|secret)\w*|signature))=)[^;&\s'\"]+",
    re.IGNORECASE,
)


def printable(text: str) -> str:
    r"""`text` with line ends, escapes and other control characters spelled out, such as `\x1b`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def brief(value: object) -> str:
    """`repr(value)`, or the start of a long one. Python does not spell integers of more than 4,300 digits."""
    try:
        text = repr(value)
    except ValueError:
        endless = "thousands of digits"
        return f"<{endless}>" if isinstance(value, int) else f"<a {type(value).__name__} with {endless}>"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def without_credentials(text: str) -> str:
    """`text` with the credentials in its URLs and connection strings replaced with `***`."""
    if "://" in text and "@" in text:
        text = _ADDRESS.sub(lambda found: _without_users(found[0]), text)
    return _PARAMETER.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def address_without_credentials(address: str) -> str:
    """`address` like `without_credentials`, but its scheme may be missing: `user:secret@host:80` as well."""
    bare = address.lstrip("/")
    return address[: len(address) - len(bare)] + without_credentials(f"//://{bare}").removeprefix("//://")


def presentable(text: str) -> str:
    """`text` without credentials, as one line in which nothing can move a terminal's cursor."""
    return printable(without_credentials(text))


def presentable_lines(text: str) -> str:
    """`text` like `presentable`, but with its line ends."""
    return "\n".join(presentable(line) for line in text.split("\n"))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A question for the `advice` of an error about an unknown name: `did you mean 'amount'? `.

    Args:
        name: What was given.
        known: The names that would have been right.

    Returns:
        The question with a space behind it, so that advice can follow; empty if no known name is like the given one.
    """
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return ""
    by_lower = {other.lower(): other for other in islice(known, _MOST_NAMES) if len(other) <= _LONGEST_NAME}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_ALIKE)
    return f"did you mean {by_lower[found[0]]!r}? " if found else ""


def _without_users(address: str) -> str:
    """One word with a URL in it, such as `path=s3://key:secret@bucket/x`, without the URL's user part."""
    first, *rests = address.split("://")
    parts, scheme = [first], first
    for rest in rests:
        shown = rest[_end_of_user(rest, scheme) :]
        parts.append(shown if len(shown) == len(rest) else f"{HIDDEN}@{shown}")
        scheme = rest
    return "://".join(parts)


def _end_of_user(rest: str, scheme: str) -> int:
    """The length of the user part of what follows `scheme://`, with its `@`; 0 if it has none.

    A password can contain a `/` that should have been escaped, as those of Amazon often do.
    """
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, _ = authority.partition(":")
    if colon and "@" not in user and "@" in rest and not _PORT.match(rest, len(user) + 1):
        start = rest.index("@", len(user)) + 1
        return start + re.split(r"[/?#]", rest[start:], maxsplit=1)[0].rfind("@") + 1
    if "@" in authority and not scheme.lower().endswith(_CONTAINER_SCHEMES):
        return authority.rindex("@") + 1
    return 0
