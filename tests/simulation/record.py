"""What actors were told, for comparison with what happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto

from tests.log.oracle.model import Row
from tests.log.oracle.operations import Operation


class Told(Enum):
    """What an actor knows about its operation."""

    NOTHING = auto()
    """It died before it was told anything, or it was told that this is unknown."""
    COMMITTED = auto()
    IDLE = auto()
    """There was nothing to do, or another compaction had done it."""
    REFUSED = auto()
    """It was told that nothing was committed."""


@dataclass
class Record:
    """An operation of an actor. `operation` is its meaning in the oracle's model; None if it changes no rows."""

    actor: str
    what: str
    operation: Operation | None
    began_ms: int
    table_id: str | None = None
    told: Told = Told.NOTHING
    version: int | None = None
    versions: tuple[int, ...] = ()
    """All that a compaction was told to have committed; it can commit several times."""
    error: str = ""
    ended_ms: int | None = None
    latest_ms: int = 0
    """The latest time that its clock showed it."""

    def __str__(self) -> str:
        told = f"{self.told.name} {self.version if self.error == '' else self.error}"
        return f"{self.what} of {self.actor} ({told})"


@dataclass(frozen=True)
class Seen:
    """What a reader saw: the rows at `version`, with one of the `keys` if it asked for some, or the changes `after`."""

    record: Record
    table_id: str
    version: int
    rows: Counter[Row]
    after: int | None = None
    taken: Counter[Row] | None = None
    keys: tuple[int, ...] | None = None
