"""Groups on their way and rewritten groups: what their commit records, and what it reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
from tidelog.compaction_daemon.planning.history import RECORD, Cost, CostRecord, scope_of
from tidelog.compaction_daemon.planning.plan import MAJOR, PlannedGroup, total
from tidelog.log import Committed, Snapshot, Superseded
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.format.actions import AddFile
from tidelog.log.format.statistics import num_records


@dataclass(frozen=True, slots=True)
class Work:
    """A group on its way, with its place in the plan, and the version that it was checked against."""

    number: int
    planned: PlannedGroup
    base: Snapshot


@dataclass(frozen=True, slots=True)
class Finished:
    """A rewritten group, not yet committed."""

    work: Work
    moves: MoveGroup


def commit_parts(finished: Sequence[Finished], *, by_partition: bool) -> list[list[Finished]]:
    """Groups by commits: one for each level, and if asked for, for each partition."""
    # Parallel work ends in any order; the log should not depend on that.
    ordered = sorted(finished, key=lambda each: (each.work.planned.level == MAJOR, each.work.number))
    parts: dict[object, list[Finished]] = {}
    for each in ordered:
        planned = each.work.planned
        scope = scope_of(planned.partition_values) if by_partition else None
        parts.setdefault((planned.level, scope), []).append(each)
    return list(parts.values())


def cost_record(part: Sequence[Finished], seconds: float) -> dict[str, Any]:
    """What the commit of these groups says about their cost, for later predictions.

    `seconds` is how long their rewriting took.
    """
    planned = [finished.work.planned for finished in part]
    predicted = total(group.predicted for group in planned)
    record = CostRecord(
        groups=len(planned),
        files=sum(len(group.inputs) for group in planned),
        live_bytes=sum(_live_bytes(add) for group in planned if group.outputs for add in group.inputs),
        clustered=any(group.cluster_by for group in planned),
        predicted=Cost(predicted.bytes_to_read, predicted.bytes_to_write, predicted.seconds, predicted.conflict_odds),
        actual=Cost(sum(group.bytes_to_read for group in planned), output_bytes(part), round(seconds, 3)),
    )
    return {RECORD: msgspec.to_builtins(record)}


def commit_report(
    part: Sequence[Finished], lost: Collection[MoveGroup], outcome: Committed | Superseded
) -> CompactionReport:
    """What the commit of these groups did; `lost` are those that it dropped, because others took their inputs."""
    committed = outcome if isinstance(outcome, Committed) else None
    gone = {id(group) for group in lost}
    kept = [finished for finished in part if id(finished.moves) not in gone]
    return CompactionReport(
        version=committed.version if committed else None,
        groups=len(kept) if committed else 0,
        files_removed=committed.metrics["numRemovedFiles"] if committed else 0,
        files_added=committed.metrics["numAddedFiles"] if committed else 0,
        bytes_read=sum(finished.work.planned.bytes_to_read for finished in part),
        bytes_written=output_bytes(part),
        wasted_bytes=sum(add.size for group in lost for add in group.outputs),
        rebased_over=committed.rebased_over if committed else (),
        versions=(committed.version,) if committed else (),
        predicted=total(finished.work.planned.predicted for finished in part),
        levels=(part[0].work.planned.level,) if committed else (),
    )


def output_bytes(part: Sequence[Finished]) -> int:
    """The size of the written files."""
    return sum(add.size for finished in part for add in finished.moves.outputs)


def _live_bytes(add: AddFile) -> int:
    """What the live rows of a file take on disk, if all of its rows are equally large."""
    rows = num_records(add.stats) if add.deletion_vector else None
    return round(add.size * (1 - add.deletion_vector.cardinality / rows)) if rows and add.deletion_vector else add.size
