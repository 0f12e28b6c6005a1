"""From decisions to planned groups: the best ones, up to the bounds of a plan. Only these become Python objects.

What a group costs, that is how long its rewrite takes and how much it writes, is predicted from the table's own
compactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.planning.candidates import Files, row_counts
from tidelog.compaction_daemon.planning.decisions import Decisions, Float64Array, num_outputs, split_by_rows
from tidelog.compaction_daemon.planning.history import CostRecord, History, odds
from tidelog.compaction_daemon.planning.plan import HILBERT, MAJOR, MINOR, LeftOut, PlannedGroup, Prediction
from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.format.actions import AddFile
from tidelog.log.state.files import to_adds

_N = TypeVar("_N", int, Int64Array)

# A plan names every input file in full. So many take a second to build and some tens of megabytes.
MAX_PLANNED_FILES = 50_000
# Without a compaction to learn from: about what one core of a current server does with files on a local disk. Every
# input costs an opening, every group a first output.
BYTES_PER_S = 150 * 2**20
CLUSTERED_BYTES_PER_S = 30 * 2**20
SECONDS_PER_FILE = 0.001
SECONDS_PER_GROUP = 0.02
# The newest compactions are the best guess: machines, executors and data change.
LEARN_FROM = 20
# One odd measurement, such as a machine that slept, must not spoil the predictions.
_MOST_FACTOR = 100.0


@dataclass(frozen=True, slots=True)
class Factors:
    """How far reality is from the defaults: factors for seconds, and for written bytes by live bytes."""

    seconds: float = 1.0
    written: float = 1.0


@dataclass(frozen=True, slots=True)
class CostModel:
    """Predicts rewrites, in order and clustered."""

    ordered: Factors = Factors()
    clustered: Factors = Factors()

    def seconds(
        self, files: Int64Array, read: Int64Array, *, clustered: BoolArray
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The time for each of many groups of `files` with `read` bytes."""
        slow = self.clustered.seconds * default_seconds(files, read, groups=1, clustered=True)
        fast = self.ordered.seconds * default_seconds(files, read, groups=1, clustered=False)
        return np.asarray(np.where(clustered, slow, fast), dtype=np.float64)

    def predict(self, *, files: int, read: int, live: int, clustered: bool, conflict_rate: float) -> Prediction:
        """The cost of one group of `files` with `read` bytes, of which `live` belong to live rows."""
        factors = self.clustered if clustered else self.ordered
        seconds = factors.seconds * default_seconds(files, read, groups=1, clustered=clustered)
        return Prediction(
            read, round(live * factors.written), round(seconds, 3), round(odds(conflict_rate, seconds), 4)
        )


def default_seconds(files: _N, read: _N, *, groups: int, clustered: bool) -> Any:
    """The time for so many groups together, before anything was learned."""
    rate = CLUSTERED_BYTES_PER_S if clustered else BYTES_PER_S
    return groups * SECONDS_PER_GROUP + files * SECONDS_PER_FILE + read / rate


def learn(history: History) -> CostModel:
    """The model that the newest compactions of a history suggest; the defaults where there are none."""
    records = [compaction.record for compaction in history.compactions]
    return CostModel(
        ordered=_factors(record for record in records if not record.clustered),
        clustered=_factors(record for record in records if record.clustered),
    )


def _factors(records: Iterable[CostRecord]) -> Factors:
    newest = list(records)[-LEARN_FROM:]
    expected = sum(
        default_seconds(record.files, record.actual.bytes_read, groups=record.groups, clustered=record.clustered)
        for record in newest
    )
    live = sum(record.live_bytes for record in newest)
    written = sum(record.actual.bytes_written for record in newest)
    seconds = sum(record.actual.seconds for record in newest)
    return Factors(
        seconds=_bounded(seconds / expected) if expected and seconds > 0 else 1.0,
        written=_bounded(written / live) if live and written else 1.0,
    )


def _bounded(factor: float) -> float:
    return min(_MOST_FACTOR, max(1 / _MOST_FACTOR, factor))


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
        tuple(request.cluster_by) if clustered else (),
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
        counts |= {
            "with dead rows": worth_dead.sum(),
            "not clustered yet": files.unclustered[numbers].sum(),
            "outside of the partition folders": files.misplaced[numbers].sum(),
        }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
