"""From a CompactionRequest to a Plan.

Files whose rows are all dead are dropped at either level; `minor` and `major` decide on the rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.compaction_daemon.planning import major, minor
from tidelog.compaction_daemon.planning.candidates import Candidate, PackedFiles, by_partition, candidates_of, is_small
from tidelog.compaction_daemon.planning.major import MajorRules
from tidelog.compaction_daemon.planning.plan import FileReason, Plan, PlannedGroup, cluster_tag
from tidelog.log import Snapshot, Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import SMALL_SHARE, physical_name, properties

LEVELS = ("minor", "major")


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What to compact and how; the arguments of `plan`.

    Raises:
        ConfigurationError: The level is unknown or does not support an option.
    """

    level: str = "minor"
    where: str | None = None
    growth: float = 1.0
    cluster_by: tuple[str, ...] = ()
    purge: bool = False

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            allowed = ", ".join(LEVELS)
            raise ConfigurationError(f"there is no compaction level {self.level!r}", advice=f"use one of {allowed}")
        if self.level == "minor" and (self.cluster_by or self.purge):
            raise ConfigurationError(
                "a minor compaction neither clusters nor purges",
                advice="use the level major, or leave out both options",
            )


def plan(
    table: Table,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
) -> Plan:
    """Plan a compaction of the table's newest version; nothing is rewritten.

    The same version and arguments always give the same plan.

    Args:
        table: The table; it is refreshed.
        level: `minor` packs small files. `major` also rewrites files with many dead rows and sorts rows.
        where: SQL over partition columns that chooses partitions; None for all of them.
        growth: For `minor`, about how many times its largest file a group must be. 1.0 packs all that it can;
            the daemon uses 2.0, which waits until a rewrite pays.
        cluster_by: For `major`, the columns to sort rows by.
        purge: For `major`, rewrite every file that has a dead row, not only those with many.

    Returns:
        The plan, with a reason for every live file.

    Raises:
        ConfigurationError: The level is unknown or does not support an option, or a sort column cannot be sorted.
        PredicateError: `where` is not valid, or names other than partition columns.

    Example:
        for entry in plan(table, "major", purge=True).reasons:
            print(entry.path, entry.chosen, entry.reason)
    """
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge)
    return plan_snapshot(table.refresh().at(), request, explain=True)


def column_names(cluster_by: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple. Raises ConfigurationError for a string, which would be a sequence of letters."""
    if isinstance(cluster_by, str):
        raise ConfigurationError(
            "cluster_by must be a list of column names, not a string", advice=f"give a list: [{cluster_by!r}]"
        )
    return tuple(cluster_by)


def plan_snapshot(snapshot: Snapshot, request: CompactionRequest, *, explain: bool = False) -> Plan:
    """The plan for one snapshot; see `plan`. With `explain` it has reasons, which cost an object per live file."""
    target = properties.size_bytes(snapshot.properties, properties.TARGET_FILE_SIZE)
    tag = cluster_tag(_physical_columns(snapshot, request.cluster_by))
    scope = snapshot.files(request.where)
    small = pc.less(scope["size"], math.ceil(target * SMALL_SHARE))
    rules = MajorRules(target, request.purge, request.cluster_by, tag)
    candidates = scope.filter(_candidates(scope, small, request))
    decisions = [
        decision
        for partition in by_partition(candidates_of(candidates))
        for decision in _decide(partition, request, rules, snapshot)
    ]
    groups = tuple(
        PlannedGroup(
            decision.files[0].add.partition_values,
            tuple(file.add for file in decision.files),
            decision.outputs,
            request.cluster_by if decision.outputs else (),
        )
        for decision in decisions
        if decision.refused is None
    )
    reasons = _reasons(snapshot, scope, decisions, rules) if explain else ()
    return Plan(request.level, snapshot.version, groups, scope.num_rows, pc.sum(small).as_py() or 0, reasons)


def _candidates(scope: pa.Table, small: pa.ChunkedArray, request: CompactionRequest) -> pa.ChunkedArray:
    """Which files are candidates: a mask over `scope`. The rest, usually most files, costs no Python object."""
    if request.cluster_by:
        return pa.chunked_array([pa.repeat(pa.scalar(True), scope.num_rows)])  # noqa: FBT003 - a value
    return pc.or_(small, pc.is_valid(scope["deletionVector"]))


def _decide(
    partition: Sequence[Candidate], request: CompactionRequest, rules: MajorRules, snapshot: Snapshot
) -> Iterator[PackedFiles]:
    dead = tuple(file for file in partition if file.is_dead)
    if dead:
        yield PackedFiles(dead, outputs=0)
    rest = [file for file in partition if not file.is_dead]
    if request.level == "major":
        yield from major.decide_major(rest, rules)
        return
    span_ms = properties.duration_ms(snapshot.properties, properties.MINOR_SPAN)
    small = [file for file in rest if is_small(file.add, rules.target)]
    yield from minor.decide_minor(small, target=rules.target, span_ms=span_ms, growth=request.growth)


def _reasons(
    snapshot: Snapshot, scope: pa.Table, decisions: Sequence[PackedFiles], rules: MajorRules
) -> tuple[FileReason, ...]:
    """The reason of each live file, in log order."""
    decided = {
        file.add.path: FileReason(file.add.path, decision.refused is None, decision.refused or _why(file, rules))
        for decision in decisions
        for file in decision.files
    }
    inside = set(scope["path"].to_pylist())
    return tuple(decided.get(path) or _no_candidate(path, inside) for path in snapshot.files()["path"].to_pylist())


def _no_candidate(path: str, inside: Collection[str]) -> FileReason:
    """The reason of a file that was not a candidate."""
    reason = "large enough" if path in inside else "not in the partitions asked for"
    return FileReason(path, chosen=False, reason=reason)


def _why(file: Candidate, rules: MajorRules) -> str:
    """Why a file is rewritten."""
    if file.is_dead:
        return "all of its rows are dead"
    small = ["small"] if is_small(file.add, rules.target) else []
    return ", ".join([*small, *rules.reasons(file)])


def _physical_columns(snapshot: Snapshot, names: tuple[str, ...]) -> tuple[str, ...]:
    """The physical names of these columns. Raises ConfigurationError if rows cannot be sorted by one of them."""
    found = []
    for name in names:
        fault = None
        if name not in snapshot.schema.names:
            fault = f"there is no column {name!r}"
        elif names.count(name) > 1:
            fault = f"column {name!r} is named twice"
        elif name in snapshot.partition_by:
            fault = f"{name!r} is a partition column, which has one value per file"
        elif pt.is_nested(snapshot.schema.field(name).type) or pt.is_null(snapshot.schema.field(name).type):
            fault = f"column {name!r} has the type {snapshot.schema.field(name).type}, which cannot be sorted"
        if fault:
            raise ConfigurationError(f"cannot cluster: {fault}", advice="choose distinct columns that are not nested")
        found.append(physical_name(snapshot.schema.field(name)))
    return tuple(found)
