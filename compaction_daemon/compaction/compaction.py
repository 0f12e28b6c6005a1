"""Plan a compaction, with what recent commits of the table tell; or compact it once: plan, rewrite, verify, commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace

from tidelog.compaction_daemon.compaction.applying import Conduct, apply_groups, stage_groups
from tidelog.compaction_daemon.compaction.compaction_report import NOTHING, CompactionReport
from tidelog.compaction_daemon.compaction.executors import require_usable
from tidelog.compaction_daemon.compaction.purge import close_purge
from tidelog.compaction_daemon.planning.checking import DroppedGroup, check, require_applicable
from tidelog.compaction_daemon.planning.history import CommitFacts, History, Moment, facts_of, facts_of_large
from tidelog.compaction_daemon.planning.plan import MAJOR, MINOR, Plan, total
from tidelog.compaction_daemon.planning.planner import NO_BUDGET, NO_HISTORY, plan_snapshot
from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest
from tidelog.log import Snapshot, Table, Transaction
from tidelog.log.errors import ConfigurationError, CorruptLogError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import Commit
from tidelog.log.state.commits import read_each_up_to

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


def plan(  # noqa: D417 - CompactionRequest describes the other arguments
    table: Table,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
    cluster_order: str | None = None,
    budget: Budget | None = None,
) -> Plan:
    """Plan a compaction of the table's newest version; nothing is rewritten.

    `level`, `where`, `growth`, `cluster_by`, `purge` and `cluster_order` are those of a `CompactionRequest`. The same
    version and arguments always give the same groups. Predictions follow the table's recent commits, and at the level
    `auto` also the time since the last one.

    Args:
        table: The table; it is refreshed.
        budget: The most that the groups together may cost; by default only the number of input files is bounded.

    Returns:
        The plan, with a reason for every live file.

    Raises:
        ConfigurationError: The level is unknown or does not support an option, or rows cannot be clustered by a column.
        PredicateError: `where` is not valid, or names other than partition columns.

    Example:
        for entry in plan(table, "major", purge=True).reasons:
            print(entry.path, entry.chosen, entry.reason)
    """
    request = CompactionRequest(level, where, growth, cluster_by, purge, cluster_order)
    return plan_newest(table, request, budget or NO_BUDGET)


def plan_newest(table: Table, request: CompactionRequest, budget: Budget) -> Plan:
    """What `plan` does."""
    snapshot = table.refresh().at()
    now_ms = table.timeline.system.now_ms()
    return plan_snapshot(snapshot, request, history=read_history(table), now_ms=now_ms, budget=budget, explain=True)


def stage(  # noqa: D417 - as above
    table: Table,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
    cluster_order: str | None = None,
) -> Transaction:
    """Rewrite files as `compact` does, and leave the commit to the caller.

    `level` (`minor` or `major`), `where`, `growth`, `cluster_by`, `purge` and `cluster_order` are those of a
    `CompactionRequest`. Readers see nothing of it until `commit()`; `abort()` deletes the written files.

    Args:
        table: The table, an opened one.

    Returns:
        The transaction. Its `commit()` writes no version if there was nothing to rewrite, and returns `Superseded` if
        other commits took the inputs of every group.

    Raises:
        ConfigurationError: The arguments do not fit.
        PredicateError: `where` is not valid.
        CompactionVerificationError: Written files do not hold the rows that were read.
    """
    request = CompactionRequest(level, where, growth, cluster_by, purge, cluster_order)
    if request.level not in (MINOR, MAJOR):
        raise ConfigurationError(
            f"the level {level!r} can need several commits, and a transaction is one",
            advice="stage minor or major, or use compact",
        )
    transaction = table.begin()
    snapshot = table.at()
    planned = plan_snapshot(snapshot, request, budget=default_budget(request.level))
    return stage_groups(transaction, table, snapshot, planned.groups, level)


def compact(  # noqa: D417, PLR0913 - as above; a public function whose options users know by name
    table: Table | str,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
    cluster_order: str | None = None,
    executor: Executor | None = None,
    budget: Budget | None = None,
    plan: Plan | None = None,
) -> CompactionReport:
    """Compact a table once: rewrite groups of files, and replace them in one commit, or in several if it takes long.

    No rows change: reads by time and change feeds do not see the commits. Other writers are not disturbed: their
    commits win, and a group whose inputs they removed is dropped. A compaction that takes longer than 20 s commits what
    is finished about every 20 s, so that a crash or a conflict loses no more than that. A crash at any moment leaves
    the table readable, and at most files that `vacuum` deletes.

    `level`, `where`, `growth`, `cluster_by`, `purge` and `cluster_order` are those of a `CompactionRequest`. Once a
    purge leaves no dead row, a commit without rows closes it: the report's `purge` says from when on nothing holds
    deleted rows.

    Args:
        table: A table, or its path.
        executor: A `concurrent.futures` executor that rewrites groups in parallel; by default some threads do.
        budget: The most to take on; by default 512 MiB to read for `minor` and `auto`, 8 GiB for `major`. At least one
            group is rewritten.
        plan: A plan of this table, which is applied as far as its files are unchanged, instead of a new one. Then no
            argument but `executor` may be given.

    Returns:
        What was done. Its `version` is None if there was nothing to do, or if other commits took every group. Groups of
        `plan` that no longer fit are in `dropped`.

    Raises:
        TableNotFoundError: There is no table at the path.
        TableReplacedError: `plan` is for another table.
        ConfigurationError: The level is unknown or does not support an option; rows cannot be clustered by a column;
            the executor cannot reach the table; or `plan` is not alone.
        PredicateError: `where` is not valid, or names other than partition columns.
        CompactionVerificationError: Written files do not hold the rows of a group. Other groups were committed.
        CorruptLogError, DataFileDamagedError: A file cannot be read, likewise; also with errors of other libraries.
        ConflictError, RetryableError: Another commit changed the table's schema, properties or protocol; or without
            `tidelog.metadataRetry` the conflict policy refused all groups; or the store or a worker failed. Nothing was
            committed; if something had been, the report says why it `stopped`.
        TidelogError: Anything else. If something had been committed, it says so, and its field `report` what was done.

    Example:
        report = compact("/data/events", "major", where="day < '2026-01-31'", cluster_by=["id"])
        print(report.files_removed, "files became", report.files_added)
    """
    request = CompactionRequest(level, where, growth, cluster_by, purge, cluster_order)
    if plan is not None and (request != CompactionRequest() or budget is not None):
        raise ConfigurationError(
            "a plan already says what to do", advice="give no other argument with plan, except executor"
        )
    opened = Table.open(table) if isinstance(table, str) else table
    require_usable(opened.store, executor)
    if plan is not None:
        return apply_plan(opened, plan, Conduct(executor))
    history = read_history(opened.refresh())
    return compact_with(opened, request, Conduct(executor), budget=budget, history=history)


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
    predicted = total(group.predicted for group in checked.groups)
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
