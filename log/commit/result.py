"""What a commit came to, and what history tells of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.format import commit_info
from tidelog.log.format.actions import Commit
from tidelog.log.system import to_datetime


@dataclass(frozen=True, slots=True)
class Committed:
    """A durable commit.

    `rebased_over` are the versions that others committed between staging and commit; `retried` tells whether there
    were any. An operation that had nothing to change writes no commit: `version` is then the version it saw.
    """

    version: int
    timestamp: datetime
    rebased_over: tuple[int, ...] = ()
    retried: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Superseded:
    """A compaction that had nothing left to do: version `by` took its inputs first."""

    by: int


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit of the history. `time_version` is None where it changed no rows."""

    version: int
    timestamp: datetime
    time_version: datetime | None
    operation_class: OperationClass
    data_change: bool
    metrics: Mapping[str, str]
    user_metadata: str | None


def record_of(commit: Commit, timestamp_ms: int, operation_class: OperationClass) -> CommitRecord:
    """The record of a commit of that class that was made at `timestamp_ms`."""
    timestamp = to_datetime(timestamp_ms)
    return CommitRecord(
        version=commit.version,
        timestamp=timestamp,
        time_version=timestamp if commit.data_change else None,
        operation_class=operation_class,
        data_change=commit.data_change,
        metrics=commit_info.metrics(commit.info),
        user_metadata=commit_info.user_metadata(commit.info),
    )
