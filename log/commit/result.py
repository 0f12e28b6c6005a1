"""How a commit ends: committed, or superseded by another compaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Committed:
    """A durable commit.

    `rebased_over` are the versions that others committed between staging and commit; `retried` tells whether there
    were any. An operation that had nothing to change writes no commit: `version` is then the version it saw.
    """

    version: int
    timestamp: datetime
    rebased_over: tuple[int, ...] = ()
    retried: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Superseded:
    """A compaction that had nothing left to do: version `by` took its inputs first."""

    by: int


def committed(outcome: Committed | Superseded) -> Committed:
    """The outcome of a transaction that is no compaction, which no other commit can supersede."""
    if not isinstance(outcome, Committed):
        raise AssertionError(outcome)  # noqa: TRY004 - an invariant, not a caller's mistake
    return outcome
