"""Text that the log can hold."""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8. One with half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
