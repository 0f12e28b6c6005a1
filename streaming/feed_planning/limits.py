"""How much one micro-batch may read. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# Without any limit set, a micro-batch reads this number of files at most, which keeps the plan of a batch to some
# megabytes, also for the first snapshot of a table with millions of files.
DEFAULT_FILES = 10_000


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most files, bytes and rows of one micro-batch; None for no limit. One file is always read."""

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None


NO_LIMITS = ReadLimits()


class Admission:
    """Counts what a micro-batch has taken against its limits."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._files = self._bytes = self._rows = 0

    def admits(self, files: int, size_bytes: int, rows: int) -> bool:
        """Whether the batch takes this too. What it takes is counted; the first is always taken."""
        total = self._files + files, self._bytes + size_bytes, self._rows + rows
        limits = self._limits.files, self._limits.size_bytes, self._limits.rows
        if self._files and any(limit is not None and count > limit for count, limit in zip(total, limits, strict=True)):
            return False
        self._files, self._bytes, self._rows = total
        return True
