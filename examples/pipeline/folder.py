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
        """The files that the streaming table reads."""
        return self.root / "incoming"

    @property
    def lake(self) -> Path:
        """The warehouse of the catalog `tidelog`: the name `board.flights` is a folder in it."""
        return self.root / "lake"

    def table_of(self, name: str) -> Path:
        """A table of the pipeline."""
        return self.lake / "board" / name

    @property
    def project(self) -> Path:
        """The pipeline, with its spec."""
        return self.root / "project"

    @property
    def settings(self) -> Path:
        """The folder of the server's settings."""
        return self.root / "conf"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that the demo writes, except the lock."""
        return *super().written, self.incoming, self.lake, self.project, self.settings
