"""From decisions to planned groups: the best ones, up to the bounds of a plan. Only these become Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.planning.candidates import Files, row_counts
from tidelog.compaction_daemon.planning.costs import CostModel
from tidelog.compaction_daemon.planning.decisions import Decisions, Float64Array
from tidelog.compaction_daemon.planning.major import num_outputs, split_by_rows
from tidelog.compaction_daemon.planning.plan import HILBERT, MAJOR, MINOR, LeftOut, PlannedGroup
from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest
from tidelog.log.arrays import Int64Array
from tidelog.log.format.actions import AddFile
from tidelog.log.state.files import to_adds

# A plan names every input file in full. So many take a second to build and some tens of megabytes.
MAX_PLANNED_FILES = 50_000


@dataclass(frozen=True, slots=True)
class Costs:
    """What predictions need: the learned model, and how many commits a second change files of each partition."""

    model: CostModel
    rates: Float64Array


@dataclass(frozen=True, slots=True)
class Chosen:
    """The groups of a plan, their files as numbers, and what is left of the decisions."""

    groups: tuple[PlannedGroup, ...]
    files: Int64Array
    left_out: LeftOut


def best_groups(decisions: Decisions, request: CompactionRequest, costs: Costs, budget: Budget) -> Chosen:
    """The best decisions as groups: as many as the budget allows, but at least one."""
    ranked = decisions.ranked()
    count = _num_within(decisions, ranked, costs, budget)
    within, rest = ranked[:count].tolist(), ranked[count:]
    files = joined([decisions.members(decision) for decision in within])
    adds, rows = _materialised(decisions.files, files)
    groups: list[PlannedGroup] = []
    chosen: list[Int64Array] = []
    start = 0
    for decision in within:
        stop = start + int(decisions.counts[decision])
        for part in _parts(decisions, decision, range(start, stop), files, rows):
            inside = files[part.start : part.stop]
            inputs = adds[part.start : part.stop]
            groups.append(_group(decisions, decision, inside, inputs, len(part) < stop - start, request, costs))
            chosen.append(inside)
        start = stop
    left = LeftOut(len(rest), int(decisions.counts[rest].sum()), int(decisions.sizes[rest].sum()))
    return Chosen(tuple(groups), joined(chosen), left)


def joined(parts: Sequence[Int64Array]) -> Int64Array:
    """All numbers; of no parts, none."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _num_within(decisions: Decisions, ranked: Int64Array, costs: Costs, budget: Budget) -> int:
    """How many of the ranked decisions fit into the budget and into a plan; at least one."""
    read = decisions.cost[ranked]
    seconds = costs.model.seconds(decisions.counts[ranked], read, clustered=decisions.clustered[ranked])
    fits = np.cumsum(decisions.counts[ranked]) <= MAX_PLANNED_FILES
    if budget.size_bytes is not None:
        fits &= np.cumsum(read) <= budget.size_bytes
    if budget.seconds is not None:
        fits &= np.cumsum(seconds) <= budget.seconds
    return max(1, int(fits.sum()))


def _materialised(files: Files, numbers: Int64Array) -> tuple[list[AddFile], list[int]]:
    """The actions of these files, in this order, and their physical rows."""
    # Filtered in log order first, which is far faster than `take` on columns of maps and structs.
    wanted = np.zeros(files.table.num_rows, dtype=bool)
    wanted[numbers] = True
    table = files.table.filter(pa.array(wanted))
    adds = to_adds(table)
    rows = row_counts(table, np.ones(table.num_rows, dtype=bool)).tolist()
    places = np.cumsum(wanted)[numbers] - 1
    return [adds[place] for place in places.tolist()], [rows[place] for place in places.tolist()]


def _parts(decisions: Decisions, decision: int, run: range, files: Int64Array, rows: Sequence[int]) -> Iterator[range]:
    """The group of a decision, or its parts if it has too many rows. A part that would gain nothing is left out."""
    if not decisions.is_major(decision) or not decisions.outputs[decision]:
        yield run
        return
    for part in split_by_rows(run, rows):
        inside = files[part.start : part.stop]
        fewer = num_outputs(_live_bytes(decisions.files, inside), decisions.rules.target) < len(part)
        if len(part) == len(run) or fewer or decisions.worth[inside].any():
            yield part


def _group(
    decisions: Decisions,
    decision: int,
    numbers: Int64Array,
    inputs: Sequence[AddFile],
    is_part: bool,  # noqa: FBT001 - only called here
    request: CompactionRequest,
    costs: Costs,
) -> PlannedGroup:
    files = decisions.files
    live = _live_bytes(files, numbers)
    outputs = int(decisions.outputs[decision])
    if is_part:
        outputs = num_outputs(live, decisions.rules.target)
    clustered = bool(decisions.clustered[decision])
    return PlannedGroup(
        inputs[0].partition_values,
        tuple(inputs),
        outputs,
        request.cluster_by if clustered else (),
        (request.cluster_order if clustered else None) or HILBERT,
        MAJOR if decisions.is_major(decision) else MINOR,
        costs.model.predict(
            files=len(inputs),
            read=int(files.sizes[numbers].sum()) if outputs else 0,
            live=live if outputs else 0,
            clustered=clustered,
            conflict_rate=float(costs.rates[files.scopes[numbers[0]]]),
        ),
        _why(decisions, numbers, outputs),
        purge=request.purge,
    )


def _live_bytes(files: Files, numbers: Int64Array) -> int:
    return int((files.sizes[numbers] - files.dead_bytes[numbers]).sum())


def _why(decisions: Decisions, numbers: Int64Array, outputs: int) -> str:
    """Why a group is rewritten, such as `5 small, 1 with dead rows`."""
    if not outputs:
        return "all of their rows are dead"
    files = decisions.files
    counts = {"small": files.small[numbers].sum()}
    if decisions.rules.is_major[files.scopes[numbers[0]]]:
        worth_dead = decisions.worth[numbers] & (files.dead_rows[numbers] > 0)
        counts |= {"with dead rows": worth_dead.sum(), "not clustered yet": files.unclustered[numbers].sum()}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
