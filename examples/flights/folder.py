"""The folder that a demo works in: what lies where, and that one demo at a time works there."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class WrongUseError(Exception):
    """The command cannot be run like this; the text says what to do instead."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths below `root`."""

    root: Path

    @property
    def source(self) -> Path:
        """One Parquet file a day."""
        return self.root / "source"

    @property
    def table(self) -> Path:
        """The tidelog table."""
        return self.root / "table"

    @property
    def checkpoints(self) -> Path:
        """The two queries' own."""
        return self.root / "checkpoints"

    @property
    def totals(self) -> Path:
        """What the consumer has counted."""
        return self.root / "totals.json"

    @property
    def batch_times(self) -> Path:
        """How long each micro-batch took, over all runs."""
        return self.root / "batch-times.jsonl"

    @property
    def logs(self) -> Path:
        """What Spark and the daemon have to say."""
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Spark's scratch space, empty between runs."""
        return self.root / "scratch"

    @property
    def _lock(self) -> Path:
        return self.root / "lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Work here alone. Raises WrongUseError where another demo does."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WrongUseError(f"another demo is at work in {self.root}; wait for it, or end it") from None
            yield

    def clean(self) -> bool:
        """Remove what demos wrote, and only that; False where there was nothing."""
        if not self.root.exists():
            return False
        with self.locked():
            for path in (self.source, self.table, self.checkpoints, self.logs, self.scratch):
                if path.exists():
                    shutil.rmtree(path)
            for path in (self.totals, self.batch_times, self._lock):
                path.unlink(missing_ok=True)
        if not any(self.root.iterdir()):
            self.root.rmdir()
        return True
