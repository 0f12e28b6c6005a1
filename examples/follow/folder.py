"""The working folder of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.shared.working_folder import WorkingFolder


@dataclass(frozen=True)
class Folder(WorkingFolder):
    """Paths below `root`; `table` is the table that is followed."""

    @property
    def copy(self) -> Path:
        """The tidelog table that follows."""
        return self.root / "copy"

    @property
    def incoming(self) -> Path:
        """The files that the stream writes to the table."""
        return self.root / "incoming"

    @property
    def follower(self) -> Path:
        """The follower's streaming checkpoint."""
        return self.checkpoints / "follower"

    @property
    def batches(self) -> Path:
        """The follower's batches, one line each."""
        return self.root / "batches.jsonl"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that the demo writes, except the lock."""
        return *super().written, self.copy, self.incoming, self.batches
