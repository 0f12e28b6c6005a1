"""A staged transaction as a value: what it adds, what it moves, and what else its commit says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.log.conflict.classes import OperationClass
from tidelog.log.format.actions import AddFile, Metadata, Protocol, RemoveFile, SetTransaction
from tidelog.log.format.lineage import LineageGroup


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """One group of a compaction: every live row of `inputs` is, in order, in `outputs`."""

    inputs: tuple[RemoveFile, ...]
    outputs: tuple[AddFile, ...]
    lineage: LineageGroup


def move_metrics(groups: Sequence[MoveGroup]) -> dict[str, int]:
    """What a compaction of these groups does, as the commit reports it."""
    inputs = [remove for group in groups for remove in group.inputs]
    outputs = [add for group in groups for add in group.outputs]
    return {
        "numRemovedFiles": len(inputs),
        "numRemovedBytes": sum(remove.size or 0 for remove in inputs),
        "numAddedFiles": len(outputs),
        "numAddedBytes": sum(add.size for add in outputs),
    }


@dataclass(frozen=True, slots=True)
class Staged:
    """What a transaction will commit.

    `transactions` are both written and read, `read_applications` only read: a winner that wrote one of the same
    application is a conflict.
    `operation` and `parameters` are the names under which other engines show the commit; `record` goes into
    `commitInfo.tidelog`.
    """

    operation: str
    operation_class: OperationClass
    adds: tuple[AddFile, ...] = ()
    moves: tuple[MoveGroup, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    read_applications: frozenset[str] = frozenset()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows and read nothing."""
        return bool(self.adds) and not self.moves and self.metadata is None
