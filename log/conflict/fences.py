"""Rule 7 for fences: a commit that carries an epoch is refused once the log has a higher one of the same application.

So a process that was replaced commits nothing more, whatever it knows: its successor has committed a higher epoch. An
equal epoch was written by the owner itself.
"""

from __future__ import annotations

from tidelog.log.errors import FencedError, LeaseLostError
from tidelog.log.format.actions import SetTransaction

# The application ids of the daemons' leases: one for each shard of a table.
LEASE_PREFIX = "tidelog.daemon/"


def is_passed(fence: SetTransaction, known: SetTransaction) -> bool:
    """Whether `known`, which is in the log, keeps a commit with `fence` out."""
    return known.app_id == fence.app_id and known.version > fence.version


def fence_error(fence: SetTransaction) -> type[FencedError]:
    """The error for a commit that a higher epoch keeps out."""
    return LeaseLostError if fence.app_id.startswith(LEASE_PREFIX) else FencedError


def epoch_text(fence: SetTransaction) -> str:
    """An epoch, for messages."""
    return f"epoch {fence.version} of {fence.app_id}"
