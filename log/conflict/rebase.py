"""The rebase: a staged transaction, seen again after others committed.

It is allowed only where running the operation from the start on the new version would leave the same rows. No data
file is read or written for it ("metadata-level retry").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from tidelog.log.conflict.classes import OperationClass, classify
from tidelog.log.conflict.staged import MoveGroup, Staged, move_metrics
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentTransactionException,
    ConflictError,
    MetadataChangedException,
    ProtocolChangedException,
)
from tidelog.log.format import properties, protocol
from tidelog.log.format.actions import AddFile, Commit, Metadata, Protocol, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.schema import columns_of
from tidelog.log.pruning import may_match

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
    }
)


@dataclass(frozen=True, slots=True)
class Rebased:
    """The transaction may be committed at the head as `staged`; `dropped` groups lost to the winners."""

    staged: Staged
    dropped: tuple[MoveGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """A compaction whose every group lost its inputs to `by`: there is nothing left to do."""

    by: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The transaction is lost; `error` is the exception's class, the rest its evidence."""

    error: type[ConflictError]
    winning_version: int
    earlier: OperationClass
    later: OperationClass
    evidence: str


Outcome: TypeAlias = Rebased | NothingLeft | Conflict


def rebase(staged: Staged, base_protocol: Protocol, base_metadata: Metadata, winners: Sequence[Commit]) -> Outcome:
    """Fold the winners in, oldest first, and judge `staged` at the newest of them.

    `base_protocol` and `base_metadata` are those of the version that `staged` was made on.
    """
    groups = staged.moves
    dropped: list[MoveGroup] = []
    newest_taker = winners[-1].version if winners else 0
    for winner in winners:
        conflict = (
            _took_the_version(staged, winner)
            or _changed_rules(staged, base_protocol, base_metadata, winner)
            or _same_stream(staged, winner)
            or _same_rows(staged, base_metadata, winner)
        )
        if conflict:
            return conflict
        taken = {action.key for action in winner.actions if isinstance(action, (AddFile, RemoveFile))}
        lost = [group for group in groups if any(remove.key in taken for remove in group.inputs)]
        if lost:
            newest_taker = winner.version
            dropped.extend(lost)
            groups = tuple(group for group in groups if group not in lost)
    if staged.moves and not groups:
        return NothingLeft(newest_taker)
    if dropped:
        staged = replace(staged, moves=groups, metrics=move_metrics(groups))
    return Rebased(staged, tuple(dropped))


def _took_the_version(staged: Staged, winner: Commit) -> Conflict | None:
    if staged.timestamp_ms is None:
        return None
    return _conflict(ConflictError, staged, winner, "it took the version that this transaction names in the metadata")


def _changed_rules(staged: Staged, base_protocol: Protocol, base_metadata: Metadata, winner: Commit) -> Conflict | None:
    for action in winner.actions:
        if isinstance(action, Protocol) and not protocol.same(action, base_protocol):
            return _conflict(ProtocolChangedException, staged, winner, "the protocol changed")
        if isinstance(action, Metadata) and not protocol.same(action, base_metadata):
            what = _incompatible(base_metadata, action)
            if staged.metadata is not None or staged.restores is not None or what:
                return _conflict(MetadataChangedException, staged, winner, what or "both change the metadata")
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
        field.get("nullable") and not field.get("metadata") for field in fresh
    )


def _same_stream(staged: Staged, winner: Commit) -> Conflict | None:
    mine = {transaction.app_id for transaction in staged.transactions} | staged.read_applications
    for transaction in winner.transactions:
        if transaction.app_id in mine:
            evidence = f"it wrote version {transaction.version} of the application {transaction.app_id}"
            return _conflict(ConcurrentTransactionException, staged, winner, evidence)
    return None


def _same_rows(staged: Staged, base_metadata: Metadata, winner: Commit) -> Conflict | None:
    """Whether the winner touched a file whose rows are deleted here, or added rows that the predicate may match."""
    mine = {canonical(delete.file.path) for delete in staged.deletes}
    for path in (*(remove.path for remove in winner.removes), *(add.path for add in winner.adds)):
        if canonical(path) in mine:
            evidence = f"it changed or moved rows of the file {path}, which this transaction changes"
            return _conflict(ConcurrentDeleteDeleteException, staged, winner, evidence)
    added = [add for add in winner.adds if add.data_change]
    if staged.reads is None or not added:
        return None
    matches = may_match(added, staged.reads.predicate, columns_of(base_metadata, ""), base_metadata)
    if not any(matches):
        return None
    evidence = f"it added rows in the file {added[matches.index(True)].path}, which the predicate may match"
    return _conflict(ConcurrentAppendException, staged, winner, evidence)


def _conflict(error: type[ConflictError], staged: Staged, winner: Commit, evidence: str) -> Conflict:
    return Conflict(error, winner.version, classify(winner), staged.operation_class, evidence)
