"""What recent commits tell a plan: who wrote to which partitions, how often, and what compactions cost.

All of this is a guess about the future from the past. A wrong one costs time, never rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tidelog.compaction_daemon.planning.plan import Prediction
from tidelog.log.internals import AddFile, Commit, CommitInfo, RemoveFile, commit_info

# The key of `CostRecord` in the `tidelog` object of a commitInfo.
RECORD = "compaction"
# A commit that touches more partitions than this counts as one that touches all of them.
MAX_SCOPES = 1000
# MAJOR waits for this many of a partition's usual gaps between commits: a stream that misses so many in a row has
# stopped or moved on to other partitions.
QUIET_GAPS = 5
# The least quiet time before MAJOR. A stream that commits often can still pause for some seconds.
MIN_QUIET_MS = 60_000
# After an hour of silence the next commit is probably as far away, and MAJOR takes minutes. Without this bound a
# partition that is written every hour would never be quiet.
MAX_QUIET_MS = 3_600_000

# A partition as the log spells it: names with values, sorted. The empty text is null, as everywhere in Delta.
ScopeKey: TypeAlias = tuple[tuple[str, str | None], ...]


class Cost(msgspec.Struct, frozen=True, rename="camel"):
    """What a rewrite was predicted to cost, or did cost. `conflict_odds` is that of the prediction alone."""

    bytes_read: int
    bytes_written: int
    seconds: float
    conflict_odds: float | None = None


class CostRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What a compaction's commit says about its cost, in `commitInfo.tidelog.compaction`.

    Both costs are those of the groups that were rewritten for the commit, even if other commits took some of them.

    Args:
        groups: The number of these groups.
        files: The number of their input files.
        live_bytes: What the live rows of these files take on disk, if all rows of a file are equally large.
        clustered: Whether rows were clustered.
        predicted: What the plan said.
        actual: What came out: the time is that of the rewriting, without the commit.
    """

    groups: int
    files: int
    live_bytes: int
    clustered: bool
    predicted: Cost
    actual: Cost


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What matters of one commit.

    `scopes` are the partitions that it touched; None if that is unknown, or all of them. `changed_files` says whether
    it removed files or gave them deletion vectors, rather than only adding some. `rebased_over` are the versions that a
    compaction was rebased over.
    """

    version: int
    timestamp_ms: int
    scopes: frozenset[ScopeKey] | None
    is_compaction: bool
    data_change: bool
    changed_files: bool
    record: CostRecord | None = None
    rebased_over: tuple[int, int] | None = None

    def touches(self, scopes: frozenset[ScopeKey] | None) -> bool:
        """Whether it touched one of these partitions, as far as is known."""
        return self.scopes is None or scopes is None or bool(self.scopes & scopes)


@dataclass(frozen=True, slots=True)
class Activity:
    """How a partition is written: when last, and for how long it must be quiet until MAJOR may rewrite it."""

    last_ms: int
    quiet_after_ms: int

    def waits_ms(self, now_ms: int) -> int:
        """How long MAJOR still waits; 0 if the partition is quiet. A last commit in the future waits the full time."""
        return max(0, self.quiet_after_ms - max(0, now_ms - self.last_ms))


@dataclass(frozen=True, slots=True)
class History:
    """The facts of consecutive commits, oldest first. Without any, nothing is hot and predictions are the defaults."""

    commits: tuple[CommitFacts, ...] = ()

    def activity(self) -> tuple[Mapping[ScopeKey, Activity], Activity | None]:
        """How each partition is written by others than compactions; and those that are not named, None if they are not.

        A commit whose partitions are unknown counts for all of them.
        """
        times: dict[ScopeKey, list[int]] = {}
        everywhere: list[int] = []
        for commit in self.commits:
            if commit.is_compaction or not commit.data_change:
                continue
            for known in [everywhere] if commit.scopes is None else [times.setdefault(s, []) for s in commit.scopes]:
                known.append(commit.timestamp_ms)
        found = {scope: _activity(sorted(own + everywhere)) for scope, own in times.items()}
        return found, _activity(everywhere) if everywhere else None

    def conflict_rates(self, now_ms: int) -> tuple[Mapping[ScopeKey, float], float]:
        """How many commits a second change or remove files of each partition, and of one that is not named."""
        if not self.commits:
            return {}, 0.0
        seconds = max(1.0, (now_ms - self.commits[0].timestamp_ms) / 1000)
        counts: dict[ScopeKey, int] = {}
        everywhere = 0
        for commit in self.commits:
            if commit.is_compaction or not commit.changed_files:
                continue
            everywhere += commit.scopes is None
            for scope in commit.scopes or ():
                counts[scope] = counts.get(scope, 0) + 1
        return {scope: (count + everywhere) / seconds for scope, count in counts.items()}, everywhere / seconds


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """A prediction and what came out, of one compaction's commit.

    Args:
        version: The version of the commit.
        timestamp_ms: Its commit time, in ms since the epoch.
        groups: The groups that were rewritten for it.
        predicted: What was predicted.
        bytes_read: The size of the input files that were read.
        bytes_written: The size of the files that were written.
        seconds: How long the rewriting took.
        had_conflict: Whether another commit changed or removed files of the same partitions meanwhile, which
            `predicted.conflict_odds` is about; None if those commits are not known any more.
    """

    version: int
    timestamp_ms: int
    groups: int
    predicted: Prediction
    bytes_read: int
    bytes_written: int
    seconds: float
    had_conflict: bool | None


def prediction_outcomes(history: History) -> tuple[PredictionOutcome, ...]:
    """Predictions and outcomes of the compactions in a history, oldest first.

    A compaction that lost all of its groups made no commit, so it is not here but in the table's conflict ledger.
    """
    by_version = {commit.version: commit for commit in history.commits}
    return tuple(
        PredictionOutcome(
            commit.version,
            commit.timestamp_ms,
            record.groups,
            Prediction(
                record.predicted.bytes_read,
                record.predicted.bytes_written,
                record.predicted.seconds,
                record.predicted.conflict_odds or 0.0,
            ),
            record.actual.bytes_read,
            record.actual.bytes_written,
            record.actual.seconds,
            _had_conflict(commit, by_version),
        )
        for commit in history.commits
        if (record := commit.record) is not None
    )


def facts_of(commit: Commit, timestamp_ms: int) -> CommitFacts:
    """What matters of a commit, whichever engine wrote it."""
    recorded = commit_info.tidelog(commit.info)
    files: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
    return CommitFacts(
        commit.version,
        timestamp_ms,
        _scopes_of(files),
        is_compaction=bool(files) and not commit.data_change,
        data_change=commit.data_change,
        changed_files=bool(commit.removes),
        record=_record_of(recorded),
        rebased_over=_rebased_over(recorded),
    )


def facts_of_large(version: int, info: CommitInfo, timestamp_ms: int) -> CommitFacts:
    """What matters of a commit that is too large to read: it counts for all partitions.

    What it did is known from tidelog's own record alone. Without one it is taken for a change of files.
    """
    recorded = commit_info.tidelog(info)
    level = recorded.get("class")
    is_compaction = level in ("MINOR", "MAJOR")
    return CommitFacts(
        version,
        timestamp_ms,
        None,
        is_compaction=is_compaction,
        data_change=not is_compaction,
        changed_files=level != "INSERT",
        record=_record_of(recorded),
        rebased_over=_rebased_over(recorded),
    )


def scope_of(partition_values: Mapping[str, str | None]) -> ScopeKey:
    """The partition that an action's `partitionValues` name."""
    return tuple(sorted((name, value or None) for name, value in partition_values.items()))


def odds(rate: float, seconds: float) -> float:
    """How probable it is that at least one event of a Poisson process with this rate happens in so many seconds."""
    return -math.expm1(-rate * seconds)


def _scopes_of(files: Iterable[AddFile | RemoveFile]) -> frozenset[ScopeKey] | None:
    scopes: set[ScopeKey] = set()
    for file in files:
        if file.partition_values is None or len(scopes) > MAX_SCOPES:
            return None
        scopes.add(scope_of(file.partition_values))
    return frozenset(scopes)


def _activity(times: list[int]) -> Activity:
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    quiet = QUIET_GAPS * sorted(gaps)[len(gaps) // 2] if gaps else 0
    return Activity(times[-1], int(min(MAX_QUIET_MS, max(MIN_QUIET_MS, quiet))))


def _had_conflict(commit: CommitFacts, by_version: Mapping[int, CommitFacts]) -> bool | None:
    if commit.rebased_over is None:
        return False
    first, last = commit.rebased_over
    winners = [by_version.get(version) for version in range(first, last + 1)]
    found = any(w is not None and w.changed_files and not w.is_compaction and w.touches(commit.scopes) for w in winners)
    return None if not found and None in winners else found


def cost_of(commit: Commit) -> CostRecord | None:
    """What the rewrites of a compaction were predicted to cost, and did cost; None if its commit does not say."""
    return _record_of(commit_info.tidelog(commit.info))


def _record_of(recorded: Mapping[str, Any]) -> CostRecord | None:
    try:
        return msgspec.convert(recorded[RECORD], CostRecord)
    except (KeyError, msgspec.ValidationError):  # none, or that of another version of tidelog
        return None


def _rebased_over(recorded: Mapping[str, Any]) -> tuple[int, int] | None:
    try:
        return msgspec.convert(recorded["rebase"]["over"], tuple[int, int])
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
