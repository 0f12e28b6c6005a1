"""One compaction of a table: plan, rewrite, verify, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tidelog.compaction_daemon.planning.plan import Plan, PlannedGroup
from tidelog.compaction_daemon.planning.planner import CompactionRequest, column_names, plan_snapshot
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Committed, OperationClass, Table, Transaction
from tidelog.log.errors import CompactionGrowthError, ConfigurationError
from tidelog.log.internals import MemoryStore, MoveGroup, Store, logger, num_records, paths

_LOGGER = logger(__name__)

# The most that one MINOR compaction rewrites: it should be done before other commits take its files.
MAX_MINOR_BYTES = 512 * 2**20
# Users ask for a MAJOR compaction, so it can take long, but far less than the longest transaction. If another
# compaction commits first, the rebase may have to follow every row in memory: hence the bound on rows.
MAX_MAJOR_BYTES = 8 * 2**30
MAX_MAJOR_ROWS = 50_000_000


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What one compaction did.

    Args:
        version: The version that it committed; None if nothing was committed.
        groups: The groups that were committed.
        files_removed: The files that the commit removed from the table.
        files_added: The files that it added.
        bytes_read: The size of the input files of all groups that were rewritten, committed or not.
        bytes_written: The size of the files that were written, committed or not.
        wasted_bytes: The size of the files that were written for groups whose inputs another commit took first; these
            files are deleted again.
        rebased_over: The versions of other writers that the commit was rebased over.
        groups_left: The groups that were planned but exceeded the bounds of one compaction; run another one.
    """

    version: int | None
    groups: int
    files_removed: int
    files_added: int
    bytes_read: int
    bytes_written: int
    wasted_bytes: int
    rebased_over: tuple[int, ...]
    groups_left: int = 0

    @property
    def did_anything(self) -> bool:
        """Whether a version was committed."""
        return self.version is not None


# Groups by the files, with their deletion vectors, that they have as inputs.
GrowingGroups: TypeAlias = set[frozenset[tuple[str, str | None]]]

NOTHING = CompactionReport(None, 0, 0, 0, 0, 0, 0, ())


def stage(
    table: Table,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
) -> Transaction:
    """Rewrite files as `compact` does, and leave the commit to the caller.

    Readers see nothing of it until `commit()`; `abort()` deletes the written files.

    Args:
        table: The table, an opened one.
        level: As for `compact`, like the rest.
        where: SQL over partition columns; None for all partitions.
        growth: For `minor`, about how many times its largest file a group must be.
        cluster_by: For `major`, the columns to sort rows by.
        purge: For `major`, rewrite every file that has a dead row.

    Returns:
        The transaction. Its `commit()` writes no version if there was nothing to rewrite, and returns `Superseded` if
        other commits took the inputs of every group.

    Raises:
        ConfigurationError: The arguments do not fit.
        PredicateError: `where` is not valid.
        CompactionVerificationError: Written files do not hold the rows that were read.
    """
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge)
    transaction = table.begin()
    _rewrite(transaction, plan_snapshot(table.at(), request), None, set())
    return transaction


def compact(
    table: Table | str,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
    executor: Executor | None = None,
) -> CompactionReport:
    """Compact a table once: rewrite groups of files and replace them in one commit.

    No rows change: reads by time and change feeds do not see the commit. Other writers are not disturbed: their commits
    win, and a group whose inputs they removed is dropped. One call rewrites at least one group, and at most 512 MiB for
    `minor`, 8 GiB and about 50 million rows for `major`. A crash at any moment leaves the table as it was, and at most
    files that `vacuum` deletes.

    Args:
        table: A table, or its path.
        level: `minor` packs small files of one partition into one file each, in order. `major` also rewrites files with
            many dead rows, and sorts rows.
        where: SQL over partition columns that chooses partitions; None for all of them.
        growth: For `minor`, about how many times its largest file a group must be. 1.0 packs all that it can;
            the daemon uses 2.0, which waits until a rewrite pays.
        cluster_by: For `major`, the columns to sort rows by. Each group is then held in memory.
        purge: For `major`, rewrite every file that has a dead row, not only those with many.
        executor: A `concurrent.futures` executor that rewrites groups in parallel. By default they are rewritten in
            this thread, one after the other.

    Returns:
        What was done. Its `version` is None if there was nothing to do, or if other commits took every group.

    Raises:
        TableNotFoundError: There is no table at the path.
        ConfigurationError: The level is unknown or does not support an option; a sort column cannot be sorted; or the
            executor cannot reach the table.
        PredicateError: `where` is not valid, or names other than partition columns.
        CompactionVerificationError: Written files do not hold the rows that were read. Nothing was committed.
        ConflictError: Another commit changed the table's schema, properties or protocol.

    Example:
        report = compact("/data/events", "major", where="day < '2026-01-31'", cluster_by=["id"])
        print(report.files_removed, "files became", report.files_added)
    """
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge)
    opened = Table.open(table) if isinstance(table, str) else table
    _require_usable(opened.store, executor)
    return compact_once(opened, request, executor)


def compact_once(
    table: Table, request: CompactionRequest, executor: Executor | None = None, growing: GrowingGroups | None = None
) -> CompactionReport:
    """Do what `compact` does.

    `growing` are groups that are known to take more space when they are rewritten. They are left out, and groups that
    turn out to be such are added. Raises CompactionGrowthError if no other group is left.
    """
    growing = set() if growing is None else growing
    transaction = table.begin()
    planned = plan_snapshot(table.at(), request)
    planned = replace(planned, groups=tuple(group for group in planned.groups if _inputs(group) not in growing))
    if not planned.groups:
        transaction.abort()
        return NOTHING
    groups = _rewrite(transaction, planned, executor, growing)
    outcome = transaction.commit()
    dropped = {id(group) for group in transaction.dropped}
    kept = [group for group in groups if id(group) not in dropped]
    committed = isinstance(outcome, Committed)
    return CompactionReport(
        version=outcome.version if isinstance(outcome, Committed) else None,
        groups=len(kept) if committed else 0,
        files_removed=outcome.metrics["numRemovedFiles"] if isinstance(outcome, Committed) else 0,
        files_added=outcome.metrics["numAddedFiles"] if isinstance(outcome, Committed) else 0,
        bytes_read=sum(remove.size or 0 for group in groups for remove in group.inputs),
        bytes_written=_output_bytes(groups),
        wasted_bytes=_output_bytes(transaction.dropped),
        rebased_over=outcome.rebased_over if isinstance(outcome, Committed) else (),
        groups_left=len(planned.groups) - len(groups),
    )


def _rewrite(
    transaction: Transaction, planned: Plan, executor: Executor | None, growing: GrowingGroups
) -> list[MoveGroup]:
    """Rewrite and stage the first groups of a plan, up to the bounds of one compaction.

    The plan must be for the transaction's base version.
    """
    level = OperationClass(planned.level.upper())
    work = partial(rewrite, transaction.writer, transaction.schema, now_ms=transaction.writer.system.now_ms())
    groups = _run(work, _within_budget(planned.groups, level), executor, transaction.writer.store, growing)
    transaction.stage_moves(groups, operation_class=level)
    return groups


def _run(
    work: Callable[[PlannedGroup], MoveGroup],
    chosen: Sequence[PlannedGroup],
    executor: Executor | None,
    store: Store,
    growing: GrowingGroups,
) -> list[MoveGroup]:
    """Rewrite the groups. If one fails, the outputs of the rest are deleted, since nothing will commit them."""
    futures: list[Future[MoveGroup]] = []
    try:
        for group in chosen:
            if executor is None:
                futures.append(_done(work, group))
            else:
                futures.append(executor.submit(work, group))
        return _without_growing(chosen, futures, growing)
    except BaseException:
        running = [future for future in futures if not future.cancel()]
        wait(running)
        _delete_outputs(store, [future.result() for future in running if future.exception() is None])
        raise


def _without_growing(
    chosen: Sequence[PlannedGroup], futures: Sequence[Future[MoveGroup]], growing: GrowingGroups
) -> list[MoveGroup]:
    """The rewritten groups. One that would grow stays as it is, and the rest is committed without it.

    Raises CompactionGrowthError if there is no rest.
    """
    groups, refused = [], None
    for planned, future in zip(chosen, futures, strict=True):
        try:
            groups.append(future.result())
        except CompactionGrowthError as error:
            refused = error
            growing.add(_inputs(planned))
            _LOGGER.warning("%s", error)
    if refused is not None and not groups:
        raise refused
    return groups


def _inputs(group: PlannedGroup) -> frozenset[tuple[str, str | None]]:
    return frozenset(add.key for add in group.inputs)


def _done(work: Callable[[PlannedGroup], MoveGroup], group: PlannedGroup) -> Future[MoveGroup]:
    """The result of work that is done at once."""
    future: Future[MoveGroup] = Future()
    try:
        future.set_result(work(group))
    except CompactionGrowthError as error:
        future.set_exception(error)
    return future


def _within_budget(groups: Sequence[PlannedGroup], level: OperationClass) -> list[PlannedGroup]:
    """The first groups, up to the bounds of one compaction; at least one."""
    budget = MAX_MINOR_BYTES if level is OperationClass.MINOR else MAX_MAJOR_BYTES
    chosen: list[PlannedGroup] = []
    rows = 0
    for group in groups:
        if chosen and (group.bytes_to_read > budget or rows > MAX_MAJOR_ROWS):
            break
        budget -= group.bytes_to_read
        rows += sum(num_records(add.stats) or 0 for add in group.inputs)
        chosen.append(group)
    return chosen


def _require_usable(store: Store, executor: Executor | None) -> None:
    """Raise ConfigurationError if `executor` is not an executor, or if its processes cannot reach the table's files."""
    if executor is not None and not isinstance(executor, Executor):
        raise ConfigurationError(
            f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}",
            advice="pass a ThreadPoolExecutor or a ProcessPoolExecutor, or leave executor out",
        )
    if isinstance(executor, ProcessPoolExecutor) and isinstance(store, MemoryStore):
        raise ConfigurationError(
            f"the table at {store.url} is in this process's memory, which other processes cannot reach",
            advice="use a ThreadPoolExecutor, or leave executor out",
        )


def _output_bytes(groups: Iterable[MoveGroup]) -> int:
    return sum(add.size for group in groups for add in group.outputs)


def _delete_outputs(store: Store, groups: Iterable[MoveGroup]) -> None:
    """Delete the files of groups that are certainly not committed."""
    for group in groups:
        for add in group.outputs:
            store.delete(paths.to_storage_path(add.path))
