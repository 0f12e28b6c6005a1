"""The working folder of the flights demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.shared.working_folder import WorkingFolder


@dataclass(frozen=True)
class Folder(WorkingFolder):
    """Paths below `root`."""

    @property
    def source(self) -> Path:
        """One Parquet file for each day."""
        return self.root / "source"

    @property
    def totals(self) -> Path:
        """The consumer's totals."""
        return self.root / "totals.json"

    @property
    def batch_times(self) -> Path:
        """The duration of each micro-batch, over all runs."""
        return self.root / "batch-times.jsonl"

    @property
    def report(self) -> Path:
        """What the table's log says, as a page."""
        return self.root / "report.html"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that the demo writes, except the lock."""
        return *super().written, self.source, self.totals, self.batch_times, self.report
