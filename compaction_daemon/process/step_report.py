"""What one step of a daemon did."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
from tidelog.compaction_daemon.process.daemon_status import TableState
from tidelog.compaction_daemon.upkeep import UpkeepReport
from tidelog.log.errors import TidelogError


@dataclass(frozen=True, slots=True)
class TableStep:
    """What a step did for one table.

    Args:
        path: The table.
        version: Its newest version after the step; None if the step failed.
        compaction: What the compaction did; a report without a version if there was nothing to do.
        upkeep: What upkeep did; None if nothing was due.
        error: What went wrong; None if nothing did.
        state: What the daemon is doing about the table after the step.
        seconds: How long the step took for this table.
    """

    path: str
    version: int | None
    compaction: CompactionReport
    upkeep: UpkeepReport | None = None
    error: TidelogError | None = None
    state: TableState = TableState.WATCHED
    seconds: float = 0.0

    @property
    def did_anything(self) -> bool:
        """Whether the table was compacted, got a checkpoint or was cleaned up."""
        return self.compaction.did_anything or (self.upkeep is not None and self.upkeep.did_anything)

    @property
    def checkpointed(self) -> bool:
        """Whether a checkpoint was written."""
        return self.upkeep is not None and self.upkeep.checkpoint is not None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did.

    Args:
        tables: One entry for each table that the step looked at.
    """

    tables: tuple[TableStep, ...]

    @property
    def did_anything(self) -> bool:
        """Whether anything was done for any table."""
        return any(table.did_anything for table in self.tables)
