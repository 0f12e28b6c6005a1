"""Whether a daemon is healthy: its loop makes steps. A table that fails does not make it unhealthy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidelog.compaction_daemon.status import DaemonStatus

# A loop with nothing to do still makes a step every minute by default, and a step in hand is reported as stalled.
LONGEST_SILENCE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a daemon.

    Attributes:
        healthy: Whether its loop makes steps.
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
    reason = _reason(status)
    tables = dict(sorted(Counter(str(table.state) for table in status.tables).items()))
    return Health(reason is None, reason, status.started, status.steps, status.last_step, tables)


def _reason(status: DaemonStatus) -> str | None:
    if status.stalled:
        return "a step takes longer than it should ever take"
    silence = status.at - (status.last_step or status.started)
    if silence > LONGEST_SILENCE:
        what = "the last step ended" if status.last_step else "the daemon started, and has made no step,"
        return f"{what} {silence.total_seconds() / 60:.0f} minutes ago"
    return None
