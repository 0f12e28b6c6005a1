"""What a daemon would do about a table now, and why, in a size that a page can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tidelog.compaction_daemon.compaction.history_reader import read_history
from tidelog.compaction_daemon.observing.parts import Parts
from tidelog.compaction_daemon.planning.plan import (
    MAJOR,
    FileReason,
    LeftOut,
    Plan,
    PlannedGroup,
    Prediction,
    ScopeDebt,
)
from tidelog.compaction_daemon.planning.planner import NO_HISTORY, plan_snapshot
from tidelog.compaction_daemon.planning.request import CompactionRequest
from tidelog.log import Snapshot, Table

# A reason costs an object for each live file; for more files the plan only has its groups and partitions.
_MAX_EXPLAINED_FILES = 50_000
# What a page shows of the groups, the partitions and the files of one plan.
_MAX_GROUPS = _MAX_SCOPES = 50
_MAX_FILES = 200


@dataclass(frozen=True, slots=True)
class GroupOutline:
    """A planned group in numbers; for the terms see `PlannedGroup`."""

    level: str
    partition_values: Mapping[str, str | None]
    files: int
    bytes: int
    outputs: int
    cluster_by: tuple[str, ...]
    predicted: Prediction
    reason: str


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many files are rewritten, or left alone, for the same reason."""

    chosen: bool
    reason: str
    files: int


@dataclass(frozen=True, slots=True)
class PlanOutline:
    """A plan in a bounded size. The attributes that are not explained here are those of `Plan`.

    Attributes:
        level: `auto` for what is due now, of which a daemon does the best groups first, or `minor` for that of a daemon
            without major compactions; `major` for all that a major compaction could do.
        version: The version that was planned for.
        groups: The number of groups to rewrite.
        files: The number of files in them.
        bytes: The size of these files.
        outputs: About how many files they become.
        first_groups: The first 50 groups.
        first_scopes: The first 50 partitions with debt.
        reasons: The reasons for files that are rewritten and files that are not, the most frequent first; empty for a
            table with more than 50,000 files.
        first_files: 200 files with their reasons, those to rewrite first.
    """

    level: str
    version: int
    groups: int
    files: int
    bytes: int
    outputs: int
    predicted: Prediction
    left_out: LeftOut
    num_scopes: int
    notes: tuple[str, ...]
    first_groups: tuple[GroupOutline, ...]
    first_scopes: tuple[ScopeDebt, ...]
    reasons: tuple[ReasonCount, ...]
    first_files: tuple[FileReason, ...]


def plan_outlines(
    table: Table, snapshot: Snapshot, parts: Parts, due: CompactionRequest, apart: Mapping[str, int]
) -> tuple[PlanOutline, ...]:
    """What is due now at the loaded version of a table, and all that a major compaction could do.

    What is due is what `due` asks for, with the files `apart` as in `plan_snapshot`.

    A plan that cannot be made is left out: for a major compaction the columns of `tidelog.clusterBy` have to be there.
    """
    explain = snapshot.num_files <= _MAX_EXPLAINED_FILES
    history = parts.make("recent commits", lambda: read_history(table), NO_HISTORY)
    now_ms = table.timeline.system.now_ms()

    def make(name: str, request: CompactionRequest, apart: Mapping[str, int]) -> PlanOutline | None:
        plan = partial(plan_snapshot, snapshot, request, history=history, now_ms=now_ms, apart=apart)
        return parts.make(name, lambda: _outline(plan(explain=explain)), None)

    found = make("plan", due, apart), make("major plan", CompactionRequest(MAJOR), {})
    return tuple(plan for plan in found if plan is not None)


def _outline(found: Plan) -> PlanOutline:
    counts = Counter((reason.chosen, reason.reason) for reason in found.reasons)
    return PlanOutline(
        level=found.level,
        version=found.version,
        groups=len(found.groups),
        files=sum(len(group.inputs) for group in found.groups),
        bytes=sum(group.size_bytes for group in found.groups),
        outputs=sum(group.outputs for group in found.groups),
        predicted=found.predicted,
        left_out=found.left_out,
        num_scopes=found.num_scopes,
        notes=found.notes,
        first_groups=tuple(_group(group) for group in found.groups[:_MAX_GROUPS]),
        first_scopes=found.scopes[:_MAX_SCOPES],
        reasons=tuple(ReasonCount(*key, number) for key, number in counts.most_common()),
        first_files=tuple(sorted(found.reasons, key=lambda reason: not reason.chosen)[:_MAX_FILES]),
    )


def _group(group: PlannedGroup) -> GroupOutline:
    return GroupOutline(
        level=group.level,
        partition_values=group.partition_values,
        files=len(group.inputs),
        bytes=group.size_bytes,
        outputs=group.outputs,
        cluster_by=tuple(group.cluster_by),
        predicted=group.predicted,
        reason=group.reason,
    )
