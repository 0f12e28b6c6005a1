"""From a CompactionRequest to a Plan.

1. `candidates`: the live files as columns, and which of them are small, dead or not yet clustered
2. the level of each partition: the one asked for, or at the level `auto` what its recent commits allow
3. `decisions`: candidates packed by `minor` or `major`; files whose rows are all dead are dropped at either level
4. `planned_groups`: the decisions ranked by debt removed per byte rewritten, and the best ones as groups
5. the reasons: why each file is rewritten or left alone, and what each partition owes
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidelog.compaction_daemon.planning.candidates import MIN_DEAD_SHARE, Files, files_of
from tidelog.compaction_daemon.planning.decisions import (
    OPEN_COST_BYTES,
    REFUSALS,
    TAKEN,
    Decisions,
    Float64Array,
    Rules,
    decide,
)
from tidelog.compaction_daemon.planning.history import History, ScopeKey
from tidelog.compaction_daemon.planning.plan import (
    CLUSTERED_TAG,
    HILBERT,
    MAJOR,
    MINOR,
    SORT,
    FileReason,
    Plan,
    ScopeDebt,
    cluster_tag,
    total,
)
from tidelog.compaction_daemon.planning.planned_groups import Chosen, Costs, best_groups, learn
from tidelog.compaction_daemon.planning.request import (
    AUTO_LEVEL,
    Budget,
    CompactionRequest,
    physical_columns,
    with_clustering,
)
from tidelog.log import Snapshot
from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.format import properties
from tidelog.log.format.clustering import CUBE_COLUMNS_TAG, clustering_columns, cube_columns
from tidelog.log.format.schema import physical_name

# MAJOR does not wait for quiet if so much of a partition is dead: reads then take twice as long as they need to.
DEAD_SHARE_OF_HOT = 0.5

# A plan is read by people, and kept in status pages. The partitions with the most debt to remove come first.
MAX_SCOPES_SHOWN = 100

NO_BUDGET = Budget()
NO_HISTORY = History()
NOTHING_APART: Mapping[str, int] = {}


def plan_snapshot(
    snapshot: Snapshot,
    request: CompactionRequest,
    *,
    history: History = NO_HISTORY,
    now_ms: int = 0,
    budget: Budget = NO_BUDGET,
    apart: Mapping[str, int] = NOTHING_APART,
    explain: bool = False,
) -> Plan:
    """The plan for one snapshot; the same arguments always give the same plan.

    Args:
        snapshot: The version to plan for.
        request: What to compact and how.
        history: Recent commits, from which predictions and, at the level `auto`, hot partitions are learned.
        now_ms: The time of day, in ms since the epoch. It is compared with the commits of the history.
        budget: The most that all groups together may cost. The first group is planned even if it costs more.
        apart: Files that are not packed with others, by path the number of their group; with a negative number they are
            left alone (see `FailedGroups`).
        explain: Whether the plan has a reason for every live file, which takes an object for each.

    Raises:
        ConfigurationError: Rows cannot be clustered by the columns.
        PredicateError: The request's `where` is not valid, or names other than partition columns.
    """
    request, notes = with_clustering(snapshot, request)
    past = _Past(history, now_ms)
    target = properties.size_bytes(snapshot.properties, properties.TARGET_FILE_SIZE)
    tags = _clustered_tags(snapshot, request) if request.cluster_by else None
    partitions = tuple(physical_name(snapshot.schema.field(name)) for name in snapshot.partition_by)
    # Only if asked for: to heal such a table can mean to rewrite all of it.
    in_folders = request.level == MAJOR and snapshot.state.uses_partition_folders()
    files = files_of(snapshot.files(request.where), partitions, target, tags, past.named, in_folders=in_folders)
    waits = past.waits_ms(files)
    rules = Rules(
        target=target,
        span_ms=properties.duration_ms(snapshot.properties, properties.MINOR_SPAN),
        growth=1.0 if request.level == MAJOR else request.growth,
        purge=request.purge,
        clusters=bool(request.cluster_by),
        is_major=_major_scopes(files, request, waits),
    )
    decisions = decide(files, rules, apart)
    chosen = best_groups(decisions, request, Costs(learn(history), past.rates(files)), budget)
    why = _Reasons(decisions, chosen, request, waits)
    return Plan(
        level=request.level,
        version=snapshot.version,
        groups=chosen.groups,
        num_files=len(files.sizes),
        small_files=int(files.small.sum()),
        reasons=why.files(snapshot) if explain else (),
        table_id=snapshot.state.head.metadata.id,
        predicted=total([group.predicted for group in chosen.groups]),
        scopes=why.scopes(),
        num_scopes=files.num_scopes,
        left_out=chosen.left_out,
        notes=notes,
        where=request.where,
    )


def _clustered_tags(snapshot: Snapshot, request: CompactionRequest) -> dict[str, str]:
    """The tags of which a file has one if its rows are clustered as requested, by tidelog or by delta-spark."""
    order = request.cluster_order or SORT
    tags = {CLUSTERED_TAG: cluster_tag(physical_columns(snapshot, request), order)}
    own = clustering_columns(snapshot.state.head.domains, snapshot.schema)
    if own == request.cluster_by and (order == HILBERT or len(own) == 1):
        tags[CUBE_COLUMNS_TAG] = cube_columns(own)
    return tags


def _major_scopes(files: Files, request: CompactionRequest, waits: Int64Array) -> BoolArray:
    """Which partitions are planned as MAJOR."""
    if request.level != AUTO_LEVEL:
        return np.full(files.num_scopes, request.level == MAJOR)
    very_dead = files.sum_by_scope(files.dead_bytes) >= DEAD_SHARE_OF_HOT * files.sum_by_scope(files.sizes)
    return np.asarray((waits == 0) | very_dead)


class _Past:
    """A history, by the numbers of partitions."""

    def __init__(self, history: History, now_ms: int) -> None:
        self._now_ms = now_ms
        self._activity, self._anywhere = history.activity()
        self._rates, self._elsewhere = history.conflict_rates(now_ms)
        self.named: tuple[ScopeKey, ...] = tuple({**dict.fromkeys(self._activity), **dict.fromkeys(self._rates)})

    def waits_ms(self, files: Files) -> Int64Array:
        """How long MAJOR waits until each partition is quiet."""
        elsewhere = self._anywhere.waits_ms(self._now_ms) if self._anywhere else 0
        waits = np.full(files.num_scopes, elsewhere, dtype=np.int64)
        for scope, number in zip(self.named, files.named.tolist(), strict=True):
            if number >= 0 and scope in self._activity:
                waits[number] = self._activity[scope].waits_ms(self._now_ms)
        return waits

    def rates(self, files: Files) -> Float64Array:
        """How many commits a second change files of each partition."""
        rates = np.full(files.num_scopes, self._elsewhere)
        for scope, number in zip(self.named, files.named.tolist(), strict=True):
            if number >= 0:
                rates[number] = self._rates.get(scope, self._elsewhere)
        return rates


class _Reasons:
    """The reasons of one plan. `waits` says how long MAJOR waits for each partition, in ms; 0 where it does not."""

    def __init__(self, decisions: Decisions, chosen: Chosen, request: CompactionRequest, waits: Int64Array) -> None:
        self._decisions = decisions
        self._files = decisions.files
        self._chosen = chosen
        self._request = request
        self._waits = waits

    # --- files

    def files(self, snapshot: Snapshot) -> tuple[FileReason, ...]:
        """The reason of each live file, in log order."""
        paths: list[str] = snapshot.files()["path"].to_pylist()
        reasons, taken = self._file_reasons()
        if self._request.where is None:
            return tuple(map(FileReason, paths, taken, reasons))
        inside = dict(zip(self._files.table["path"].to_pylist(), zip(taken, reasons, strict=True), strict=True))
        outside = (False, "not in the partitions asked for")
        return tuple(FileReason(path, *inside.get(path, outside)) for path in paths)

    def _file_reasons(self) -> tuple[list[str], list[bool]]:
        """For each file of the partitions asked for: why, and whether it is rewritten."""
        files, decisions = self._files, self._decisions
        taken = np.zeros(len(files.sizes), dtype=bool)
        taken[self._chosen.files] = True
        decided = np.full(len(files.sizes), -1)

        decided[decisions.candidates] = np.repeat(decisions.refused, decisions.counts)
        reasons = np.full(len(files.sizes), "large enough", dtype=object)
        for code, text in enumerate(REFUSALS):
            reasons[decided == code] = text
        special = (decided < 0) & ((files.dead_rows > 0) | files.unclustered | self._decisions.rules.clusters)
        for number in np.flatnonzero(special).tolist():
            reasons[number] = self._why_not(number)
        due = decided == TAKEN
        packed = due & ~decisions.rules.is_major[files.scopes] & ~files.all_dead
        reasons[packed] = "small"
        for number in np.flatnonzero(due & ~packed).tolist():
            reasons[number] = self._why(number)
        reasons[due & ~taken] += "; left to a later plan"
        return reasons.tolist(), taken.tolist()

    def _why(self, number: int) -> str:
        """Why a file is dropped, or rewritten by MAJOR."""
        files = self._files
        if files.all_dead[number]:
            return "all of its rows are dead"
        found = ["small"] if files.small[number] else []
        dead, rows = int(files.dead_rows[number]), int(files.rows[number])
        if self._request.purge and dead:
            found.append("has dead rows to purge")
        elif dead and self._decisions.worth[number] and not (rows > 0 and dead < MIN_DEAD_SHARE * rows):
            found.append(f"{dead} {f'of its {rows}' if rows > 0 else 'of an unknown number of'} rows are dead")
        if files.unclustered[number]:
            found.append(f"not clustered by {', '.join(self._request.cluster_by)} yet")
        if files.misplaced[number]:
            found.append("outside of the table's partition folders")
        return ", ".join(found)

    def _why_not(self, number: int) -> str:
        """Why a large file is left alone that has dead rows, or that MAJOR could cluster."""
        files = self._files
        if not self._is_major(number):
            waits = self._request.level == AUTO_LEVEL and files.worth(purge=self._request.purge)[number]
            return f"large enough for now; {self._waiting(files.scopes[number])}" if waits else "large enough"
        few = ", with few dead rows" if files.dead_rows[number] else ""
        clustered = f", clustered by {', '.join(self._request.cluster_by)}" if self._request.cluster_by else ""
        return f"large enough{few}{clustered}"

    def _is_major(self, number: int) -> bool:
        return bool(self._decisions.rules.is_major[self._files.scopes[number]])

    def _waiting(self, scope: int) -> str:
        return f"major waits for another {self._waits[scope] / 1000:.0f} s without a commit to the partition"

    # --- partitions

    def scopes(self) -> tuple[ScopeDebt, ...]:
        """The partitions with something to do, the best first, then those with the most debt; no others."""
        files, decisions = self._files, self._decisions
        due = decisions.refused == TAKEN
        gains, cost, groups = (
            np.bincount(decisions.scopes[due], weights=values[due], minlength=files.num_scopes)
            for values in (decisions.gains, decisions.cost, np.ones(len(due)))
        )
        scores = gains / np.maximum(1, cost)
        sums = {
            "files": np.bincount(files.scopes, minlength=files.num_scopes),
            "small_files": files.sum_by_scope(files.small),
            "small_bytes": files.sum_by_scope(np.where(files.small, files.sizes, 0)),
            "dead_rows": files.sum_by_scope(files.dead_rows),
            "dead_bytes": files.sum_by_scope(files.dead_bytes),
            "unclustered_files": files.sum_by_scope(files.unclustered),
        }
        live = files.sum_by_scope(files.sizes) - sums["dead_bytes"]
        needed = np.maximum(1, np.ceil(live / decisions.rules.target))
        debt = (sums["files"] - needed) * OPEN_COST_BYTES + sums["dead_bytes"] + sums["unclustered_files"]
        order = np.lexsort((-debt, -scores))[:MAX_SCOPES_SHOWN]
        order = order[(scores[order] > 0) | (debt[order] > 0)]
        partitions = files.table["partitionValues"].take(pa.array(files.first_of(order))).to_pylist()
        return tuple(
            ScopeDebt(
                partition_values=dict(values or ()),
                **{name: int(column[scope]) for name, column in sums.items()},
                read_amplification=round(float(sums["files"][scope] / needed[scope]), 2),
                groups=int(groups[scope]),
                score=round(float(scores[scope]), 3),
                reason=self._scope_reason(scope, int(groups[scope])),
            )
            for scope, values in zip(order.tolist(), partitions, strict=True)
        )

    def _scope_reason(self, scope: int, groups: int) -> str:
        found = []
        if groups:
            level = MAJOR if self._decisions.rules.is_major[scope] else MINOR
            found.append(f"{groups:,} {'group' if groups == 1 else 'groups'} for {level}")
        else:
            found.append("nothing is worth a rewrite now")
        if self._request.level == AUTO_LEVEL and self._waits[scope]:
            early = "major does not wait, because half of the partition is dead"
            found.append(early if self._decisions.rules.is_major[scope] else self._waiting(scope))
        return "; ".join(found)
