"""One compaction of a table: plan, rewrite, verify, commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.compaction_daemon.planner import Plan, plan_snapshot
from tidelog.compaction_daemon.rewrite import rewrite
from tidelog.log import Committed, OperationClass, Table, Transaction
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.errors import CommitContentionError, ConflictError
from tidelog.log.format import paths
from tidelog.log.storage import Store
from tidelog.log.system import REAL

# How much one compaction rewrites at most, so that it holds neither memory nor the winner's luck for long.
MAX_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction came to. `version` is None where nothing was committed.

    `wasted_bytes` were written for groups that another commit took first; their files are deleted again.
    """

    version: int | None
    groups: int
    files_removed: int
    files_added: int
    bytes_read: int
    bytes_written: int
    wasted_bytes: int
    rebased_over: tuple[int, ...]

    @property
    def did_anything(self) -> bool:
        """Whether a version was committed."""
        return self.version is not None


NOTHING = CompactionReport(None, 0, 0, 0, 0, 0, 0, ())


def stage(table: Table, level: str = "minor", *, growth: float = 1.0) -> Transaction:
    """Rewrite what the plan says (at most MAX_BYTES of it) and return the transaction, not yet committed."""
    transaction = table.begin()
    _rewrite(transaction, plan_snapshot(table.at(), level, growth=growth))
    return transaction


def compact(table: Table | str, level: str = "minor", *, growth: float = 1.0) -> CompactionReport:
    """Compact `table` once: at most MAX_BYTES, in one commit that no time-versioned read shows.

    Other writers are not disturbed: their commits win, and a group whose files they took is dropped. `growth` as in
    `plan`. Raises CompactionVerificationError where a rewrite does not hold the rows it read, and what a commit raises.
    """
    opened = Table.open(table) if isinstance(table, str) else table
    transaction = opened.begin()
    planned = plan_snapshot(opened.at(), level, growth=growth)
    if not planned.groups:
        transaction.abort()
        return NOTHING
    groups = _rewrite(transaction, planned)
    try:
        outcome = transaction.commit()
    except (ConflictError, CommitContentionError):
        # Refused, or never first: no commit names the outputs.
        _delete_outputs(opened.store, groups)
        raise
    _delete_outputs(opened.store, transaction.dropped)
    kept = [group for group in groups if group not in transaction.dropped]
    committed = isinstance(outcome, Committed)
    return CompactionReport(
        version=outcome.version if isinstance(outcome, Committed) else None,
        groups=len(kept) if committed else 0,
        files_removed=sum(len(group.inputs) for group in kept),
        files_added=sum(len(group.outputs) for group in kept),
        bytes_read=sum(remove.size or 0 for group in groups for remove in group.inputs),
        bytes_written=_written(groups),
        wasted_bytes=_written(transaction.dropped),
        rebased_over=outcome.rebased_over if isinstance(outcome, Committed) else (),
    )


def _rewrite(transaction: Transaction, planned: Plan) -> list[MoveGroup]:
    """Rewrite the planned groups, as many as the budget allows, and stage them; `planned` is of the base version."""
    groups: list[MoveGroup] = []
    budget = MAX_BYTES
    for planned_group in planned.groups:
        if groups and planned_group.size_bytes > budget:
            break
        budget -= planned_group.size_bytes
        try:
            groups.append(rewrite(transaction.writer, transaction.schema, planned_group, REAL.now_ms()))
        except BaseException:
            # Nothing was committed, so the groups that were finished would be garbage that each retry adds to.
            _delete_outputs(transaction.writer.store, groups)
            raise
    transaction.stage_moves(groups, operation_class=OperationClass.MINOR)
    return groups


def _written(groups: Iterable[MoveGroup]) -> int:
    return sum(add.size for group in groups for add in group.outputs)


def _delete_outputs(store: Store, groups: Iterable[MoveGroup]) -> None:
    """Delete the files of groups that are proven not to be committed."""
    for group in groups:
        for add in group.outputs:
            store.delete(paths.to_storage_path(add.path))
