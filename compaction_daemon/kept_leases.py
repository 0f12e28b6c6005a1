"""The leases that a daemon keeps from one step to the next.

Taking and releasing a lease costs some requests, so a daemon keeps the lease of a table that it works on again and
again. It gives a lease up when the table was quiet for a while; when it has more than a few, because each is kept by a
thread and by requests; and when it leaves work undone, so that another daemon can go on with the table meanwhile.
"""

from __future__ import annotations

from tidelog.compaction_daemon.leases import Held, Lease
from tidelog.log import Table
from tidelog.log.errors import LeaseLostError
from tidelog.log.internals import System, event, logger

_LOGGER = logger(__name__)

# Each lease that is kept costs a thread, and a request every third of its time to live.
MOST_KEPT = 16


class KeptLeases:
    """The leases of a daemon, by the path of the table. Only the daemon's own thread may use it.

    Args:
        owner: The identity of the daemon.
        ttl_s: The time without a heartbeat after which another daemon may take over, in seconds.
        system: The clock.
    """

    def __init__(self, owner: str, ttl_s: float, system: System) -> None:
        self.ttl_s = ttl_s
        self._owner = owner
        self._system = system
        self._leases: dict[str, Lease] = {}
        self._table_ids: dict[str, str] = {}
        self._used_s: dict[str, float] = {}
        self._held: dict[str, Held] = {}

    def take(self, table: Table) -> Lease | Held:
        """The lease of the table, or who else has it. Raises what `Lease.take` raises."""
        kept = self._leases.get(table.path)
        if kept is not None and not (kept.is_held and self._table_ids[table.path] == table.id):
            self.release(table.path)
            kept = None
        found = kept or Lease.take(table, owner=self._owner, ttl_s=self.ttl_s, seen=self._held.pop(table.path, None))
        if isinstance(found, Held):
            self._held[table.path] = found
            return found
        found.keep_alive()
        self._leases[table.path] = found
        self._table_ids[table.path] = table.id
        self._used_s[table.path] = self._system.monotonic_s()
        return found

    def epoch(self, path: str) -> int | None:
        """The epoch of the lease of a table; None if this daemon does not have it."""
        lease = self._leases.get(path)
        return lease.epoch if lease is not None and lease.is_held else None

    def release(self, path: str) -> None:
        """Release the lease of a table, if there is one, and forget who else has it."""
        self._held.pop(path, None)
        self._used_s.pop(path, None)
        self._table_ids.pop(path, None)
        lease = self._leases.pop(path, None)
        if lease is not None:
            lease.release()

    def release_quiet(self) -> None:
        """Release the leases that were not used for a time to live, and the oldest ones of too many."""
        now_s = self._system.monotonic_s()
        by_use = sorted(self._leases, key=self._used_s.__getitem__)
        too_many = by_use[: max(0, len(by_use) - MOST_KEPT)]
        quiet = [path for path in by_use if now_s - self._used_s[path] >= self.ttl_s]
        for path in {*too_many, *quiet}:
            self.release(path)

    def release_all(self) -> None:
        """Release all leases."""
        for path in list(self._leases):
            self.release(path)

    def lost(self, path: str, error: LeaseLostError) -> None:
        """Drop a lease that this daemon has no more: another one has taken over, or its records were deleted."""
        _LOGGER.info("%s: %s", path, error.message, extra=event("lease_lost", table=path, error=error.message))
        self.release(path)
