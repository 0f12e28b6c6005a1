"""Whether a daemon is healthy: its loop gets on. A table that fails does not make it unhealthy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from tidelog.compaction_daemon.process.daemon_status import DaemonStatus


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a daemon.

    Attributes:
        healthy: Whether its loop gets on, or sleeps until a known time.
        reason: Why it is not healthy; None if it is.
        started: When the daemon started.
        steps: How many steps it has made.
        last_step: When the last one ended.
        tables: How many tables it has in each state.
    """

    healthy: bool
    reason: str | None
    started: datetime
    steps: int
    last_step: datetime | None
    tables: dict[str, int]


def health_of(status: DaemonStatus) -> Health:
    """The health of a daemon with this status."""
    reason = "a step takes longer than it should ever take" if status.stalled else None
    tables = dict(sorted(Counter(str(table.state) for table in status.tables).items()))
    return Health(reason is None, reason, status.started, status.steps, status.last_step, tables)
