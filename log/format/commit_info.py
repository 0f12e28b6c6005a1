"""Typed access to the known keys of `commitInfo`.

The protocol leaves commitInfo free-form, so a key with a value of an unexpected type counts as absent. tidelog's own
data is under the single key `tidelog`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tidelog.log.format.actions import CommitInfo

# The last millisecond of the year 9999.
MAX_TIMESTAMP_MS = 253_402_300_799_999

# The key of an UPSERT's key columns, in what tidelog records.
UPSERT_KEYS = "keys"

_T = TypeVar("_T", int, str, dict[str, Any])


def in_commit_timestamp_ms(info: CommitInfo) -> int | None:
    """The in-commit timestamp in ms since the epoch; None if it is absent or out of range."""
    stamp = _typed(info, "inCommitTimestamp", int)
    return stamp if stamp is None or 0 <= stamp <= MAX_TIMESTAMP_MS else None


def written_timestamp_ms(info: CommitInfo) -> int | None:
    """The writer's wall-clock time in ms since the epoch; neither unique nor monotonic."""
    return _typed(info, "timestamp", int)


def txn_id(info: CommitInfo) -> str | None:
    """The unique id of the transaction that wrote this commit."""
    return _typed(info, "txnId", str)


def operation_name(info: CommitInfo) -> str:
    """The operation's name as the writer gave it; empty if absent."""
    return _typed(info, "operation", str) or ""


def operation_parameters(info: CommitInfo) -> dict[str, str]:
    """The operation's parameters, with every value as text."""
    raw = _typed(info, "operationParameters", dict) or {}
    return {str(key): str(value) for key, value in raw.items()}


def user_metadata(info: CommitInfo) -> str | None:
    """The text that a user attached to the commit."""
    return _typed(info, "userMetadata", str)


def metrics(info: CommitInfo) -> dict[str, str]:
    """The operation's metrics, with every value as text."""
    raw = _typed(info, "operationMetrics", dict) or {}
    return {str(key): str(value) for key, value in raw.items()}


def tidelog(info: CommitInfo) -> dict[str, Any]:
    """What tidelog recorded about the commit: operation class, lineage, batch."""
    return _typed(info, "tidelog", dict) or {}


def upsert_keys(info: CommitInfo) -> tuple[str, ...]:
    """The key columns of an UPSERT, as tidelog recorded them; empty for other operations."""
    found = tidelog(info).get(UPSERT_KEYS)
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def _typed(info: CommitInfo, key: str, kind: type[_T]) -> _T | None:
    value = info.get(key)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
