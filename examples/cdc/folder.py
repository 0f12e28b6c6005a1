"""The working folder of the CDC demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.shared.working_folder import WorkingFolder


@dataclass(frozen=True)
class Folder(WorkingFolder):
    """Paths below `root`."""

    @property
    def tables(self) -> Path:
        """A tidelog table for each table of the database."""
        return self.root / "tables"

    def copy_of(self, name: str) -> Path:
        """The tidelog table that follows this table of the database."""
        return self.tables / name

    @property
    def dead_letters(self) -> Path:
        """A tidelog table for each table of the database, of records that cannot be applied."""
        return self.root / "dead-letters"

    def dead_letters_of(self, name: str) -> Path:
        """The records of this table of the database that cannot be applied."""
        return self.dead_letters / name

    @property
    def parked(self) -> Path:
        """The tidelog table of records whose table is set aside."""
        return self.root / "parked"

    @property
    def servers(self) -> Path:
        """The files of PostgreSQL, of Kafka and of Kafka Connect."""
        return self.root / "servers"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that the demo writes, except the lock."""
        return *super().written, self.tables, self.dead_letters, self.parked, self.servers
