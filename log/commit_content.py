"""What goes with a commit's actions: its commitInfo before them, and the version checksum (`.crc`) after the commit."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from typing import Any

from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import TidelogError
from tidelog.log.format import commit_info, filenames
from tidelog.log.format.actions import CommitInfo
from tidelog.log.format.protocol import has_in_commit_timestamps
from tidelog.log.state import checksum
from tidelog.log.state.head import Head
from tidelog.log.storage import Store

_LOGGER = logging.getLogger(__name__)

try:
    ENGINE = f"tidelog/{package_version('tidelog')}"
except PackageNotFoundError:  # run from a source tree that was never installed
    ENGINE = "tidelog/0"


def commit_info_of(staged: Staged, head: Head, txn_id: str, now_ms: int, record: dict[str, Any]) -> CommitInfo:
    """The commitInfo of a commit on `head`; `record` is what tidelog says of it under its own key."""
    protocol = staged.protocol or head.protocol
    metadata = staged.metadata or head.metadata
    stamp = max(now_ms, head.timestamp_ms + 1) if staged.timestamp_ms is None else staged.timestamp_ms
    info: CommitInfo = {"timestamp": stamp}
    if has_in_commit_timestamps(protocol, metadata):
        info = {"inCommitTimestamp": stamp, **info}
    return info | {
        "operation": staged.operation,
        "operationParameters": dict(staged.parameters),
        **({"readVersion": head.version} if head.version >= 0 else {}),
        "isolationLevel": "SnapshotIsolation" if staged.moves else "WriteSerializable",
        "isBlindAppend": staged.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in staged.metrics.items()},
        "engineInfo": ENGINE,
        "txnId": txn_id,
        "tidelog": record,
    }


def write_checksum(store: Store, head: Head, info: CommitInfo, txn_id: str) -> None:
    """Leave the checksum of the version that was just committed, where it can be told; never fails the commit."""
    stamp = commit_info.in_commit_timestamp_ms(info)
    content = checksum.to_bytes(head, txn_id=txn_id, in_commit_timestamp_ms=stamp)
    if content is None:
        return
    try:
        store.put_if_absent(filenames.checksum_path(head.version), content, durable=False)
    except FileExistsError:
        return
    except (TidelogError, OSError) as error:
        # The commit is durable already, and the checksum only saves readers work.
        _LOGGER.warning("version %d of %s has no checksum: %s", head.version, store.url, error)
