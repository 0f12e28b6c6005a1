"""The calls to the operating system that `LocalStore` makes, in one place, so that a test can replace them.

Each method is one or a few system calls and raises OSError, or a subclass, as these do. What the calls have to do, and
in which order, is decided in `local`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tidelog.log.storage.regular_file import open_regular_file, read_regular_file

_THREADS = 8


class Disk:
    """The file system of this machine."""

    @property
    def reads_at_once(self) -> int:
        """How many files to read at the same time: the kernel reads ahead by itself, so cores to decode them count."""
        return min(int(pa.cpu_count()), _THREADS)

    def read(self, path: str) -> bytes:
        """The whole content of a file."""
        return read_regular_file(path)

    def open_input(self, path: Path) -> Any:
        """Open a file for random access by pyarrow."""
        return open_regular_file(str(path))

    def open_new(self, path: Path) -> BinaryIO:
        """Create a file, which must not exist, and open it for writing."""
        return path.open("xb")

    def open_descriptor(self, path: Path) -> int:
        """Open a file or a folder for `fsync`."""
        return os.open(path, os.O_RDONLY)

    def fsync(self, descriptor: int) -> None:
        """Make durable what was written to an open file, or the names in an open folder."""
        os.fsync(descriptor)

    def for_each(self, action: Callable[[Path], None], paths: Collection[Path]) -> None:
        """Call `action` for each path, for several at a time. The kernel merges waiting fsyncs on the same journal."""
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(action, paths):
                pass

    def close(self, descriptor: int) -> None:
        """Close what `open_descriptor` opened."""
        os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError if there is a file of that name."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of the file that has it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        path.unlink()

    def make_folder(self, path: Path) -> None:
        """Create a folder, unless it exists."""
        path.mkdir(exist_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()

    def is_folder(self, path: Path) -> bool:
        """Whether a folder has this name."""
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        """Whether a file or a folder has this name."""
        return path.exists()

    def modified_ms(self, path: Path) -> int:
        """The modification time of a file, in ms since the epoch."""
        return path.stat().st_mtime_ns // 1_000_000

    def modified_times(self, folder: Path, ending: str) -> list[tuple[str, int]]:
        """Names of files directly in a folder, and their modification times in ms. Not atomic, as `entries`."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = os.listdir(descriptor)  # noqa: PTH208 - a Path for each name takes as long as the look
            return _modified_times(descriptor, [name for name in names if name.endswith(ending)])
        finally:
            os.close(descriptor)

    def modified_times_of(self, folder: Path, names: Collection[str]) -> list[tuple[str, int]]:
        """The same for those of `names` that are files directly in a folder."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return _modified_times(descriptor, names)
        finally:
            os.close(descriptor)

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """What is directly in a folder. Not atomic: names that appear or disappear meanwhile may be in it or not."""
        with os.scandir(folder) as found:
            return list(found)

    def folders(self, root: Path) -> Iterator[Path]:
        """Each folder below `root`, the innermost first, and `root` itself; none if it does not exist."""
        for folder, _, _ in os.walk(root, topdown=False):
            yield Path(folder)


def _modified_times(folder: int, names: Collection[str]) -> list[tuple[str, int]]:
    """Names relative to an open folder: the kernel need not walk the path again for each."""
    found = []
    look = os.stat
    for name in names:
        try:
            status = look(name, dir_fd=folder)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP}:  # deleted meanwhile, or a link to itself
                continue
            raise
        if stat.S_ISREG(status.st_mode):
            found.append((name, status.st_mtime_ns // 1_000_000))
    return found


REAL_DISK = Disk()
