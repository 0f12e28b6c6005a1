"""Rules 6 and 7: what a winner changed beside rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConcurrentTransactionException,
    FencedError,
    MetadataChangedException,
    ProtocolChangedException,
    TidelogError,
)
from tidelog.log.format import properties, protocol
from tidelog.log.format.actions import Commit, Metadata, Protocol

# Properties that change nothing about what a commit may contain.
_HARMLESS_PROPERTIES = frozenset(
    {
        properties.CHECKPOINT_INTERVAL,
        properties.LOG_RETENTION,
        properties.DELETED_FILE_RETENTION,
        properties.ENABLE_EXPIRED_LOG_CLEANUP,
        properties.TARGET_FILE_SIZE,
        properties.MINOR_SPAN,
        properties.MAX_TRANSACTION_TIME,
        properties.CONFLICT_POLICY,
        properties.METADATA_RETRY,
        # Which numbers fields have is for the fields to say.
        "delta.columnMapping.maxColumnId",
    }
)


def named_version_taken(staged: Staged) -> tuple[type[TidelogError], str] | None:
    """What names its own version and time in the metadata cannot have another."""
    if staged.timestamp_ms is None:
        return None
    return MetadataChangedException, "it took the version that this transaction names in the metadata"


def protocol_and_metadata_after(
    old_protocol: Protocol, old_metadata: Metadata, winner: Commit
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata after the winner."""
    for action in winner.others:
        if isinstance(action, Protocol):
            old_protocol = action
        elif isinstance(action, Metadata):
            old_metadata = action
    return old_protocol, old_metadata


def metadata_conflict(
    staged: Staged, old_protocol: Protocol, old_metadata: Metadata, winner: Commit
) -> tuple[type[TidelogError], str] | None:
    """Rule 6: new nullable columns and harmless properties conflict with another change of the metadata only.

    The old ones are those before the winner.
    """
    for action in winner.others:
        if isinstance(action, Protocol) and not protocol.same(action, old_protocol):
            return ProtocolChangedException, "the protocol changed"
        if isinstance(action, Metadata) and not protocol.same(action, old_metadata):
            what = _incompatible(old_metadata, action)
            if staged.metadata is not None or staged.restores is not None or what:
                return MetadataChangedException, what or "both change the metadata"
    return None


def application_conflict(staged: Staged, winner: Commit) -> tuple[type[TidelogError], str] | None:
    """Rule 7: a winner that notes the progress of the same stream means that two copies of it run.

    A fence is lost only to a higher epoch: the same one is this process itself.
    """
    mine = {transaction.app_id for transaction in staged.transactions} | staged.read_applications
    for transaction in winner.transactions:
        if staged.fence is not None and transaction.app_id == staged.fence.app_id:
            if transaction.version > staged.fence.version:
                return FencedError, f"epoch {transaction.version} of {transaction.app_id} began"
        elif transaction.app_id in mine:
            evidence = f"it wrote version {transaction.version} of the application {transaction.app_id}"
            return ConcurrentTransactionException, evidence
    return None


def _incompatible(old: Metadata, new: Metadata) -> str | None:
    """What about the new metadata could make a commit that was staged under the old one wrong; None if nothing."""
    if old.id != new.id:
        return "it is another table now"
    if old.partition_columns != new.partition_columns:
        return "the partitioning changed"
    if not _only_adds_nullable_columns(old.schema_string, new.schema_string):
        return "the schema changed by more than new nullable columns"
    keys = {*old.configuration, *new.configuration}
    changed = sorted(key for key in keys if old.configuration.get(key) != new.configuration.get(key))
    harmful = [key for key in changed if key not in _HARMLESS_PROPERTIES and key.startswith(("delta.", "tidelog."))]
    return f"the properties {', '.join(harmful)} changed" if harmful else None


def _only_adds_nullable_columns(old: str, new: str) -> bool:
    if old == new:
        return True
    before = msgspec.json.decode(old)["fields"]
    after = msgspec.json.decode(new)["fields"]
    fresh = after[len(before) :]
    return after[: len(before)] == before and all(
        field.get("nullable") and _tells_nothing_of_values(field.get("metadata") or {}) for field in fresh
    )


def _tells_nothing_of_values(metadata: Mapping[str, Any]) -> bool:
    """Whether a field's metadata leaves alone what files without the column hold: no default, nothing generated."""
    return all(key == "comment" or key.startswith("delta.columnMapping.") for key in metadata)
