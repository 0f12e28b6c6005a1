"""Steps of the real daemon as jobs: `TableStepper` with leases that it keeps, at one table.

A step plans, compacts group by group and commits what is finished from time to time, all under the lease that the
process keeps from one step to the next. Such a world commits after some milliseconds already, so that a compaction of
a few groups has several commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.actors import Compacted, Job, Outcome
from tests.simulation.record import Record
from tidelog.compaction_daemon.leases import Held, Lease
from tidelog.compaction_daemon.planning.request import AUTO_LEVEL
from tidelog.compaction_daemon.process.kept_leases import KeptLeases
from tidelog.compaction_daemon.process.table_step import TableStep, TableStepper
from tidelog.compaction_daemon.process.watched_tables import WatchedTable
from tidelog.compaction_daemon.settings.config import DaemonConfig
from tidelog.log import Table

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

# What would mean that the table is damaged. Everything else may happen to whoever uses a store that fails.
_DAMAGE = ("TIDELOG_CORRUPT", "TIDELOG_DATA_FILE")


@dataclass(frozen=True)
class Daemon:
    """What a daemon's process knows. A life that ends forgets it."""

    stepper: TableStepper
    watched: WatchedTable


class _Noted(KeptLeases):
    """The leases of a daemon. The world is told of each, and under which epoch the actor works."""

    def __init__(self, actor: Actor, owner: str, ttl_s: float) -> None:
        super().__init__(owner, ttl_s, actor.process.system)
        self._actor = actor

    def take(self, table: Table) -> Lease | Held:
        found = super().take(table)
        if isinstance(found, Lease):
            actor, epochs = self._actor, self._actor.world.epochs
            epochs.took(table.id, found)
            epochs.working[actor.number, actor.process.operation] = (table.id, found.epoch)
        return found


@dataclass(frozen=True)
class Step(Job):
    """A step of a daemon. At the `end` it keeps its lease, releases it, or is killed and started again."""

    clean_up: bool = False
    heartbeat_s: float | None = None
    end: str = "keep"

    @property
    def name(self) -> str:
        # For what may be deleted, a daemon that cleans up counts as its clean-ups.
        return "Step: Expire Vacuum" if self.clean_up else "Step"

    def run(self, actor: Actor, record: Record) -> Outcome:
        process = actor.process
        process.stepping = daemon = process.stepping or self._born(actor)
        stepper, watched = daemon.stepper, daemon.watched
        look = stepper.look(watched)
        if isinstance(look, Table):
            record.table_id = look.id
        record.operation = Compacted("COMPACT", AUTO_LEVEL)
        step = stepper.step(watched, look)
        if self.end == "release":
            stepper.leases.release_all()
        else:
            stepper.leases.release_quiet()
        if self.end == "forget":
            process.end_threads()
            process.stepping = None
        _look_for_damage(actor, step)
        return actor.compacted(record, step.compaction, step.error)

    def _born(self, actor: Actor) -> Daemon:
        system = actor.process.system
        config = DaemonConfig(clean_up=self.clean_up, heartbeat_s=self.heartbeat_s)
        owner = system.uuid()
        stepper = TableStepper(config, owner, system)
        stepper.leases = _Noted(actor, owner, config.lease_ttl_s)
        stepper.leases.asks = True
        return Daemon(stepper, WatchedTable(actor.world.url, None, config, system))


def _look_for_damage(actor: Actor, step: TableStep) -> None:
    """Upkeep must not find damage where nobody deleted anything, and every error must be expected."""
    for error in step.upkeep.errors if step.upkeep else ():
        if error.code.startswith(_DAMAGE) and not actor.world.cleaned_ms:
            actor.world.object("readable", f"{actor.plan.name} was told {error}")
    if step.error is not None and "does not expect" in step.error.message:
        actor.world.object("untyped", f"{actor.plan.name} got {step.error.message}")
