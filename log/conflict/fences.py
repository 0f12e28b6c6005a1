"""Rules 7 and 8: entries of applications in the log that keep commits out.

Fences. A commit that carries an epoch is refused if the log has a higher epoch of the same application. A process that
takes over commits a higher epoch first, so the one before it commits nothing more, even if it does not know that it was
replaced. An equal epoch is the owner's own.

The horizon. It is the version H before which files may be gone. A vacuum commits the application id `tidelog/horizon`
with the version H, and only then decides what to delete: files that no version from H on names, and that are older than
the commit file of H. From that commit on

- a transaction commits only if its base version is at least H. It began after the commit file of H existed, so no file
  that it wrote is older;
- a RESTORE brings back only files that were removed after version H.

H is a version, so no clock is compared with another. It never decreases.

The floor. In the same way a clean-up of the log commits `tidelog/floor`: commits of versions below it may be gone. Only
consumers of the change feed look at it; a transaction whose base version is gone is refused anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.log.errors import FencedError, LeaseLostError, TransactionExpiredError
from tidelog.log.format.actions import Commit, SetTransaction

# The application ids of the daemons' leases: one for each shard of a table.
LEASE_PREFIX = "tidelog.daemon/"
HORIZON = "tidelog/horizon"
FLOOR = "tidelog/floor"
# The version that a purge has looked at; see `tidelog.compaction_daemon.compaction.purge`. Only a later purge reads it.
PURGED = "tidelog/purged"


def is_passed(fence: SetTransaction, known: SetTransaction) -> bool:
    """Whether `known`, which is in the log, keeps a commit with `fence` out."""
    return known.app_id == fence.app_id and known.version > fence.version


def fence_error(fence: SetTransaction) -> type[FencedError]:
    """The error for a commit that a higher epoch keeps out."""
    return LeaseLostError if fence.app_id.startswith(LEASE_PREFIX) else FencedError


def epoch_text(fence: SetTransaction) -> str:
    """An epoch, for messages."""
    return f"epoch {fence.version} of {fence.app_id}"


def horizon_of(transactions: Mapping[str, SetTransaction]) -> int:
    """The horizon, from the newest entry of each application; 0 in a table that was never cleaned up."""
    found = transactions.get(HORIZON)
    return 0 if found is None else found.version


def floor_of(transactions: Mapping[str, SetTransaction]) -> int:
    """The floor; 0 in a table whose log was never cleaned up."""
    found = transactions.get(FLOOR)
    return 0 if found is None else found.version


def horizon_conflict(base_version: int, winner: Commit) -> tuple[type[TransactionExpiredError], str] | None:
    """Rule 8: the winner is a vacuum whose horizon lies after the version that the transaction is based on."""
    for transaction in winner.transactions:
        if transaction.app_id == HORIZON and transaction.version > base_version:
            what = f"the winner, a vacuum, may have deleted files from before version {transaction.version}"
            return TransactionExpiredError, f"{what}, also those that this transaction wrote"
    return None
