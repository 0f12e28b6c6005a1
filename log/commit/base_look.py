"""The look at a transaction's base version before its commit, which can begin while its files are being written."""

from __future__ import annotations

from concurrent.futures import Future

from tidelog.log.state.head import Head
from tidelog.log.state.table_identity import same_commit_reads
from tidelog.log.storage import Store
from tidelog.log.storage.store import begun
from tidelog.log.system import System

# An older look is not relied on. It proves nothing at any age, since the log can change right after it; but the longer
# ago it was, the more often it would be wrong.
LOOK_AGE_S = 10.0


class BaseLook:
    """Whether the commit of `head` can be read, and is the one that the head was loaded from."""

    def __init__(self, store: Store, head: Head, system: System) -> None:
        self._store = store
        self._head = head
        self._system = system
        self._began_s = 0.0
        self._early: Future[bool] | None = None

    def begin(self) -> None:
        """Look in a thread, if a look takes long enough for that. Further calls do nothing."""
        if self._early is None and self._head.version >= 0 and self._store.small_reads_at_once > 1:
            self._began_s = self._system.monotonic_s()
            self._early = begun(self._look, "tidelog-base-look")

    def is_same(self) -> bool:
        """The answer. Waits for a look that has begun lately, else looks now. Raises CorruptLogError."""
        if self._early is not None and self._system.monotonic_s() - self._began_s <= LOOK_AGE_S:
            return self._early.result()
        return self._look()

    def _look(self) -> bool:
        return same_commit_reads(self._store, self._head)
