"""The outcomes of a rebase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyroaring import BitMap64

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import MoveGroup, Reads, Staged
from tidelog.log.errors import TidelogError
from tidelog.log.format.actions import AddFile


@dataclass(frozen=True, slots=True)
class Rebased:
    """`staged` can be committed at the head. `dropped` are compaction groups that were lost to winners.

    `rules` are the numbers (1 to 8, see `rebase`) of the rules that applied.
    """

    staged: Staged
    dropped: tuple[MoveGroup, ...] = ()
    rules: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """A compaction with nothing left to do: every group lost its inputs, the last one to the winner `by`."""

    by: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The transaction is lost. `error` is the class of the exception, the other fields become fields of it.

    `evidence` says in words what the winner did. If a policy's matrix decided, `policy` is its name and `scope` says in
    words where the two transactions overlap.
    """

    error: type[TidelogError]
    winning_version: int
    earlier: OperationClass
    later: OperationClass
    evidence: str
    policy: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The matching live rows of a file, and its physical row count."""

    matching: BitMap64
    rows: int


@dataclass(frozen=True, slots=True)
class Question:
    """Rule 5 asks the caller: which live rows of `files`, by canonical path, match `reads`?"""

    files: Mapping[str, AddFile]
    reads: Reads


RebaseOutcome: TypeAlias = Rebased | NothingLeft | Conflict | Question
