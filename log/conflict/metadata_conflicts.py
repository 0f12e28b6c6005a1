"""Rules 6 and 7: winners that changed the schema, the protocol or the progress of a stream."""

from __future__ import annotations

import msgspec

from tidelog.log.conflict.fences import epoch_text, fence_error, is_passed
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
    TidelogError,
)
from tidelog.log.format import properties, protocol
from tidelog.log.format.actions import Commit, DomainMetadata, Metadata, Protocol
from tidelog.log.format.schema import sets_no_values

# Properties that do not affect what a commit can contain.
_HARMLESS_PROPERTIES = frozenset(
    {
        properties.CHECKPOINT_INTERVAL,
        properties.LOG_RETENTION,
        properties.DELETED_FILE_RETENTION,
        properties.ENABLE_EXPIRED_LOG_CLEANUP,
        properties.TARGET_FILE_SIZE,
        properties.MINOR_SPAN,
        properties.MAX_TRANSACTION_TIME,
        properties.CONSUMER_TIME_TO_LIVE,
        properties.CLEAN_UP,
        properties.CONFLICT_POLICY,
        properties.METADATA_RETRY,
        # The ids in use are compared with the fields of the schema.
        "delta.columnMapping.maxColumnId",
    }
)


def named_version_taken(staged: Staged) -> tuple[type[TidelogError], str] | None:
    """A conflict with any winner, if the staged metadata names the version and time of its own commit."""
    if staged.timestamp_ms is None:
        return None
    return MetadataChangedException, "the winner took the version that this transaction's metadata names as its own"


def protocol_and_metadata_after(
    old_protocol: Protocol, old_metadata: Metadata, winner: Commit
) -> tuple[Protocol, Metadata]:
    """The protocol and metadata after the winner."""
    for action in winner.others:
        if isinstance(action, Protocol):
            old_protocol = action
        elif isinstance(action, Metadata):
            old_metadata = action
    return old_protocol, old_metadata


def metadata_conflict(
    staged: Staged, old_protocol: Protocol, old_metadata: Metadata, winner: Commit
) -> tuple[type[TidelogError], str] | None:
    """Rule 6: new nullable columns and harmless properties conflict only with another metadata change.

    `old_protocol` and `old_metadata` are those before the winner.
    """
    domains = {domain.domain for domain in staged.domains}
    for action in winner.others:
        if isinstance(action, DomainMetadata) and action.domain in domains:
            return MetadataChangedException, f"both transactions change the domain {action.domain}"
        if isinstance(action, Protocol) and not protocol.same(action, old_protocol):
            return ProtocolChangedException, "the winner changed the protocol"
        if isinstance(action, Metadata) and not protocol.same(action, old_metadata):
            change = _incompatible_change(old_metadata, action)
            if staged.metadata is not None or staged.restores is not None or change:
                return MetadataChangedException, change or "both transactions change the metadata"
    return None


def application_conflict(staged: Staged, winner: Commit) -> tuple[type[TidelogError], str] | None:
    """Rule 7: if a winner recorded progress of the same stream, two copies of the stream are running.

    A fence loses only to a higher epoch.
    """
    mine = {transaction.app_id for transaction in staged.transactions} | staged.read_applications
    for transaction in winner.transactions:
        if staged.fence is not None and transaction.app_id == staged.fence.app_id:
            if is_passed(staged.fence, transaction):
                return fence_error(staged.fence), f"the winner began {epoch_text(transaction)}"
        elif transaction.app_id in mine:
            what = f"version {transaction.version} of the application id {transaction.app_id}"
            return ConcurrentTransactionException, f"the winner committed {what}, which this transaction uses too"
    return None


def _incompatible_change(old: Metadata, new: Metadata) -> str | None:
    """The change that could make a commit staged under the old metadata wrong; None if there is none."""
    if old.id != new.id:
        return "the table was replaced by another one"
    if old.partition_columns != new.partition_columns:
        return "the winner changed the partition columns"
    if not _only_adds_nullable_columns(old.schema_string, new.schema_string):
        return "the winner changed the schema by more than new nullable columns"
    keys = {*old.configuration, *new.configuration}
    changed = sorted(key for key in keys if old.configuration.get(key) != new.configuration.get(key))
    harmful = [key for key in changed if key not in _HARMLESS_PROPERTIES and key.startswith(("delta.", "tidelog."))]
    noun = "property" if len(harmful) == 1 else "properties"
    return f"the winner changed the {noun} {', '.join(harmful)}" if harmful else None


def _only_adds_nullable_columns(old: str, new: str) -> bool:
    if old == new:
        return True
    before = msgspec.json.decode(old)["fields"]
    after = msgspec.json.decode(new)["fields"]
    fresh = after[len(before) :]
    return after[: len(before)] == before and all(
        field.get("nullable") and sets_no_values(field.get("metadata") or {}) for field in fresh
    )
