"""The commitInfo that stands before a commit's actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog import __version__
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConfigurationError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import Action, AddFile, CommitInfo, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.protocol import has_in_commit_timestamps
from tidelog.log.format.row_tracking import preserves_ids
from tidelog.log.state.head import Head

_PRESERVED = "delta.rowTracking.preserved"
ENGINE = f"tidelog/{__version__}"


def commit_info_of(
    staged: Staged, head: Head, txn_id: str, now_ms: int, record: dict[str, Any], metrics: Mapping[str, int]
) -> CommitInfo:
    """The commitInfo of a commit on `head`; `record` goes under the key `tidelog`.

    Raises ConfigurationError if the clock is outside the years 1970 to 9999.
    """
    protocol = staged.protocol or head.protocol
    metadata = staged.metadata or head.metadata
    stamp = max(now_ms, head.timestamp_ms + 1) if staged.timestamp_ms is None else staged.timestamp_ms
    if not 0 <= stamp <= commit_info.MAX_TIMESTAMP_MS:
        # Readers ignore such a time, so the versions' times would no longer increase.
        raise ConfigurationError(
            f"the time of the commit would be {stamp} ms after 1970, which is not in the years 1970 to 9999",
            advice="correct the clock; nothing was committed",
        )
    info: CommitInfo = {"timestamp": stamp}
    if has_in_commit_timestamps(protocol, metadata):
        info = {"inCommitTimestamp": stamp, **info}
    # An engine that reads row ids trusts them over this commit only if it says that it kept them.
    tags = {"tags": {_PRESERVED: "true"}} if preserves_ids(metadata) else {}
    return info | {
        "operation": staged.operation,
        "operationParameters": dict(staged.parameters),
        **({"readVersion": head.version} if head.version >= 0 else {}),
        "isolationLevel": "SnapshotIsolation" if staged.moves else "WriteSerializable",
        "isBlindAppend": staged.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "engineInfo": ENGINE,
        "txnId": txn_id,
        **tags,
        "tidelog": record,
    }


def metrics_of(staged: Staged, actions: Sequence[Action]) -> dict[str, int]:
    """The staged metrics, with the file counts taken from the actions: a rebase can have changed them."""
    removes = {canonical(action.path): action for action in actions if isinstance(action, RemoveFile)}
    adds = {canonical(action.path): action for action in actions if isinstance(action, AddFile)}
    removed = [remove for path, remove in removes.items() if path not in adds]
    added = [add for path, add in adds.items() if path not in removes]
    counted = {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": sum(remove.size or 0 for remove in removed),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(add.size for add in added),
        "numDeletionVectorsAdded": len(adds) - len(added),
    }
    return {name: counted.get(name, value) for name, value in staged.metrics.items()}
