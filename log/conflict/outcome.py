"""What becomes of a staged transaction when others committed first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.log.conflict.classes import OperationClass
from tidelog.log.conflict.staged import MoveGroup, Staged
from tidelog.log.errors import TidelogError


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


Outcome: TypeAlias = Rebased | NothingLeft | Conflict
