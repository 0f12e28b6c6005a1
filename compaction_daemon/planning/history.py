"""What recent commits tell a plan: who wrote to which partitions, how often, and what compactions cost.

All of this is a guess about the future from the past. A wrong one costs time, never rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tidelog.compaction_daemon.planning.plan import Prediction
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddFile, Commit, CommitInfo, RemoveFile

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
# What is remembered: partitions, each with its newest commits, and compactions. A partition takes about 600 bytes.
MAX_KNOWN_SCOPES = 20_000
MAX_KNOWN_WRITES = 16
MAX_KNOWN_COMPACTIONS = 256

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
    compaction was rebased over. `timestamp_ms` is the time by its writer's clock; `latest_ms` is the latest possible
    time by the reader's clock, None if that is `timestamp_ms`, too.
    """

    version: int
    timestamp_ms: int
    scopes: frozenset[ScopeKey] | None
    is_compaction: bool
    data_change: bool
    changed_files: bool
    record: CostRecord | None = None
    rebased_over: tuple[int, int] | None = None
    latest_ms: int | None = None

    @property
    def moment(self) -> Moment:
        """When it was made."""
        latest_ms = self.timestamp_ms if self.latest_ms is None else self.latest_ms
        return Moment(self.version, self.timestamp_ms, latest_ms)


class Moment(NamedTuple):
    """When a commit was made: the time by its writer's clock, and the latest possible time by the reader's clock."""

    version: int
    timestamp_ms: int
    latest_ms: int


class Writes(NamedTuple):
    """The newest commits to a partition by others than compactions, oldest first, and those that changed files."""

    all: tuple[Moment, ...] = ()
    changes: tuple[Moment, ...] = ()

    def with_commit(self, moment: Moment, *, changed_files: bool) -> Writes:
        """The same with another commit."""
        writes = (*self.all, moment)[-MAX_KNOWN_WRITES:]
        return Writes(writes, (*self.changes, moment)[-MAX_KNOWN_WRITES:] if changed_files else self.changes)


NO_WRITES = Writes()


class MeasuredCompaction(NamedTuple):
    """A compaction that says what it cost; see `PredictionOutcome`."""

    version: int
    timestamp_ms: int
    record: CostRecord
    had_conflict: bool | None


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
    """What is remembered of consecutive commits. Without any, nothing is hot and predictions are the defaults.

    It is kept by partition, not by commit, so that its size does not grow with the number of commits.

    Args:
        version: The newest commit; None if there is none.
        first: Every partition that was written after this commit is one of `scopes`.
        is_whole: Whether that holds for those that were written before it, too: it is the first one of the table.
        scopes: The partitions that were written; how each was.
        everywhere: The commits whose partitions are unknown. They count for all.
        compactions: The newest compactions that say what they cost, oldest first.
    """

    version: int | None = None
    first: Moment | None = None
    is_whole: bool = True
    scopes: Mapping[ScopeKey, Writes] = field(default_factory=dict)
    everywhere: Writes = NO_WRITES
    compactions: tuple[MeasuredCompaction, ...] = ()

    def followed_by(self, commits: Iterable[CommitFacts]) -> History:
        """The same with the commits that come next, oldest first."""
        draft = _Draft(self)
        for commit in commits:
            draft.add(commit)
        return draft.finished()

    def activity(self) -> tuple[Mapping[ScopeKey, Activity], Activity | None]:
        """How each partition is written by others than compactions; and those that are not named, None if they are not.

        One that is not named can have been written right before the first commit that is known.
        """
        everywhere = self.everywhere.all
        found = {scope: _activity((*own.all, *everywhere)) for scope, own in self.scopes.items()}
        if self.first is not None and not self.is_whole:
            return found, _activity(everywhere, self.first.latest_ms)
        return found, _activity(everywhere) if everywhere else None

    def conflict_rates(self, now_ms: int) -> tuple[Mapping[ScopeKey, float], float]:
        """How many commits a second change or remove files of each partition, and of one that is not named."""
        first = self.first
        if first is None:
            return {}, 0.0

        def rate(changes: tuple[Moment, ...]) -> float:
            known = [each for each in changes if each.version >= first.version]
            since = known[0] if len(known) == MAX_KNOWN_WRITES else first
            return len(known) / max(1.0, (now_ms - since.timestamp_ms) / 1000)

        elsewhere = rate(self.everywhere.changes)
        return {scope: rate(own.changes) + elsewhere for scope, own in self.scopes.items() if own.changes}, elsewhere


class _Draft:
    """A history to which commits are added."""

    def __init__(self, before: History) -> None:
        self._before = before
        self._newest: Moment | None = None
        self._first = before.first
        self._is_whole = before.is_whole
        self._scopes = dict(before.scopes)
        self._everywhere = before.everywhere
        self._compactions = list(before.compactions)

    def add(self, commit: CommitFacts) -> None:
        """Add the next commit."""
        moment = self._newest = commit.moment
        self._first = self._first or moment
        if commit.record is not None:
            conflict = self._had_conflict(commit, self._first.version)
            self._compactions.append(MeasuredCompaction(commit.version, commit.timestamp_ms, commit.record, conflict))
            del self._compactions[:-MAX_KNOWN_COMPACTIONS]
        if commit.is_compaction or not commit.data_change:
            return
        if commit.scopes is None:
            self._everywhere = self._everywhere.with_commit(moment, changed_files=commit.changed_files)
            return
        for scope in commit.scopes:
            known = self._scopes.get(scope, NO_WRITES)
            self._scopes[scope] = known.with_commit(moment, changed_files=commit.changed_files)
        if len(self._scopes) > 2 * MAX_KNOWN_SCOPES:
            self._forget(moment)

    def finished(self) -> History:
        """The history with these commits."""
        if self._newest is None:
            return self._before
        self._forget(self._newest)
        version, compactions = self._newest.version, tuple(self._compactions)
        return History(version, self._first, self._is_whole, self._scopes, self._everywhere, compactions)

    def _forget(self, newest: Moment) -> None:
        """Forget partitions that are quiet in any case, and those that were not written for longest if there are many.

        A forgotten one is not named any more, so the history begins after the last commit to it.
        """
        silent_ms = newest.latest_ms - MAX_QUIET_MS
        versions = sorted(own.all[-1].version for own in self._scopes.values())
        # The partitions of one commit are forgotten together, so their order does not matter.
        last_version = versions[-MAX_KNOWN_SCOPES - 1] if len(versions) > MAX_KNOWN_SCOPES else -1
        for scope, own in list(self._scopes.items()):
            last = own.all[-1]
            if last.latest_ms <= silent_ms or last.version <= last_version:
                del self._scopes[scope]
                self._is_whole = False
                if self._first is None or last.version > self._first.version:
                    self._first = last

    def _had_conflict(self, commit: CommitFacts, first_version: int) -> bool | None:
        if commit.rebased_over is None:
            return False
        first, last = commit.rebased_over
        scopes = self._scopes if commit.scopes is None else commit.scopes
        writes = [self._everywhere, *(self._scopes.get(scope, NO_WRITES) for scope in scopes)]
        found = any(first <= each.version <= last for own in writes for each in own.changes)
        return None if not found and first < first_version else found


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
    return tuple(
        PredictionOutcome(
            version,
            timestamp_ms,
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
            had_conflict,
        )
        for version, timestamp_ms, record, had_conflict in history.compactions
    )


def facts_of(commit: Commit, timestamp_ms: int, latest_ms: int | None = None) -> CommitFacts:
    """What matters of a commit, whichever engine wrote it."""
    recorded = commit_info.tidelog(commit.info)
    adds, removes, data_change = commit.adds, commit.removes, commit.data_change
    files: list[AddFile | RemoveFile] = [*adds, *removes]
    return CommitFacts(
        commit.version,
        timestamp_ms,
        _scopes_of(files),
        is_compaction=bool(files) and not data_change,
        data_change=data_change,
        changed_files=bool(removes),
        record=_record_of(recorded),
        rebased_over=_rebased_over(recorded),
        latest_ms=latest_ms,
    )


def facts_of_large(version: int, info: CommitInfo, timestamp_ms: int, latest_ms: int | None = None) -> CommitFacts:
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
        latest_ms=latest_ms,
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


def _activity(writes: tuple[Moment, ...], last_ms: int = 0) -> Activity:
    """`last_ms` is the least time of the last commit."""
    times = sorted(each.timestamp_ms for each in writes)
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(times))
    quiet = QUIET_GAPS * gaps[len(gaps) // 2] if gaps else 0
    return Activity(
        max([last_ms, *(each.latest_ms for each in writes)]), int(min(MAX_QUIET_MS, max(MIN_QUIET_MS, quiet)))
    )


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
