"""What becomes of a staged transaction when others committed first."""

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
    """The transaction may be committed at the head as `staged`; `dropped` groups lost to the winners.

    `rules` are the numbers of those that had something to do (1 to 7, see the package's documentation).
    """

    staged: Staged
    dropped: tuple[MoveGroup, ...] = ()
    rules: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """A compaction whose every group lost its inputs, the last to `by`: there is nothing left to do."""

    by: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The transaction is lost; `error` is the exception's class, the rest its evidence.

    `policy` and `scope` are given where a policy's matrix decided: its name, and where the two met (in words).
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
    """The live rows of a file that match, and how many rows it has, dead ones included."""

    matching: BitMap64
    rows: int


@dataclass(frozen=True, slots=True)
class Question:
    """Which live rows of `files`, by their canonical paths, are among those that `reads` looks for?"""

    files: Mapping[str, AddFile]
    reads: Reads


RebaseOutcome: TypeAlias = Rebased | NothingLeft | Conflict | Question
