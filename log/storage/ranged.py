"""A file in an object store that is read in parts: each is a request of its own, so few and large ones are made."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A request costs about as long as a few MB take to arrive: below this, the whole file is cheaper than its footer first.
WHOLE_BYTES = 4 * 2**20
# The column chunks of a row group lie side by side and are read one after the other.
READ_AHEAD_BYTES = 2**20
# A parquet reader asks for the last few bytes, and then for the footer that they measure.
TAIL_BYTES = 2**18


class RangedFile(io.RawIOBase):
    """`size` bytes behind `fetch(start, end)`. Keeps the newest part, which is small, and nothing else."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._position = 0
        self._start, self._part = 0, b""

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def seekable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def tell(self) -> int:
        """See io.RawIOBase."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io.RawIOBase."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer, or as much of it as the file has left."""
        target = memoryview(buffer).cast("B")
        start = self._position
        end = min(self._size, start + len(target))
        if start >= end:
            return 0
        target[: end - start] = self._bytes(start, end)
        self._position = end
        return end - start

    def _bytes(self, start: int, end: int) -> bytes:
        if not self._start <= start <= end <= self._start + len(self._part):
            if end - start > READ_AHEAD_BYTES:
                return self._whole(start, end)
            first = max(0, min(start, self._size - TAIL_BYTES)) if end == self._size else start
            self._part = self._whole(first, min(self._size, max(end, start + READ_AHEAD_BYTES)))
            self._start = first
        return self._part[start - self._start : end - self._start]

    def _whole(self, start: int, end: int) -> bytes:
        content = self._fetch(start, end)
        if len(content) != end - start:
            raise OSError(f"{len(content)} bytes came instead of {end - start}: the object changed while it was read")
        return content
