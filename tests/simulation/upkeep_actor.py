"""Upkeep as an actor: it expires and vacuums when that is due, from the log alone and by listing, and dies anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.actors import CLEAN_UP_AGE, Job, Outcome
from tests.simulation.record import Record, Told
from tidelog.compaction_daemon import Upkeep
from tidelog.log.format import properties

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

# So that upkeep deletes what the other clean-ups may delete, too.
RETENTIONS = tuple(
    (key, f"{CLEAN_UP_AGE.days} days") for key in (properties.LOG_RETENTION, properties.DELETED_FILE_RETENTION)
)
# What would mean that the table is damaged. Everything else may happen to whoever uses a store that fails.
_DAMAGE = ("TIDELOG_CORRUPT", "TIDELOG_DATA_FILE")


@dataclass(frozen=True)
class VacuumFromLog(Job):
    """A vacuum that does not list the folder. For what it may delete it counts as a `Vacuum`."""

    @property
    def name(self) -> str:
        return "Vacuum"

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        table.vacuum(older_than=CLEAN_UP_AGE, listing=False)
        return Told.IDLE, None


@dataclass(frozen=True)
class KeepUp(Job):
    """A look of the daemon's upkeep, which remembers the last one as long as the process lives."""

    @property
    def name(self) -> str:
        return "Upkeep: Expire Vacuum"

    def run(self, actor: Actor, record: Record) -> Outcome:
        table = actor.table().refresh()
        record.table_id = table.id
        process = actor.process
        if process.upkeep is None:
            process.upkeep = Upkeep(system=process.system)
        report = process.upkeep.run(table)
        for error in report.errors:
            if error.code.startswith(_DAMAGE) and not actor.world.cleaned_ms:
                actor.world.object("readable", f"{actor.plan.name} was told {error}")
        return Told.IDLE, None
