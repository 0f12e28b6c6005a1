"""One compaction of a table: plan, rewrite, verify, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from tidelog.compaction_daemon.planning.plan import Plan, PlannedGroup
from tidelog.compaction_daemon.planning.planner import CompactionRequest, column_names, plan_snapshot
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Committed, OperationClass, Table, Transaction
from tidelog.log.errors import ConfigurationError
from tidelog.log.internals import MemoryStore, MoveGroup, Store, num_records, paths

# How much one MINOR compaction rewrites at most, so that what it worked on is seldom taken by others meanwhile.
MAX_MINOR_BYTES = 512 * 2**20
# A MAJOR one was asked for, with a scope: it may take long, but far less than the longest transaction. All of it may
# have to be told row by row at the commit, in memory, where another compaction came between.
MAX_MAJOR_BYTES = 8 * 2**30
MAX_MAJOR_ROWS = 50_000_000


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction came to. `version` is None where nothing was committed.

    `wasted_bytes` were written for groups that another commit took first; their files are deleted again. `groups_left`
    were planned and are left for another compaction, as one does a bounded number of bytes.
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
    """Rewrite what the plan says and return the transaction, not yet committed; arguments and bounds as `compact`."""
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge)
    transaction = table.begin()
    _rewrite(transaction, plan_snapshot(table.at(), request), None)
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
    """Compact `table` once, in one commit that no read by time shows.

    One call rewrites at most MAX_MINOR_BYTES, or MAX_MAJOR_BYTES for the level `major`, and always one group. Other
    writers are not disturbed: their commits win, and a group whose files they took is dropped. The arguments are those
    of `plan`. A group that is clustered is held in memory. `executor`, one of `concurrent.futures`, rewrites groups
    side by side; without it they are rewritten in this thread, one after the other.

    Raises ConfigurationError for arguments that do not fit, PredicateError for `where`, CompactionVerificationError if
    a rewrite does not hold the rows that it read, and what a commit raises.
    """
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge)
    opened = Table.open(table) if isinstance(table, str) else table
    _require_usable(opened.store, executor)
    transaction = opened.begin()
    planned = plan_snapshot(opened.at(), request)
    if not planned.groups:
        transaction.abort()
        return NOTHING
    groups = _rewrite(transaction, planned, executor)
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
        bytes_written=_written(groups),
        wasted_bytes=_written(transaction.dropped),
        rebased_over=outcome.rebased_over if isinstance(outcome, Committed) else (),
        groups_left=len(planned.groups) - len(groups),
    )


def _rewrite(transaction: Transaction, planned: Plan, executor: Executor | None) -> list[MoveGroup]:
    """Rewrite the planned groups, as many as the budget allows, and stage them; `planned` is of the base version."""
    level = OperationClass(planned.level.upper())
    work = partial(rewrite, transaction.writer, transaction.schema, now_ms=transaction.writer.system.now_ms())
    groups = _finished(work, _within_budget(planned.groups, level), executor, transaction.writer.store)
    transaction.stage_moves(groups, operation_class=level)
    return groups


def _finished(
    work: Callable[[PlannedGroup], MoveGroup], chosen: Sequence[PlannedGroup], executor: Executor | None, store: Store
) -> list[MoveGroup]:
    """The groups, rewritten. If one fails, the outputs of the others are deleted: nothing will commit them."""
    futures: list[Future[MoveGroup]] = []
    try:
        for group in chosen:
            if executor is None:
                futures.append(Future())
                futures[-1].set_result(work(group))
            else:
                futures.append(executor.submit(work, group))
        return [future.result() for future in futures]
    except BaseException:
        running = [future for future in futures if not future.cancel()]
        wait(running)
        _delete_outputs(store, [future.result() for future in running if future.exception() is None])
        raise


def _within_budget(groups: Sequence[PlannedGroup], level: OperationClass) -> list[PlannedGroup]:
    """The first groups that one compaction may rewrite; at least one."""
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
    """Raise ConfigurationError for what is no executor, and for one whose processes would not see the table's files."""
    if executor is not None and not isinstance(executor, Executor):
        raise ConfigurationError(
            f"executor must be a concurrent.futures.Executor, not {executor!r}",
            advice="give a ThreadPoolExecutor or a ProcessPoolExecutor, or leave executor out",
        )
    if isinstance(executor, ProcessPoolExecutor) and isinstance(store, MemoryStore):
        raise ConfigurationError(
            f"{store.url} is in this process's memory, which other processes cannot reach",
            advice="leave executor out, or use a ThreadPoolExecutor",
        )


def _written(groups: Iterable[MoveGroup]) -> int:
    return sum(add.size for group in groups for add in group.outputs)


def _delete_outputs(store: Store, groups: Iterable[MoveGroup]) -> None:
    """Delete the files of groups that are proven not to be committed."""
    for group in groups:
        for add in group.outputs:
            store.delete(paths.to_storage_path(add.path))
