"""The folder that the demo works in: what lies where, and that one demo at a time works there."""

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
    def table(self) -> Path:
        """The tidelog table."""
        return self.root / "table"

    @property
    def dead_letters(self) -> Path:
        """The tidelog table of the records that are no events."""
        return self.root / "dead-letters"

    @property
    def checkpoints(self) -> Path:
        """The two queries' own."""
        return self.root / "checkpoints"

    @property
    def broker(self) -> Path:
        """The broker's records and settings."""
        return self.root / "broker"

    @property
    def logs(self) -> Path:
        """What each process has to say."""
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Spark's scratch space."""
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

    def clear(self) -> None:
        """Remove what demos wrote, and only that; for whoever has it locked."""
        for path in (self.table, self.dead_letters, self.checkpoints, self.broker, self.logs, self.scratch):
            if path.exists():
                shutil.rmtree(path)

    def remove(self) -> bool:
        """Remove the folder, unless it holds other things as well; False where there is none."""
        if not self.root.exists():
            return False
        with self.locked():
            self.clear()
            self._lock.unlink()
        if not any(self.root.iterdir()):
            self.root.rmdir()
        return True
