"""What users call for one table: plan, stage and compact, expire and vacuum."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta

from tidelog.compaction_daemon.compaction.compaction import compact_opened, plan_newest, stage_newest
from tidelog.compaction_daemon.compaction.compaction_report import CompactionReport
from tidelog.compaction_daemon.planning.compaction_planner import NO_BUDGET
from tidelog.compaction_daemon.planning.plan import MAJOR, MINOR, Plan
from tidelog.compaction_daemon.planning.request import Budget, CompactionRequest
from tidelog.log import ExpiryReport, Table, Transaction, VacuumReport
from tidelog.log.errors import ConfigurationError


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
    return stage_newest(table, request)


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
    return compact_opened(_opened(table), request, executor, budget, plan)


def expire(
    table: Table | str, *, older_than: timedelta | datetime | None = None, dry_run: bool = False
) -> ExpiryReport:
    """Delete the commits, checkpoints and checksums that no version since the cut-off needs; see `Table.expire`.

    Args:
        table: A table, or its path.
        older_than: The cut-off, an age or an aware datetime. By default it is `delta.logRetentionDuration` ago, and
            nothing is deleted if both `tidelog.cleanUp` and `delta.enableExpiredLogCleanup` are off.
        dry_run: Report what would be deleted, and delete nothing.

    Returns:
        What was deleted; if nothing was, its `reason` says why.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: `older_than` is closer than `tidelog.maxTransactionTime`.
        StoreUnavailableError: A file could not be deleted, like PathNotWritableError. The next call continues.
    """
    return _opened(table).expire(older_than=older_than, dry_run=dry_run)


def vacuum(
    table: Table | str,
    *,
    older_than: timedelta | datetime | None = None,
    dry_run: bool = False,
    listing: bool = True,
) -> VacuumReport:
    """Delete the data files that no version since the cut-off needs; see `Table.vacuum`.

    Args:
        table: A table, or its path.
        older_than: The cut-off, an age or an aware datetime. By default it is `delta.deletedFileRetentionDuration` ago.
        dry_run: Report what would be deleted, and delete nothing.
        listing: Whether to list the folder of the table; without, the log alone says which files left the table.

    Returns:
        What was deleted, and in `failed` the files that could not be.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: `older_than` is closer than `tidelog.maxTransactionTime`.
    """
    return _opened(table).vacuum(older_than=older_than, dry_run=dry_run, listing=listing)


def _opened(table: Table | str) -> Table:
    return Table.open(table) if isinstance(table, str) else table
