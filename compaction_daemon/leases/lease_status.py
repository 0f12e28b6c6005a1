"""Who has the lease of a table, for people. Nothing is decided by it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidelog.compaction_daemon.leases.lease_record import LeaseState, latest_lease, require_shard, row_of
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError
from tidelog.log.system import to_datetime


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """The newest record of a lease.

    Attributes:
        owner: Who has it, or had it last: host, process id and an id of its own.
        epoch: The number of that ownership.
        beat: How many records the owner has written since it took the lease.
        state: `held`, `silent` (held, and without a sign of life for the time to live) or `released`.
        ttl_s: How long the owner may be silent.
        heartbeat: The last sign of life (UTC), by the store's clock.
        age_s: How long ago that was: the store's clock against this machine's, so it is only for people. At least 0.
    """

    owner: str
    epoch: int
    beat: int
    state: str
    ttl_s: float
    heartbeat: datetime
    age_s: float


def lease_of(table: Table, shard: str = "0") -> LeaseStatus | None:
    """Who has the lease of a shard of the table; None if nobody ever had. Writes nothing.

    Raises ConfigurationError, CorruptLogError, StoreUnavailableError.
    """
    row = row_of(table.id, require_shard(shard))
    latest = latest_lease(table.store, row)
    record, now_ms = latest.record, table.timeline.system.now_ms()
    if latest.damage:
        raise CorruptLogError(
            f"the newest record of {row.what} of {table.path} is damaged: {latest.damage}",
            advice="nothing, if a daemon runs: it takes the lease over",
            path=table.path,
        )
    if record is None:
        return None
    try:
        heartbeat_ms = table.store.modified_ms(latest.path)
    except FileNotFoundError:
        heartbeat_ms = now_ms  # several have been written since, so the owner is alive
    age_ms = max(0, now_ms - heartbeat_ms)
    is_silent = record.state is LeaseState.HELD and age_ms >= record.ttl_ms
    return LeaseStatus(
        owner=record.owner,
        epoch=record.epoch,
        beat=record.beat,
        state="silent" if is_silent else str(record.state),
        ttl_s=record.ttl_ms / 1000,
        heartbeat=to_datetime(heartbeat_ms),
        age_s=age_ms / 1000,
    )
