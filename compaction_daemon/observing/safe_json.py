"""Values as JSON that can be shown: without credentials, without control characters, and of a bounded size."""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.log.presentable import presentable

# A table can hold texts of any length, such as a user's metadata. In characters.
MAX_SHOWN_TEXT = 500


def safe_builtins(value: object) -> Any:
    """The value as dicts, lists, texts, numbers and None. Times are ISO-8601 texts in UTC.

    Every text in it, keys included, is presentable (`tidelog.log.presentable`) and has at most 500 characters.
    """
    return _safe(msgspec.to_builtins(value, str_keys=True))


def safe_text(text: str) -> str:
    """A text as `safe_builtins` returns it."""
    # Cut before and after: making a text presentable can lengthen it, and takes time.
    shown = presentable(text[: 4 * MAX_SHOWN_TEXT])
    return shown if len(shown) <= MAX_SHOWN_TEXT else f"{shown[: MAX_SHOWN_TEXT - 1]}…"


def json_bytes(value: object) -> bytes:
    """What `safe_builtins` returned, as JSON that can stand anywhere in an HTML page.

    The characters that could end a script element, or start a comment or an entity, are escaped.
    """
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _safe(value: Any) -> Any:
    match value:
        case str():
            return safe_text(value)
        case dict():
            return {_safe(key): _safe(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_safe(entry) for entry in value]
        case float() if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - not a number
            return None
        case _:
            return value
