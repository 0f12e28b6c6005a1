"""Leases as actors use them: they take them, commit one compaction under the fence, pause, die and take over anywhere.

`stepping.py` has the steps of the real daemon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.actors import Compacted, Job, Outcome, told
from tests.simulation.record import Record, Told
from tidelog.compaction_daemon import stage
from tidelog.compaction_daemon.leases import Held, Lease, heartbeat_commit
from tidelog.log import Table
from tidelog.log.errors import LeaseLostError

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

_IDLE: Outcome = (Told.IDLE, None)


@dataclass
class Memory:
    """What a daemon's process knows. A life that ends forgets it."""

    owner: str
    table_id: str
    lease: Lease | None = None
    seen: Held | None = None


@dataclass(frozen=True)
class Attend(Job):
    """A step of a daemon: takes the lease, gives signs of life, compacts, and commits under the fence.

    `level` can also be `heartbeat`: then it only commits one, or `none`: then it does nothing. With `asks_early` it
    gets the fence before it looks at the table, as one does that hands it to a function. It looks `patience` times
    for a lease that another one has. At the `end` it keeps the lease, releases it, or forgets everything, as a
    process that is started again.
    """

    level: str = "minor"
    clustered: bool = False
    asks_early: bool = True
    beats: int = 0
    patience: int = 2
    end: str = "keep"

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        memory = self._memory(actor, table)
        try:
            lease = self._lease(actor, table, memory)
            if lease is None:
                return _IDLE
            for _ in range(self.beats):
                lease.renew()
            return self._work(actor, record, table, lease)
        except LeaseLostError:
            memory.lease = None
            raise
        finally:
            if self.end == "release" and memory.lease is not None:
                memory.lease.release()
            if self.end != "keep":
                actor.process.daemon = None

    def _memory(self, actor: Actor, table: Table) -> Memory:
        known = actor.process.daemon
        if known is None or known.table_id != table.id:
            actor.process.daemon = known = Memory(actor.process.system.uuid(), table.id)
        return known

    def _lease(self, actor: Actor, table: Table, memory: Memory) -> Lease | None:
        for _ in range(self.patience):
            if memory.lease is not None and memory.lease.is_held:
                return memory.lease
            found = Lease.take(table, owner=memory.owner, seen=memory.seen)
            if isinstance(found, Lease):
                actor.world.epochs.took(table.id, found)
                memory.lease, memory.seen = found, None
                return found
            memory.seen = found
            actor.process.system.sleep_s(found.free_in_s)
        return None

    def _work(self, actor: Actor, record: Record, table: Table, lease: Lease) -> Outcome:
        if self.level == "none":
            return _IDLE
        if self.level == "heartbeat":
            heartbeat_commit(table, lease)
            return _IDLE
        early = lease.fence if self.asks_early else None
        record.operation = Compacted("COMPACT", self.level)
        actor.world.epochs.working[actor.number, actor.process.operation] = (table.id, lease.epoch)
        columns = ["v"] if self.clustered and self.level == "major" else ()
        transaction = stage(table, self.level, cluster_by=columns, purge=self.level == "major")
        if early is None:
            lease.renew_if_due()
        result = told(transaction.fenced(early or lease.fence).commit())
        return _IDLE if result[1] == transaction.base_version else result
