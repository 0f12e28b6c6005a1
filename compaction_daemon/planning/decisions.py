"""Decisions: which candidates belong together, and whether they are rewritten, as columns.

Candidates are sorted by partition and, within one, by the time of their commits, then in log order. A decision is on a
run of neighbours in that order.

MINOR packs small files until the target size is reached. Files whose commits are further apart than
`tidelog.minorSpan` are never mixed, so that each file covers a short time. Large files are never touched.

MAJOR rewrites a file, however old it is, if it is small, if a tenth of its rows are dead (with a purge: any of them),
if it is not yet clustered by the columns asked for, or if it is outside of the partition folders of a table that has
such. These files are packed, oldest first, into groups that are rewritten one at a time; each group becomes files of
about the target size. Repeated plans end: what a rewrite leaves has no dead rows, is clustered and in its folder, and
files that are merely small are rewritten only if there are fewer of them afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.compaction_daemon.planning.candidates import Files, oldest_times
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.read.debt import SMALL_SHARE

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

# Files with equally many similar rows differ by some bytes; two of them count as twice one.
_TOLERANCE = 0.95
# A group's rewrite reads a footer of each input, and its commit has two lines for each.
MAX_GROUP_FILES = 5000
# The most that one group reads; a larger file is a group by itself. Clustering needs about 25 bytes in memory for each
# row, however small it is on disk: hence the bound on rows. If another compaction commits first, a rebase needs about
# 90 bytes per row to follow each of them.
MAX_GROUP_BYTES = 512 * 2**20
MAX_GROUP_ROWS = 20_000_000


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


def pack_minor(
    files: range, sizes: Sequence[int], times: Sequence[int], oldest: Sequence[int], *, target: int, span_ms: int
) -> list[range]:
    """Runs of neighbours that fit the target and the span. `files` are numbers in the sequences, oldest first.

    The last two runs share their files evenly if that makes neither of them a small file: it leaves no rest to be
    rewritten soon, and two cores are done with them at about the same time.
    """
    runs = [*_filled(files, sizes, times, oldest, target=target, span_ms=span_ms)]
    if len(runs) > 1:
        first, last = runs[-2:]
        cut = _even_cut(range(first.start, last.stop), sizes, target)
        # The first run only loses files, so it keeps to the span.
        if cut is not None and cut < first.stop and times[last.stop - 1] - min(oldest[cut : last.stop]) <= span_ms:
            runs[-2:] = [range(first.start, cut), range(cut, last.stop)]
    return runs


def _even_cut(files: range, sizes: Sequence[int], target: int) -> int | None:
    """Where to cut files so that the second part is just not larger than the first; None if a part is small or long."""
    total, least = sum(sizes[files.start : files.stop]), target * SMALL_SHARE
    if total < 2 * least:
        return None
    cut, size = files.stop, 0
    while 2 * (size + sizes[cut - 1]) <= total:
        cut -= 1
        size += sizes[cut]
    is_long = max(cut - files.start, files.stop - cut) > MAX_GROUP_FILES
    return None if size < least or total - size > target or is_long else cut


def _filled(
    files: range, sizes: Sequence[int], times: Sequence[int], oldest: Sequence[int], *, target: int, span_ms: int
) -> Iterator[range]:
    start, size, since = files.start, 0, math.inf
    for file in files:
        too_large = size + sizes[file] > target or file - start >= MAX_GROUP_FILES
        if file > start and (too_large or times[file] - since > span_ms):
            yield range(start, file)
            start, size, since = file, 0, math.inf
        if oldest[file] < since:  # noqa: PLR1730 - for a million files a call of `min` is what costs most
            since = oldest[file]
        size += sizes[file]
    if files:
        yield range(start, files.stop)


def is_hardly_larger(sizes: Sequence[int], *, target: int, growth: float) -> bool:
    """Whether a group of small files is so close to its largest file that it should wait for more of them."""
    return sum(sizes) < min(max(1.0, growth * _TOLERANCE) * max(sizes), target * SMALL_SHARE)


def pack_major(files: range, sizes: Sequence[int], *, target: int, clusters: bool) -> Iterator[range]:
    """Runs of files of a bounded size, oldest first. `files` are numbers in `sizes`."""
    limit = max(MAX_GROUP_BYTES, 0 if clusters else target)
    start, size = files.start, 0
    for file in files:
        if file > start and (size + sizes[file] > limit or file - start >= MAX_GROUP_FILES):
            yield range(start, file)
            start, size = file, 0
        size += sizes[file]
    if files:
        yield range(start, files.stop)


def split_by_rows(files: range, rows: Sequence[int]) -> Iterator[range]:
    """The parts of a group that have at most MAX_GROUP_ROWS each, as far as rows are counted."""
    start, total = files.start, 0
    for file in files:
        count = max(0, rows[file])
        if file > start and total + count > MAX_GROUP_ROWS:
            yield range(start, file)
            start, total = file, 0
        total += count
    yield range(start, files.stop)


def num_outputs(live_bytes: float, target: int) -> int:
    """The number of files of about the target size that live rows need.

    It is rounded so that, of several outputs, none is small: 1.5 targets are two files of 0.75, 1.4 targets one file.
    """
    return max(1, int(live_bytes / target + 0.5))
