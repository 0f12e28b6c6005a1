"""Prove that a server honours conditional puts, before the first write to a server without documented support.

Some S3-compatible servers ignore `If-None-Match` and overwrite, so that concurrent writers lose commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

FIRST, SECOND = b"tidelog put this if absent", b"tidelog tried to put this as well; the first should have stayed"


def put_if_absent_holds(put: Callable[[bytes], None], read: Callable[[], bytes]) -> bool:
    """Put a new object twice. True if the second put is refused and the first one's content stays."""
    # No other writer knows the name: if the first put is refused, an earlier try succeeded and its answer got lost.
    with contextlib.suppress(FileExistsError):
        put(FIRST)
    try:
        put(SECOND)
    except FileExistsError:
        return read() == FIRST
    return False
