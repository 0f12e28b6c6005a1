"""The working folder of the Kafka demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.shared.working_folder import WorkingFolder


@dataclass(frozen=True)
class Folder(WorkingFolder):
    """Paths below `root`."""

    @property
    def dead_letters(self) -> Path:
        """The tidelog table of records that are not valid events."""
        return self.root / "dead-letters"

    @property
    def broker(self) -> Path:
        """The broker's records and settings."""
        return self.root / "broker"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that the demo writes, except the lock."""
        return *super().written, self.dead_letters, self.broker
