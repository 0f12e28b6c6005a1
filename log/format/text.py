"""Text that the log can hold."""

from __future__ import annotations

# What msgspec raises for text that is not JSON of the wanted type: its own errors and those of UTF-8 are ValueErrors,
# and it gives up on deep nesting, even in what it would skip.
MALFORMED_JSON = (ValueError, RecursionError)


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8. One with half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
