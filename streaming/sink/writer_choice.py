"""Which way a batch's rows take into files, judged by the batches before it.

`driver`: the rows come to the driver and one file a partition is written there, which for few rows is several times
faster than a Spark job with files of its own. `spark`: the tasks write, and the rows never come to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.log.internals import MemoryStore, Store
from tidelog.streaming.sink.settings import AUTO, DRIVER, SPARK


@dataclass(frozen=True, slots=True)
class Limits:
    """Up to how many rows, and bytes in files, a batch goes by the driver."""

    rows: int
    size_bytes: int


# Where the driver is the whole of Spark, collecting moves bytes within one machine; else they cross the network to a
# driver that others may share.
_LOCAL = Limits(100_000, 16 * 2**20)
_CLUSTER = Limits(20_000, 4 * 2**20)


class WriterChoice:
    """The choice of one sink. `rows` and `size_bytes` are those of its newest batch, None before the first."""

    def __init__(self, writer: str, store: Store) -> None:
        # No executor reaches what lies in this process's memory.
        self._fixed = DRIVER if isinstance(store, MemoryStore) else None if writer == AUTO else writer
        self._rows: int | None = None
        self._size_bytes = 0

    def choose(self, *, local: bool) -> str:
        """`driver` or `spark`, on a local master or not.

        The first batch may be of any size, so it goes by Spark.
        """
        if self._fixed is not None:
            return self._fixed
        limits = _LOCAL if local else _CLUSTER
        small = self._rows is not None and self._rows <= limits.rows and self._size_bytes <= limits.size_bytes
        return DRIVER if small else SPARK

    @property
    def may_change(self) -> bool:
        """Whether a batch that turns out to be too large for the driver may go by Spark."""
        return self._fixed is None

    def wrote(self, rows: int, size_bytes: int) -> None:
        """Take note of a batch."""
        self._rows, self._size_bytes = rows, size_bytes

    def files(self, target_bytes: int) -> int | None:
        """How many files of the target size the newest batch would fill; None before the first."""
        return None if self._rows is None else max(1, -(-self._size_bytes // target_bytes))

    def rows_per_file(self, target_bytes: int) -> int | None:
        """How many of the newest batch's rows a file of the target size holds; None where that is not known."""
        if not self._rows or not self._size_bytes:
            return None
        return max(1, target_bytes * self._rows // self._size_bytes)
