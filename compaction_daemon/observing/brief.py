"""What the log of a table says in a few lines: for a list of many tables. A report (`table_report`) says more.

It costs some requests for each table, and reads no data file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidelog.compaction_daemon.leases.lease_status import LeaseStatus, lease_of
from tidelog.compaction_daemon.observing.clean_ups import CleanUpTime, clean_up_times
from tidelog.compaction_daemon.observing.parts import Parts, Problem
from tidelog.compaction_daemon.observing.safe_json import safe_builtins
from tidelog.compaction_daemon.upkeep.retentions import Retention, retentions
from tidelog.log import Debt, OperationClass, Table
from tidelog.log.commit_records import commit_records
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.format import properties
from tidelog.log.system import REAL_SYSTEM, System, to_datetime

# How many commits are read, newest first, to find a compaction: about a second on an object store.
_SEARCHED_COMMITS = 50
# The commits that are read to measure the lag of a consumer; one that is further behind is at least so far behind.
_LAG_COMMITS = 100
_LEVELS = {OperationClass.MINOR: "minor", OperationClass.MAJOR: "major"}


@dataclass(frozen=True, slots=True)
class LastCompaction:
    """The newest compaction that is in the history, by whichever engine."""

    version: int
    at: datetime
    level: str


@dataclass(frozen=True, slots=True)
class TableBrief:
    """What the log of a table says at one version.

    Attributes:
        path: The table.
        version: The version.
        timestamp: Its commit time (UTC).
        debt: What compaction and a checkpoint would save.
        checkpoint: The version of the newest checkpoint; None if there is none.
        lease: Which daemon has it, or had it last; None if none ever had.
        last_compaction: The newest compaction among the newest 50 commits.
        consumers: The registered consumers by name.
        clean_up: Whether daemons clean it up (`tidelog.cleanUp`).
        clean_ups: When that was done, and is due.
        retentions: How long what is kept.
        problems: The parts that could not be read; they are empty above.
    """

    path: str
    version: int
    timestamp: datetime
    debt: Debt | None
    checkpoint: int | None
    lease: LeaseStatus | None
    last_compaction: LastCompaction | None
    consumers: tuple[ConsumerStatus, ...]
    clean_up: bool
    clean_ups: tuple[CleanUpTime, ...]
    retentions: tuple[Retention, ...]
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON; no text in it has credentials, control characters or more than 500 characters."""
        found: dict[str, Any] = safe_builtins(self)
        return found


def brief_of(table: Table, *, system: System = REAL_SYSTEM) -> TableBrief:
    """The brief of the loaded version of a table. What cannot be read is left out, and named in `problems`.

    Args:
        table: The table.
        system: The clock.
    """
    parts = Parts()
    debt: Debt | None = parts.make("debt", table.debt, None)
    found_consumers: tuple[ConsumerStatus, ...] = parts.make(
        "consumers", lambda: tuple(consumers(table.store, table.head, system, max_commits=_LAG_COMMITS)), ()
    )
    return TableBrief(
        path=table.path,
        version=table.version,
        timestamp=to_datetime(table.head.timestamp_ms),
        debt=debt,
        checkpoint=None if debt is None or debt.log_tail > table.version else table.version - debt.log_tail,
        lease=parts.make("lease", lambda: lease_of(table), None),
        last_compaction=parts.make("last compaction", lambda: _last_compaction(table), None),
        consumers=found_consumers,
        clean_up=properties.clean_up(table.properties),
        clean_ups=parts.make("clean-ups", lambda: clean_up_times(table, system), ()),
        retentions=retentions(table.properties),
        problems=tuple(parts.problems),
    )


def _last_compaction(table: Table) -> LastCompaction | None:
    for record in commit_records(table.timeline, _SEARCHED_COMMITS):
        level = _LEVELS.get(record.operation_class)
        if level is not None:
            return LastCompaction(record.version, record.timestamp, level)
    return None
