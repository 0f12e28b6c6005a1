"""From a CompactionRequest to a Plan.

1. `candidates`: the live files as columns, and which of them are small, dead or not yet clustered
2. the level of each partition: the one asked for, or at the level `auto` what its recent commits allow
3. `decisions`: candidates packed by `minor` or `major`; files whose rows are all dead are dropped at either level
4. `groups`: the decisions ranked by debt removed per byte rewritten, and the best ones as groups
5. `explanations`: the reasons
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidelog.compaction_daemon.planning import explanations
from tidelog.compaction_daemon.planning.candidates import Files, files_of
from tidelog.compaction_daemon.planning.costs import learn
from tidelog.compaction_daemon.planning.decisions import Float64Array, Rules, decide
from tidelog.compaction_daemon.planning.groups import Costs, best_groups
from tidelog.compaction_daemon.planning.history import History, ScopeKey
from tidelog.compaction_daemon.planning.minor import GROWTH
from tidelog.compaction_daemon.planning.plan import (
    CLUSTERED_TAG,
    HILBERT,
    MAJOR,
    MINOR,
    SORT,
    Plan,
    cluster_tag,
    total,
)
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
    files = files_of(snapshot.files(request.where), partitions, target, tags, past.named)
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
    why = explanations.Explanations(decisions, chosen, request, waits)
    return Plan(
        level=request.level,
        version=snapshot.version,
        groups=chosen.groups,
        num_files=len(files.sizes),
        small_files=int(files.small.sum()),
        reasons=why.files(snapshot) if explain else (),
        table_id=snapshot.state.head.metadata.id,
        predicted=total(group.predicted for group in chosen.groups),
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


def next_plan(
    snapshot: Snapshot,
    history: History,
    *,
    now_ms: int,
    budget: Budget,
    growth: float = GROWTH,
    major: bool = True,
    apart: Mapping[str, int] = NOTHING_APART,
) -> Plan:
    """What a daemon does next: MINOR in partitions that are being written, MAJOR in those that have become quiet.

    The best groups of both come first, up to the budget; the same arguments always give the same plan. `major` says
    whether MAJOR is wanted at all. The other arguments are those of `plan_snapshot`. It never raises for columns that
    the table's property names and that can no longer be clustered by; the plan has a note instead.
    """
    request = CompactionRequest(AUTO_LEVEL if major else MINOR, growth=growth)
    return plan_snapshot(snapshot, request, history=history, now_ms=now_ms, budget=budget, apart=apart)


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
