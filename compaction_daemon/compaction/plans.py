"""Make plans for a table: read its newest version and its recent commits, and plan."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.compaction_daemon.compaction.history_reader import read_history
from tidelog.compaction_daemon.planning.plan import Plan
from tidelog.compaction_daemon.planning.planner import NO_BUDGET, plan_snapshot
from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest, column_names
from tidelog.log import Table


def plan(
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

    The same version and arguments always give the same groups. Predictions follow the table's recent commits, and at
    the level `auto` also the time since the last one.

    Args:
        table: The table; it is refreshed.
        level: `minor` packs small files. `major` also rewrites files with many dead rows and clusters rows. `auto` is
            what a daemon would do next: `minor` in partitions that are being written, `major` in quiet ones.
        where: SQL over partition columns that chooses partitions; None for all of them.
        growth: For `minor` and `auto`, about how many times its largest file a group must be. 1.0 packs all that it
            can; the daemon uses 2.0, which waits until a rewrite pays.
        cluster_by: For `major`, the columns to cluster rows by; by default those of `tidelog.clusterBy`.
        purge: For `major`, rewrite every file that has a dead row, not only those with many.
        cluster_order: For `major`, `hilbert` or `sort`; by default that of `tidelog.clusterOrder`.
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
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge, cluster_order)
    return plan_newest(table, request, budget or NO_BUDGET)


def plan_newest(table: Table, request: CompactionRequest, budget: Budget) -> Plan:
    """What `plan` does."""
    snapshot = table.refresh().at()
    now_ms = table.timeline.system.now_ms()
    return plan_snapshot(snapshot, request, history=read_history(table), now_ms=now_ms, budget=budget, explain=True)
