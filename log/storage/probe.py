"""The proof, before the first write to a server that nobody vouches for, that it honours the conditional put.

There are servers that speak S3 and do not know `If-None-Match`: they overwrite, and two writers lose each other's
commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

FIRST, SECOND = b"tidelog put this if absent", b"tidelog tried to put this as well; the first should have stayed"


def put_if_absent_holds(put: Callable[[bytes], None], read: Callable[[], bytes]) -> bool:
    """Whether of two conditional puts of one new object the second is refused and the first one's content stays."""
    # Nobody else knows the name: where the first put is refused, the answer to an earlier try of it was lost.
    with contextlib.suppress(FileExistsError):
        put(FIRST)
    try:
        put(SECOND)
    except FileExistsError:
        return read() == FIRST
    return False
