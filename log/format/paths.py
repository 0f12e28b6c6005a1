"""Convert paths: an action's `path` is a URI (RFC 2396), relative to the table or absolute; stores use plain paths."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Besides letters and digits, the characters that need no escape in a path segment (RFC 2396, section 3.3), and `/`.
_SAFE = "/-_.!~*'(),:@&=+$;"


def is_absolute(uri: str) -> bool:
    """Whether the URI is absolute, so that it does not refer to a path below the table."""
    return uri.startswith("/") or _SCHEME.match(uri) is not None


def canonical(uri: str) -> str:
    """Spell an absolute local path in one way: `/x`, `file:/x` and `file:///x` all become `/x`."""
    if not uri.startswith("file:"):
        return uri
    return "/" + uri.removeprefix("file:").lstrip("/")


def to_storage_path(uri: str) -> str:
    """Convert an action's URI to a storage path. Percent escapes such as `%2F` are decoded once."""
    return unquote(uri)


def to_uri(path: str) -> str:
    """Convert a path relative to the table to the URI for an action."""
    return quote(path, safe=_SAFE)
