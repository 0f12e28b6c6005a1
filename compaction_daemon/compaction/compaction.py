"""Plan a compaction of a table, with what its recent commits tell; or compact it once: plan, rewrite, verify, commit.

`plan`, `stage` and `compact` in `by_hand` are what users call.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.compaction_daemon.compaction.applying import Conduct, apply_groups, stage_groups
from tidelog.compaction_daemon.compaction.compaction_report import NOTHING, CompactionReport
from tidelog.compaction_daemon.compaction.executors import require_usable
from tidelog.compaction_daemon.compaction.purge import close_purge
from tidelog.compaction_daemon.planning.checking import DroppedGroup, check, require_applicable
from tidelog.compaction_daemon.planning.compaction_planner import NO_HISTORY, plan_snapshot
from tidelog.compaction_daemon.planning.history import CommitFacts, History, Moment, facts_of, facts_of_large
from tidelog.compaction_daemon.planning.plan import MAJOR, Plan, total
from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest
from tidelog.log import Snapshot
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import Commit
from tidelog.log.state.commits import read_each_up_to

if TYPE_CHECKING:
    from tidelog.log import Table, Transaction

# What one MINOR compaction reads unless the caller says otherwise: some seconds of work, after which the newest small
# files are worth another look.
MAX_MINOR_BYTES = 512 * 2**20
# Users ask for a MAJOR compaction, so it can take long, but far less than the longest transaction.
MAX_MAJOR_BYTES = 8 * 2**30
# How many commits are read when none are known: each is a request on an object store, where 16 are made at a time.
FIRST_COMMITS = 64
# With more new commits than these since the last look, reading only the newest ones again is quicker.
MAX_NEW_COMMITS = 1024
# A commit of a thousand files. A larger one is not worth the time that it takes to decode.
MAX_COMMIT_BYTES = 2**20
# How far the clocks of a writer and of this host can be apart without harm.
CLOCK_DIFFERENCE_MS = 300_000


def plan_newest(table: Table, request: CompactionRequest, budget: Budget) -> Plan:
    """What `plan` does."""
    snapshot = table.refresh().at()
    now_ms = table.timeline.system.now_ms()
    return plan_snapshot(snapshot, request, history=read_history(table), now_ms=now_ms, budget=budget, explain=True)


def compact_opened(
    table: Table, request: CompactionRequest, executor: Executor | None, budget: Budget | None, plan: Plan | None = None
) -> CompactionReport:
    """What `compact` does."""
    require_usable(table.store, executor)
    if plan is not None:
        return apply_plan(table, plan, Conduct(executor))
    history = read_history(table.refresh())
    return compact_with(table, request, Conduct(executor), budget=budget, history=history)


def stage_newest(table: Table, request: CompactionRequest) -> Transaction:
    """What `stage` does."""
    transaction = table.begin()
    snapshot = table.at()
    planned = plan_snapshot(snapshot, request, budget=default_budget(request.level))
    return stage_groups(transaction, table, snapshot, planned.groups, request.level)


def compact_with(
    table: Table,
    request: CompactionRequest,
    conduct: Conduct,
    *,
    budget: Budget | None = None,
    history: History = NO_HISTORY,
) -> CompactionReport:
    """Plan the newest version and apply the plan, as `compact` does, with what a daemon adds.

    Args:
        table: The table; it is refreshed.
        request: What to compact and how.
        conduct: How groups are rewritten and committed.
        budget: As for `compact`.
        history: What `read_history` returned. The level `auto` needs it to know which partitions are being written, and
            predictions are learned from it.

    Raises:
        CompactionGrowthError: All groups would take more space.
        LeaseLostError: The log has a higher epoch than that of the fence. What was committed stays.
        TidelogError: Everything else that `compact` raises.
    """
    snapshot = table.refresh().at()
    planned = plan_snapshot(
        snapshot,
        request,
        history=history,
        now_ms=table.timeline.system.now_ms(),
        budget=budget or default_budget(request.level),
        apart=conduct.failed.apart(table.timeline.system.monotonic_s()),
    )
    report = apply_fresh(table, snapshot, planned, conduct)
    return replace(report, purge=close_purge(table, request.where)) if request.purge else report


def apply_plan(table: Table, plan: Plan, conduct: Conduct) -> CompactionReport:
    """Apply a plan that was made before, as far as it still fits the newest version.

    Raises TableReplacedError if it is for another table, ConfigurationError if it contradicts itself.
    """
    fitting, dropped = check_plan(table, plan)
    report = apply_fresh(table, table.at(), fitting, conduct)
    report = replace(report, dropped=(*dropped, *report.dropped))
    is_purge = any(group.purge for group in plan.groups)
    return replace(report, purge=close_purge(table, plan.where)) if is_purge else report


def check_plan(table: Table, plan: Plan) -> tuple[Plan, tuple[DroppedGroup, ...]]:
    """Check a plan that was made before against the newest version of a table, which is loaded.

    Args:
        table: The table; it is refreshed.
        plan: The plan.

    Returns:
        The plan with the groups that still fit, and the others.

    Raises:
        TableReplacedError: The plan is for another table.
        ConfigurationError: The plan contradicts itself.
    """
    snapshot = table.refresh().at()
    require_applicable(plan, table.path, table.id)
    checked = check(plan.groups, snapshot)
    predicted = total([group.predicted for group in checked.groups])
    return replace(plan, version=snapshot.version, groups=checked.groups, predicted=predicted), checked.dropped


def apply_fresh(table: Table, snapshot: Snapshot, planned: Plan, conduct: Conduct) -> CompactionReport:
    """Apply a plan that was made for, or checked against, this snapshot."""
    if not planned.groups:
        return replace(NOTHING, groups_left=planned.left_out.groups)
    report = apply_groups(table, snapshot, planned.groups, conduct)
    return replace(report, groups_left=report.groups_left + planned.left_out.groups)


def default_budget(level: str) -> Budget:
    """What one compaction takes on unless the caller says otherwise."""
    return Budget(size_bytes=MAX_MAJOR_BYTES if level == MAJOR else MAX_MINOR_BYTES)


def read_history(table: Table, known: History | None = None) -> History:
    """What plans need to know of the newest commits of the loaded version.

    `known` is what an earlier call returned for the same table: then only the commits since are read, and their time is
    that of this host, which sees them for the first time. The time of others is that of their writers, whose clocks may
    be `CLOCK_DIFFERENCE_MS` behind. Commits that are cleaned up are left out, with all before them.
    """
    now_ms = table.timeline.system.now_ms()
    return (known and _continued(table, known, now_ms)) or _begun(table, now_ms)


def _continued(table: Table, known: History, now_ms: int) -> History | None:
    """The known history with the commits since; None if that is not possible."""
    newest = known.version
    if newest is None or not table.head.first_version <= newest <= table.version <= newest + MAX_NEW_COMMITS:
        return None
    try:
        return known.followed_by(_facts(table, range(newest + 1, table.version + 1), now_ms, now_ms))
    except (FileNotFoundError, CorruptLogError):
        return None


def _begun(table: Table, now_ms: int) -> History:
    newest, first = table.version, table.head.first_version
    found: list[CommitFacts] = []
    with suppress(FileNotFoundError, CorruptLogError):  # a plan can do without
        for facts in _facts(table, range(newest, max(newest - FIRST_COMMITS, first - 1), -1), now_ms):
            found.append(facts)  # noqa: PERF402 - those before an error count
    if not found:
        return History(newest, Moment(newest, now_ms, now_ms), is_whole=False)
    return History(is_whole=found[-1].version == first).followed_by(reversed(found))


def _facts(table: Table, versions: range, now_ms: int, seen_ms: int | None = None) -> Iterator[CommitFacts]:
    """The facts of these commits, in this order. `seen_ms` is when they were seen for the first time, if they were."""
    stamp = table.head.timestamp_ms
    for version, content in zip(versions, read_each_up_to(table.store, versions, MAX_COMMIT_BYTES), strict=True):
        info = content.info if isinstance(content, Commit) else content
        # Good enough without asking the store for the time of the file.
        stamp = commit_info.in_commit_timestamp_ms(info) or commit_info.written_timestamp_ms(info) or stamp
        latest_ms = min(now_ms, stamp + CLOCK_DIFFERENCE_MS) if seen_ms is None else seen_ms
        if isinstance(content, Commit):
            yield facts_of(content, stamp, latest_ms)
        else:
            yield facts_of_large(version, content, stamp, latest_ms)
