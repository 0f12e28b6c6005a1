"""The working folder of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.shared.working_folder import WorkingFolder


@dataclass(frozen=True)
class Folder(WorkingFolder):
    """Paths below `root`."""

    @property
    def incoming(self) -> Path:
        """The files that the stream writes to the table."""
        return self.root / "incoming"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that the demo writes, except the lock."""
        return *super().written, self.incoming
