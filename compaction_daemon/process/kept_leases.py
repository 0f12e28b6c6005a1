"""The leases that a daemon keeps from one step to the next.

Taking and releasing a lease costs some requests, so a daemon keeps the lease of a table that it works on again and
again. It gives a lease up when the table was quiet for a while; when it has more than a few, because each is kept by a
thread and by requests; and when it leaves work undone, so that another daemon can go on with the table meanwhile.

Several daemons share busy tables. One that waits for a lease asks for it, and says how many it keeps. Who keeps more
gives up half of what it has more, and then stays away from these tables for long enough that the other one comes first.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.compaction_daemon.leases import Held, Lease
from tidelog.log import Table
from tidelog.log.errors import LeaseLostError
from tidelog.log.log_records import event
from tidelog.log.system import System, logger

_LOGGER = logger(__name__)

# Each lease that is kept costs a thread, and a request every third of its time to live.
MOST_KEPT = 16
# Who waits looks at a lease once in its time to live. Twice as long, it has come, and has said how many it keeps now.
_AWAY = 2


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
        # Tables that were left to another daemon.
        self._given: dict[str, Held] = {}
        self._give_again_s = float("-inf")
        # A daemon that runs asks for the leases of others. The step of a program keeps none.
        self.asks = False

    def take(self, table: Table) -> Lease | Held:
        """The lease of the table, or who else has it. Raises what `Lease.take` raises."""
        kept = self._leases.get(table.path)
        if kept is not None and not (kept.is_held and self._table_ids[table.path] == table.id):
            self.release(table.path)
            kept = None
        given = self._still_given(table.path)
        if given is not None:
            return given
        found = kept or self._taken(table)
        if isinstance(found, Held):
            self._held[table.path] = found
            return found
        found.keep_alive()
        self._leases[table.path] = found
        self._table_ids[table.path] = table.id
        self._used_s[table.path] = self._system.monotonic_s()
        for path in sorted(self._leases, key=self._used_s.__getitem__)[:-MOST_KEPT]:
            self.release(path)
        return found

    def _taken(self, table: Table) -> Lease | Held:
        seen, keeps = self._held.pop(table.path, None), len(self._leases)
        asks = self.asks and keeps < MOST_KEPT
        return Lease.take(table, owner=self._owner, ttl_s=self.ttl_s, seen=seen, keeps=keeps if asks else None)

    def _still_given(self, path: str) -> Held | None:
        given = self._given.get(path)
        left_s = given.seen_s + given.free_in_s - self._system.monotonic_s() if given else 0.0
        if given and left_s > 0:
            return replace(given, free_in_s=left_s)
        self._given.pop(path, None)
        return None

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
        """Release the leases that were not used for a time to live."""
        now_s = self._system.monotonic_s()
        for path in [path for path in self._leases if now_s - self._used_s[path] >= self.ttl_s]:
            self.release(path)

    def share(self) -> None:
        """Give up leases that another daemon asked for, if this one keeps at least two more."""
        now_s = self._system.monotonic_s()
        requests = {path: lease.request for path, lease in self._leases.items() if lease.request is not None}
        if not requests or now_s < self._give_again_s:
            return
        fewest = min(request.leases for request in requests.values())
        for path, request in list(requests.items())[: max(0, len(self._leases) - fewest) // 2]:
            epoch, away_s = self._leases[path].epoch, _AWAY * self.ttl_s
            self.release(path)
            self._given[path] = Held(request.owner, epoch, self.ttl_s, away_s, record_id="", seen_s=now_s)
            self._give_again_s = now_s + away_s

    def release_all(self) -> None:
        """Release all leases."""
        for path in list(self._leases):
            self.release(path)

    def lost(self, path: str, error: LeaseLostError) -> None:
        """Drop a lease that this daemon has no more: another one has taken over, or its records were deleted."""
        _LOGGER.info("%s: %s", path, error.message, extra=event("lease_lost", table=path, error=error.message))
        self.release(path)
