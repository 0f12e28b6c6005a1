"""The folder that a demo works in: its paths, and a lock so that only one demo at a time works there."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class WrongUseError(Exception):
    """The command cannot be run like this; the text says what to do instead."""


@dataclass(frozen=True)
class WorkingFolder:
    """Paths below `root`."""

    root: Path

    @property
    def table(self) -> Path:
        """The tidelog table."""
        return self.root / "table"

    @property
    def checkpoints(self) -> Path:
        """Spark's checkpoints of the two queries."""
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        """Output of Spark and of the child processes."""
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Spark's scratch space."""
        return self.root / "scratch"

    @property
    def written(self) -> tuple[Path, ...]:
        """Everything that a demo writes, except the lock."""
        return self.table, self.checkpoints, self.logs, self.scratch

    @property
    def _lock(self) -> Path:
        return self.root / "lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock. Raises WrongUseError if another demo holds it."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WrongUseError(f"another demo is running in {self.root}; wait until it ends, or end it") from None
            yield

    def clear(self) -> None:
        """Remove what demos wrote, and nothing else. Hold the lock."""
        for path in self.written:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove(self) -> bool:
        """Clear the folder, and remove it unless it has other files; False if it does not exist."""
        if not self.root.exists():
            return False
        with self.locked():
            self.clear()
            self._lock.unlink()
        if not any(self.root.iterdir()):
            self.root.rmdir()
        return True
