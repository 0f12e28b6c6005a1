"""Open files for reading that may not be files.

A table can come from anybody: what it names can be a FIFO, on which opening waits for ever, a device without an end, or
a file of any claimed size. So only regular files are opened, without waiting, and a file that is read whole has a
limit. A large file is read in parts with system calls. A memory map would be faster, but a file that is truncated under
it kills the process (SIGBUS).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.log.storage.store import SeekableFile, UnreadableFileError, arrow_input

MAX_WHOLE_BYTES = 2**32
"""No larger file is read whole. The log of a table with ten million files is about half as large."""
MAX_SHORTCUT_BYTES = 2**26
"""The same for files that the log can be read without. A checksum with 100,000 streams has a tenth of that."""
_SHORTCUTS = (".crc", "/_last_checkpoint")
# A file up to this size is read at once: one call is faster than the few that a parquet reader makes.
_AT_ONCE_BYTES = 2**20
# Where Linux shows the open files of a process.
_LINKS = Path("/proc/self/fd")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def read_regular_file(path: str, most_bytes: int | None = None, *, start_bytes: int | None = None) -> bytes:
    """The content of a regular file. Raises UnreadableFileError if it is something else or too large.

    `most_bytes` is the limit; None for that of a file of a table. With `start_bytes`, no more than that is read.
    """
    descriptor, size = _open(path)
    try:
        return _read(descriptor, size if start_bytes is None else min(size, start_bytes), path, most_bytes)
    finally:
        os.close(descriptor)


def open_regular_file(path: str) -> Any:
    """Open a regular file for random access by pyarrow. Raises UnreadableFileError if it is something else."""
    descriptor, size = _open(path)
    if size > _AT_ONCE_BYTES and not _LINKS.exists():
        return pa.PythonFile(_Parts(descriptor, size), mode="r")
    try:
        if size > _AT_ONCE_BYTES:
            # Arrow opens the same file again. Reading through Python takes twice as long, and a thread of Arrow that
            # still reads when Python exits would end the process with an error.
            return pa.OSFile(f"{_LINKS}/{descriptor}")  # noqa: TID251 - it is a regular file
        return arrow_input(_read(descriptor, size, path))
    finally:
        os.close(descriptor)


def _open(path: str) -> tuple[int, int]:
    """A descriptor of the file, and its size."""
    # Opening some devices does something, so look first; and then at what was opened, which can be another file.
    _require_regular(os.stat(path), path)  # noqa: PTH116 - a Path takes longer
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        _require_regular(found, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found.st_size


def _require_regular(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise UnreadableFileError(errno.EINVAL, f"not a regular file but {kind}", path)


def _read(descriptor: int, size: int, path: str, most_bytes: int | None = None) -> bytes:
    if size > (most_bytes or (MAX_SHORTCUT_BYTES if path.endswith(_SHORTCUTS) else MAX_WHOLE_BYTES)):
        raise UnreadableFileError(errno.EFBIG, f"{size} bytes are too many to read at once", path)
    parts, left = [], size
    try:
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except MemoryError as error:
        raise UnreadableFileError(errno.ENOMEM, f"{size} bytes are more than the memory holds", path) from error


class _Parts(SeekableFile):
    """An open file, read in parts. Closed when nobody uses it any more."""

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__(size)
        self._descriptor = descriptor

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, or all. Fewer if the file ends, which can be earlier than it was."""
        left = self._size - self._position if size < 0 else size
        parts = []
        while left > 0 and (part := os.pread(self._descriptor, left, self._position)):
            parts.append(part)
            left -= len(part)
            self._position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the file. Does nothing the second time."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()
