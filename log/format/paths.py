"""`add.path` is a URI (RFC 2396), relative to the table or absolute; storage wants plain paths."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# What a path segment may hold unescaped besides letters and digits: RFC 2396, section 3.3, and the slash.
_SAFE = "/-_.!~*'(),:@&=+$;"


def is_absolute(uri: str) -> bool:
    """Whether the file lies wherever the URI says, not below the table."""
    return uri.startswith("/") or _SCHEME.match(uri) is not None


def canonical(uri: str) -> str:
    """One spelling of an absolute local path: `/x`, `file:/x` and `file:///x` name one file."""
    if not uri.startswith("file:"):
        return uri
    return "/" + uri.removeprefix("file:").lstrip("/")


def to_storage_path(uri: str) -> str:
    """The path that storage knows the file by; `%2F` and its like are decoded once."""
    return unquote(uri)


def to_uri(path: str) -> str:
    """The URI text to put into an action for a path relative to the table."""
    return quote(path, safe=_SAFE)
