"""What one call of upkeep did for a table, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from tidelog.compaction_daemon.upkeep.due import Chore
from tidelog.compaction_daemon.upkeep.retentions import Retention
from tidelog.log import ExpiryReport, VacuumReport
from tidelog.log.operations.tend_index import IndexReport
from tidelog.log.system import utc_text


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What is done next.

    Attributes:
        chore: What is done.
        at: When (UTC); None if it waits for commits.
        why: The reason, in words.
    """

    chore: Chore
    at: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class UpkeepError:
    """A chore that failed and is tried again later.

    Attributes:
        chore: What failed.
        error: What went wrong.
        code: The code of the error.
        since: When it failed like this for the first time (UTC).
        retry_at: When it is tried again (UTC).
        is_new: Whether this call found it. It is reported once; as long as it stays the same, it is not new again.
    """

    chore: Chore
    error: str
    code: str
    since: datetime
    retry_at: datetime
    is_new: bool


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What one call of `Upkeep.run` did for a table.

    Attributes:
        path: The table.
        checkpoint: The version of which a checkpoint was written; None if there was none to write.
        expiry: The expiry of history that ended in this call.
        vacuum: The vacuum that ended in this call.
        running: What goes on in the next call, because it takes longer than one may take.
        upcoming: What is due next, soonest first.
        clean_up: Whether the table is cleaned up; if not, only checkpoints are written.
        retentions: The retentions in force, and where they come from.
        held_by: The consumers that the newest clean-ups waited for.
        errors: What fails now.
        key_index: What was done for the key index; None if nothing was due, or it goes on.
    """

    path: str
    checkpoint: int | None
    expiry: ExpiryReport | None
    vacuum: VacuumReport | None
    running: Chore | None
    upcoming: tuple[Upcoming, ...]
    clean_up: bool
    retentions: tuple[Retention, ...]
    held_by: tuple[str, ...]
    errors: tuple[UpkeepError, ...]
    key_index: IndexReport | None = None

    @property
    def did_anything(self) -> bool:
        """Whether something was written or deleted, or goes on in the next call."""
        cleaned = [report for report in (self.expiry, self.vacuum) if report is not None]
        is_tended = self.key_index is not None and self.key_index.did_anything
        is_cleaned = any(each.did_anything for each in cleaned)
        return self.checkpoint is not None or self.running is not None or is_tended or is_cleaned

    @property
    def files_deleted(self) -> int:
        """How many files the clean-ups that ended in this call deleted."""
        return sum(len(report.files) for report in (self.expiry, self.vacuum) if report is not None)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with times as ISO-8601 text in UTC."""
        return {
            "path": self.path,
            "checkpoint": self.checkpoint,
            "expiry": None if self.expiry is None else self.expiry.to_dict(),
            "vacuum": None if self.vacuum is None else self.vacuum.to_dict(),
            "key_index": None if self.key_index is None else msgspec.to_builtins(self.key_index),
            "running": self.running,
            "upcoming": [
                {"chore": each.chore, "at": None if each.at is None else utc_text(each.at), "why": each.why}
                for each in self.upcoming
            ],
            "clean_up": self.clean_up,
            "retentions": [each.to_dict() for each in self.retentions],
            "held_by": list(self.held_by),
            "errors": [
                {
                    "chore": each.chore,
                    "error": each.error,
                    "code": each.code,
                    "since": utc_text(each.since),
                    "retry_at": utc_text(each.retry_at),
                    "is_new": each.is_new,
                }
                for each in self.errors
            ],
        }
