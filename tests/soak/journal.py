"""What the updater has decided, on disk before it does it: after a kill it does the same again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tests.soak.folder import read_whole, write_whole


@dataclass(frozen=True, slots=True)
class Journal:
    """The decisions so far.

    Attributes:
        round: The newest round of upserts, from 1; 0 before the first.
        dropped_below: Partitions of the streams below this one are dropped.
    """

    round: int = 0
    dropped_below: int = 0

    @classmethod
    def read(cls, path: Path) -> Journal:
        """What was written last."""
        return cls(**(read_whole(path) or {}))

    def write(self, path: Path) -> None:
        """Make it durable."""
        write_whole(path, asdict(self))
