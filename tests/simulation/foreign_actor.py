"""Another engine as an actor: it writes the open log as Delta describes it, and knows nothing of tidelog."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.log.oracle.foreign import Foreign, ForeignKind, Site
from tests.log.oracle.settings import Setting
from tests.simulation.actors import Job, Outcome
from tests.simulation.checks import TableHistory
from tests.simulation.record import Record, Told
from tests.simulation.scenario import HOUR_MS

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

# A clean-up deletes uncommitted files that are old enough. The log cannot stop another engine that slept longer than
# that, so this one never takes as long.
_LONGEST_MS = 12 * HOUR_MS
# Those that a table still takes afterwards, and that need no older version's files.
_KINDS = (
    ForeignKind.APPEND,
    ForeignKind.COPY_DELETE,
    ForeignKind.COPY_UPDATE,
    ForeignKind.VECTOR_DELETE,
    ForeignKind.VECTOR_UPDATE,
    ForeignKind.OPTIMIZE,
    ForeignKind.SHRINK,
)


def kinds(setting: Setting) -> tuple[ForeignKind, ...]:
    """What another engine can do to such a table."""
    return tuple(kind for kind in _KINDS if setting.vectors or not kind.vectors)


@dataclass(frozen=True)
class WriteForeign(Job):
    """A commit of another engine, computed from the newest version. It is given up if another commit comes first."""

    kind: ForeignKind

    def run(self, actor: Actor, record: Record) -> Outcome:
        world, process = actor.world, actor.process
        table = world.history.current
        if table.ended:
            return Told.IDLE, None
        record.what += f" {self.kind.value}"
        process.began_ms -= max(0, world.scenario.longest_operation_ms - _LONGEST_MS)
        history = TableHistory(world, table)
        view = history.views[table.head]
        site = Site(view, view, history.reader, process.store, process.system)
        with contextlib.suppress(FileExistsError):
            Foreign(self.kind).commit(site)
        return Told.IDLE, None
