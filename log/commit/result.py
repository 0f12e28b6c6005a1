"""The outcome of a commit: committed or superseded, and the state of the table after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.format.actions import Commit
from tidelog.log.state.loader import LogState


@dataclass(frozen=True, slots=True)
class Committed:
    """A durable commit, or an operation that had nothing to change and wrote none.

    Attributes:
        version: The ID version of the commit; the current version if nothing was committed.
        timestamp: The commit time of that version, UTC.
        rebased_over: The versions that other writers committed between staging and commit.
        retried: Whether there are any.
        metrics: Counts of rows, files and bytes by name, such as `numOutputRows`; all zero if nothing was committed.
    """

    version: int
    timestamp: datetime
    rebased_over: tuple[int, ...] = ()
    retried: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Superseded:
    """A compaction that had nothing left to do. Nothing was committed, and its files were deleted.

    Attributes:
        by: The version that replaced the last of its inputs.
    """

    by: int


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a commit, and the state after it; None if a durable commit's state could not be read.

    `dropped` are the groups that a compaction lost to winners. `commit` is the commit, if there was one.
    """

    outcome: Committed | Superseded
    state: LogState | None
    dropped: tuple[MoveGroup, ...] = ()
    commit: Commit | None = None


def committed(outcome: Committed | Superseded) -> Committed:
    """The outcome of a transaction that cannot be superseded because it is not a compaction."""
    if not isinstance(outcome, Committed):
        raise AssertionError(outcome)  # noqa: TRY004 - an invariant, not an error of the caller
    return outcome
