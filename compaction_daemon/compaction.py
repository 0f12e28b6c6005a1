"""One compaction of a table: plan, rewrite, verify, commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.compaction_daemon.planning.plan import Plan
from tidelog.compaction_daemon.planning.planner import CompactionRequest, column_names, plan_snapshot
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Committed, OperationClass, Table, Transaction
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import paths
from tidelog.log.storage import Store
from tidelog.log.system import REAL

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
    _rewrite(transaction, plan_snapshot(table.at(), request))
    return transaction


def compact(
    table: Table | str,
    level: str = "minor",
    *,
    where: str | None = None,
    growth: float = 1.0,
    cluster_by: Sequence[str] = (),
    purge: bool = False,
    executor: None = None,
) -> CompactionReport:
    """Compact `table` once, in one commit that no time-versioned read shows: at most MAX_BYTES, MAX_MAJOR_BYTES for
    the level `major`, and always one group.

    Other writers are not disturbed: their commits win, and a group whose files they took is dropped. The arguments are
    those of `plan`; to cluster, a group's rows are held in memory. Raises ConfigurationError for arguments that do not
    fit, PredicateError for `where`, CompactionVerificationError where a rewrite does not hold the rows it read, and
    what a commit raises.
    """
    if executor is not None:
        raise ConfigurationError(
            f"a compaction cannot run on {executor!r}",
            advice="leave executor out: the groups are rewritten in this process",
        )
    request = CompactionRequest(level, where, growth, column_names(cluster_by), purge)
    opened = Table.open(table) if isinstance(table, str) else table
    transaction = opened.begin()
    planned = plan_snapshot(opened.at(), request)
    if not planned.groups:
        transaction.abort()
        return NOTHING
    groups = _rewrite(transaction, planned)
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


def _rewrite(transaction: Transaction, planned: Plan) -> list[MoveGroup]:
    """Rewrite the planned groups, as many as the budget allows, and stage them; `planned` is of the base version."""
    groups: list[MoveGroup] = []
    level = OperationClass(planned.level.upper())
    budget = MAX_MINOR_BYTES if level is OperationClass.MINOR else MAX_MAJOR_BYTES
    for planned_group in planned.groups:
        rows = sum(output.rows for group in groups for output in group.lineage.outputs)
        if groups and (planned_group.bytes_to_read > budget or rows > MAX_MAJOR_ROWS):
            break
        budget -= planned_group.bytes_to_read
        try:
            groups.append(rewrite(transaction.writer, transaction.schema, planned_group, REAL.now_ms()))
        except BaseException:
            # Nothing was committed, so the groups that were finished would be garbage that each retry adds to.
            _delete_outputs(transaction.writer.store, groups)
            raise
    transaction.stage_moves(groups, operation_class=level)
    return groups


def _written(groups: Iterable[MoveGroup]) -> int:
    return sum(add.size for group in groups for add in group.outputs)


def _delete_outputs(store: Store, groups: Iterable[MoveGroup]) -> None:
    """Delete the files of groups that are proven not to be committed."""
    for group in groups:
        for add in group.outputs:
            store.delete(paths.to_storage_path(add.path))
