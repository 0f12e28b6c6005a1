"""Decisions: which candidates belong together, and whether they are rewritten, as columns.

Candidates are sorted by partition and, within one, by the time of their commits, then in log order. A decision is on a
run of neighbours in that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.compaction_daemon.planning.candidates import Files, oldest_times
from tidelog.compaction_daemon.planning.major import num_outputs, pack_major
from tidelog.compaction_daemon.planning.minor import is_hardly_larger, pack_minor
from tidelog.log.arrays import BoolArray, Int64Array

Float64Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# Why a run is left alone, by its code; 0 means that it is rewritten.
REFUSALS = (
    "",
    "small, but there is no other small file to pack it with",
    "small, but its group is hardly larger than its largest file",
    "small, but a rewrite would not leave fewer files",
    "its group could not be rewritten before, and is left alone for a while",
)
TAKEN, LONELY, HARDLY_LARGER, NOT_FEWER, LEFT_ALONE = range(5)

# What a reader pays for opening a file, in bytes it could read instead: Spark's `spark.sql.files.openCostInBytes`.
OPEN_COST_BYTES = 4 * 2**20
# Clustering saves a selective scan nearly all of a file and a full scan nothing. Nobody knows which scans will come.
CLUSTERING_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes files worth a rewrite. `is_major` has one entry for each partition."""

    target: int
    span_ms: int
    growth: float
    purge: bool
    clusters: bool
    is_major: BoolArray


@dataclass(frozen=True)
class Decisions:
    """The candidates in order, as numbers of files, and the decisions on them.

    Decision d is on the candidates from `starts[d]` to `stops[d]`: they become `outputs[d]` files, unless `refused[d]`
    is a code of REFUSALS. `worth` are the files that MAJOR rewrites even by themselves.
    """

    files: Files
    rules: Rules
    worth: BoolArray
    candidates: Int64Array
    starts: Int64Array
    stops: Int64Array
    outputs: Int64Array
    refused: Int64Array

    @cached_property
    def scopes(self) -> Int64Array:
        """The partition of each decision."""
        return self.files.scopes[self.candidates[self.starts]]

    @cached_property
    def counts(self) -> Int64Array:
        """The number of files of each decision."""
        return self.stops - self.starts

    @cached_property
    def sizes(self) -> Int64Array:
        """The bytes of the files of each decision."""
        return self._sums(self.files.sizes)

    @cached_property
    def dead_bytes(self) -> Int64Array:
        """The bytes of dead rows of each decision."""
        return self._sums(self.files.dead_bytes)

    @cached_property
    def gains(self) -> Int64Array:
        """The debt that each decision would remove: the bytes that a read of the partition is then spared."""
        gain = (self.counts - self.outputs) * OPEN_COST_BYTES + self.dead_bytes
        unclustered = self._sums(np.where(self.files.unclustered, self.files.sizes, 0))
        clustering = np.where(self.clustered, unclustered, 0)
        return np.asarray(np.maximum(0, gain + (clustering * CLUSTERING_SHARE).astype(np.int64)), dtype=np.int64)

    @cached_property
    def clustered(self) -> BoolArray:
        """Whether the rewrite of each decision clusters rows."""
        return self.rules.is_major[self.scopes] & (self.outputs > 0) & self.rules.clusters

    @cached_property
    def cost(self) -> Int64Array:
        """The bytes that the rewrite of each decision reads. To drop dead files reads nothing."""
        return np.asarray(np.where(self.outputs > 0, self.sizes, 0), dtype=np.int64)

    @cached_property
    def scores(self) -> Float64Array:
        """Debt removed per byte rewritten."""
        return self.gains / np.maximum(1, self.cost)

    def ranked(self) -> Int64Array:
        """The decisions to rewrite, the best first; equally good ones in the order of partitions and commits."""
        taken = np.flatnonzero(self.refused == TAKEN)
        return taken[np.argsort(-self.scores[taken], kind="stable")]

    def members(self, decision: int) -> Int64Array:
        """The files of a decision, as numbers."""
        return self.candidates[self.starts[decision] : self.stops[decision]]

    def is_major(self, decision: int) -> bool:
        """Whether a decision is one of MAJOR."""
        return bool(self.rules.is_major[self.scopes[decision]])

    def _sums(self, values: Int64Array) -> Int64Array:
        ends = np.concatenate([[0], np.cumsum(values[self.candidates])])
        return np.asarray(ends[self.stops] - ends[self.starts], dtype=np.int64)


def decide(files: Files, rules: Rules, apart: Mapping[str, int]) -> Decisions:
    """Decide on all files that are small, dead, or worth a rewrite. Each of them is in exactly one decision.

    `apart` numbers files by path. Only files with the same number are packed together, and those with a negative one
    are left alone. A file whose rows are all dead is dropped without reading it, whatever its number.
    """
    is_major = rules.is_major[files.scopes] if files.num_scopes else np.zeros(0, dtype=bool)
    worth = files.worth(purge=rules.purge) & is_major
    chosen = np.flatnonzero(files.small | files.all_dead | worth)
    live = ~files.all_dead[chosen]
    numbers = np.where(live, _numbers(files, apart)[chosen], 0)
    # Stable: files with the same time stay in log order.
    order = np.lexsort((files.times[chosen], numbers, live, files.scopes[chosen]))
    chosen, numbers, live = chosen[order], numbers[order], live[order]
    runs = _Runs(files, rules, chosen, worth)
    changes = np.diff(files.scopes[chosen] * 2 + live).astype(bool) | np.diff(numbers).astype(bool)
    bounds = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(chosen)]]) if len(chosen) else np.zeros(1, int)
    lengths = np.diff(bounds)
    alone = _alone(files, rules, chosen, worth, bounds[:-1][lengths == 1])
    many = lengths > 1
    for start, stop in zip(bounds[:-1][many].tolist(), bounds[1:][many].tolist(), strict=True):
        runs.decide(range(start, stop))
    columns = np.concatenate([alone, np.array(runs.found, dtype=np.int64).reshape(-1, 4)])
    starts, stops, outputs, refused = columns[np.argsort(columns[:, 0])].T
    refused = np.where(numbers[starts] < 0, LEFT_ALONE, refused)
    return Decisions(files, rules, worth, chosen, starts, stops, outputs, refused)


def _numbers(files: Files, apart: Mapping[str, int]) -> Int64Array:
    """The number of each file; 0 without one."""
    found = np.zeros(len(files.sizes), dtype=np.int64)
    if apart:
        places = pc.index_in(files.table["path"], value_set=pa.array(apart, pa.string()))
        known = np.asarray(places.is_valid())
        found[known] = np.fromiter(apart.values(), np.int64)[places.drop_null().to_numpy()]
    return found


def _alone(files: Files, rules: Rules, candidates: Int64Array, worth: BoolArray, places: Int64Array) -> Int64Array:
    """The decisions on candidates without another one in their partition: start, stop, outputs, refusal.

    A table can have a million partitions, so these are not decided one by one.
    """
    numbers = candidates[places]
    is_major = rules.is_major[files.scopes[numbers]]
    live = files.sizes[numbers] - files.dead_bytes[numbers]
    outputs = np.where(is_major, np.maximum(1, (live / rules.target + 0.5).astype(np.int64)), 1)
    refused = np.where(is_major, np.where(worth[numbers], TAKEN, NOT_FEWER), LONELY)
    dead = files.all_dead[numbers]
    return np.stack([places, places + 1, np.where(dead, 0, outputs), np.where(dead, TAKEN, refused)], axis=1)


class _Runs:
    """Packs the candidates of one partition after the other. Lists, because loops over arrays are slow."""

    def __init__(self, files: Files, rules: Rules, candidates: Int64Array, worth: BoolArray) -> None:
        self._files = files
        self._rules = rules
        self._candidates = candidates
        self._sizes: list[int] = files.sizes[candidates].tolist()
        self._times: list[int] = files.times[candidates].tolist()
        self._live: list[int] = (files.sizes - files.dead_bytes)[candidates].tolist()
        self._dead: list[bool] = files.all_dead[candidates].tolist()
        self._worth: list[bool] = worth[candidates].tolist()
        self._scopes: list[int] = files.scopes[candidates].tolist()
        self._is_major: list[bool] = rules.is_major.tolist()
        self._oldest = self._oldest_times()
        self.found: list[tuple[int, int, int, int]] = []

    def _oldest_times(self) -> list[int]:
        if self._rules.is_major.all():
            return self._times
        few = self._files.table.select(["tags"]).take(pa.array(self._candidates))
        oldest: list[int] = oldest_times(few, self._files.times[self._candidates]).tolist()
        return oldest

    def decide(self, segment: range) -> None:
        """Decide on candidates of one partition that are all dead, or all alive."""
        rules = self._rules
        if self._dead[segment.start]:
            self.found.append((segment.start, segment.stop, 0, TAKEN))
        elif self._is_major[self._scopes[segment.start]]:
            for run in pack_major(segment, self._sizes, target=rules.target, clusters=rules.clusters):
                outputs = num_outputs(sum(self._live[run.start : run.stop]), rules.target)
                self.found.append((run.start, run.stop, outputs, self._major_refusal(run, outputs)))
        else:
            packed = pack_minor(
                segment, self._sizes, self._times, self._oldest, target=rules.target, span_ms=rules.span_ms
            )
            self.found += [(run.start, run.stop, 1, self._minor_refusal(run)) for run in packed]

    def _minor_refusal(self, run: range) -> int:
        if len(run) == 1:
            return LONELY
        hardly = is_hardly_larger(
            self._sizes[run.start : run.stop], target=self._rules.target, growth=self._rules.growth
        )
        return HARDLY_LARGER if hardly else TAKEN

    def _major_refusal(self, run: range, outputs: int) -> int:
        if any(self._worth[run.start : run.stop]):
            return TAKEN
        if outputs >= len(run):
            return NOT_FEWER
        return self._minor_refusal(run)
