"""Values as JSON that can be shown: without credentials, without control characters, and of a bounded size.

A report nests the values of the log and of the daemon as they are. They become JSON here, at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from tidelog.log.presentable import presentable

# A table can hold texts of any length, such as a user's metadata. In characters.
MAX_SHOWN_TEXT = 500


def values_of(value: object) -> dict[str, Any]:
    """The attributes of a dataclass or a msgspec Struct, by the names that they have in Python.

    These are one level of it: a view can leave some out, and add others.
    """
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise TypeError(type(value))


def safe_builtins(value: object) -> Any:
    """The value as dicts, lists, texts, numbers and None. Times are ISO-8601 texts in UTC.

    An object becomes a dict of its attributes. Every text in it, keys included, is presentable
    (`tidelog.log.presentable`) and has at most 500 characters.
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            return safe_text(value)
        case float():
            is_number = value == value and value not in (float("inf"), float("-inf"))  # noqa: PLR0124 - NaN is no number
            return value if is_number else None
        case Mapping():
            return {safe_text(str(key)): safe_builtins(entry) for key, entry in value.items()}
        case list() | tuple():
            return [safe_builtins(entry) for entry in value]
        case _ if isinstance(value, msgspec.Struct) or is_dataclass(value):
            return safe_builtins(values_of(value))
        case _:
            return safe_builtins(msgspec.to_builtins(value))


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
