"""Histories made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.compaction_daemon.planning.history import CommitFacts, Cost, CostRecord, History, ScopeKey

A: ScopeKey = (("part", "a"),)
B: ScopeKey = (("part", "b"),)
SECOND = 1000


def commit(
    at_s: float,
    *scopes: ScopeKey,
    everywhere: bool = False,
    changes: bool = False,
    compaction: bool = False,
    record: CostRecord | None = None,
    latest_s: float | None = None,
) -> CommitFacts:
    """A commit at a time in seconds, which is also its version: an insert, unless it `changes` files or compacts."""
    return CommitFacts(
        int(at_s),
        int(at_s * SECOND),
        None if everywhere else frozenset(scopes),
        is_compaction=compaction,
        data_change=not compaction,
        changed_files=changes or compaction,
        record=record,
        latest_ms=None if latest_s is None else int(latest_s * SECOND),
    )


def history(*commits: CommitFacts, whole: bool = True) -> History:
    return History(is_whole=whole).followed_by(commits)


def stream(scope: ScopeKey, times_s: Sequence[float]) -> list[CommitFacts]:
    return [commit(at_s, scope) for at_s in times_s]


def measured(*, files: int, read: int, written: int, seconds: float, clustered: bool = False) -> CostRecord:
    """One compaction of one group without dead rows."""
    return CostRecord(1, files, read, clustered, Cost(read, read, 1.0, 0.25), Cost(read, written, seconds))
