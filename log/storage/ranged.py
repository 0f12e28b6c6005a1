"""Read a file in an object store in parts. Each part is a separate request, so parts are few and large."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.log.storage.seekable import SeekableFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A request takes about as long as transferring a few MB, so smaller files are faster to read whole than footer first.
WHOLE_BYTES = 4 * 2**20
# The column chunks of a row group are adjacent and are read in sequence.
READ_AHEAD_BYTES = 2**20
# A parquet reader reads the last few bytes, which contain the footer's length, and then the footer.
TAIL_BYTES = 2**18


class RangedFile(SeekableFile):
    """A file of `size` bytes, read with `fetch(start, end)`. Caches only the latest small part."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__(size)
        self._fetch = fetch
        self._start, self._part = 0, b""

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into the buffer until it is full or the file ends."""
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
            raise OSError(f"got {len(content)} bytes instead of {end - start}: the object changed while being read")
        return content
