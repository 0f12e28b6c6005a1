"""Commits without rows that write the epoch of a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log import Committed, Table
from tidelog.log.commit.result import committed
from tidelog.log.statements import run_statement

if TYPE_CHECKING:
    from tidelog.compaction_daemon.leases.lease import Lease


def begin_epoch(table: Table, lease: Lease) -> Committed:
    """Commit the epoch of a lease that was taken over. After it no older epoch is ever committed.

    Raises LeaseLostError if a higher epoch has begun, and the errors of any commit.
    """
    return _commit(table, lease, "TAKE OVER")


def heartbeat_commit(table: Table, lease: Lease) -> Committed:
    """Commit a version without rows, so that `complete_until` of the table's change feed moves on to now.

    It changes no rows and has no time version. Call it on a quiet table only: each commit is a file in the log, and
    readers of the feed are woken up by it.

    Raises LeaseLostError if the lease is lost, and the errors of any commit.
    """
    return _commit(table, lease, "HEARTBEAT")


def _commit(table: Table, lease: Lease, operation: str) -> Committed:
    owner = {"lease": {"shard": lease.shard, "epoch": lease.epoch, "owner": lease.owner}}

    def attempt() -> Committed:
        staged = table.begin().stage_fence(lease.fence, operation=operation)
        return committed(staged.note(parameters={"epoch": str(lease.epoch)}, record=owner).commit())

    return run_statement(attempt, table.path)
