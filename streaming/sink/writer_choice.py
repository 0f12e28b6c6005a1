"""Who writes a batch's rows into files, chosen by the size of the batch before.

`driver`: the rows are collected and the driver writes one file for each partition. For few rows that is several times
faster than a Spark job that writes files. `spark`: the tasks write, and the rows never come to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore
from tidelog.streaming.sink.settings import AUTO, DRIVER, SPARK


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest batch that the driver writes: its rows, and the bytes of its files."""

    rows: int
    size_bytes: int


# On a local master, collecting moves bytes within one machine; on a cluster, over the network to a driver that may have
# other work.
_LOCAL = Limits(100_000, 16 * 2**20)
_CLUSTER = Limits(20_000, 4 * 2**20)


# More than a file ever has. Spark takes the number as 64 bits, and the target size can be any.
_MOST_ROWS = 2**31


class WriterChoice:
    """The choice for one sink. It remembers the size of the newest batch that was written."""

    def __init__(self, writer: str, store: Store) -> None:
        # Executors cannot reach this process's memory.
        self._fixed = DRIVER if isinstance(store, MemoryStore) else None if writer == AUTO else writer
        self._rows: int | None = None
        self._size_bytes = 0

    def choose(self, *, local: bool) -> str:
        """`driver` or `spark`; `local`: Spark runs on a local master.

        The first batch can have any size, so Spark writes it.
        """
        if self._fixed is not None:
            return self._fixed
        limits = _LOCAL if local else _CLUSTER
        small = self._rows is not None and self._rows <= limits.rows and self._size_bytes <= limits.size_bytes
        return DRIVER if small else SPARK

    @property
    def may_change(self) -> bool:
        """Whether Spark may write a batch that turns out to be too large for the driver."""
        return self._fixed is None

    def wrote(self, rows: int, size_bytes: int) -> None:
        """Remember the size of a batch that was written."""
        self._rows, self._size_bytes = rows, size_bytes

    def files(self, target_bytes: int) -> int | None:
        """How many files of the target size the newest batch would fill; None before the first."""
        return None if self._rows is None else max(1, -(-self._size_bytes // target_bytes))

    def rows_per_file(self, target_bytes: int) -> int | None:
        """How many of the newest batch's rows fit a file of the target size; None if that is unknown."""
        if not self._rows or not self._size_bytes:
            return None
        return max(1, min(target_bytes * self._rows // self._size_bytes, _MOST_ROWS))
