"""Files on a local disk, or on a mounted file system with hard links.

Put-if-absent is a hard link: the content is written and fsynced under a temporary name, then linked to its final name,
which the operating system refuses if that name exists. (Opening the final name exclusively would expose a half-written
file to readers; renaming would overwrite another writer's commit.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tidelog.log.errors import PathNotWritableError, StoreNotSupportedError, StoreUnavailableError
from tidelog.log.storage.disk import REAL_DISK, Disk
from tidelog.log.storage.store import FileStatus, Store
from tidelog.log.system import REAL_SYSTEM, System

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
# Threads that fsync in parallel; the kernel merges waiting fsyncs on the same journal.
_SYNC_THREADS = 8
_SCHEME = re.compile(r"^file:(//)?", re.IGNORECASE)
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT}


class LocalStore(Store):
    """The files below a folder. The first write creates the folder."""

    def __init__(self, root: str, *, system: System = REAL_SYSTEM, disk: Disk = REAL_DISK) -> None:
        self._root = Path(_without_scheme(root)).expanduser().absolute()
        self._base = str(self._root)
        self._system = system
        self._disk = disk
        self.url = str(self._root)

    def read(self, path: str) -> bytes:
        """See Store."""
        try:
            return self._disk.read(os.path.join(self._base, _without_scheme(path)))  # noqa: PTH118 - see Disk.read
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target):
            temporary = self._write_temporary(target, content, durable=durable)
            try:
                self._link(temporary, target)
                if durable:
                    self._fsync_folder(target.parent)
            finally:
                self._unlink(temporary)

    def replace(self, path: str, content: bytes) -> None:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target):
            temporary = self._write_temporary(target, content, durable=True)
            # Hadoop's local file system leaves a checksum next to its files, which the new content would not match.
            self._unlink(target.with_name(f".{target.name}.crc"))
            self._disk.rename(temporary, target)

    def list(self, folder: str) -> list[FileStatus]:
        """See Store."""
        try:
            found = [_status(entry) for entry in self._disk.entries(self._resolve(folder))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((status for status in found if status), key=lambda status: status.name)

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        """See Store."""
        folders = [folder]
        while folders:
            folder = folders.pop()
            try:
                found = self._disk.entries(self._root / folder)
            except (FileNotFoundError, NotADirectoryError):  # deleted during the walk, or no table yet
                continue
            for entry in found:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_symlink():
                    continue
                if entry.is_dir():
                    folders.append(path)
                elif status := _status(entry):
                    yield path, status

    def names(self, folder: str) -> Collection[str]:
        """See Store."""
        try:
            return [entry.name for entry in self._disk.entries(self._resolve(folder)) if entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, path: str) -> None:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target), contextlib.suppress(NotADirectoryError):
            self._unlink(target)

    def open_input(self, path: str) -> Any:
        """See Store."""
        try:
            return self._disk.open_input(self._resolve(path))
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target):
            self._make_folder(target.parent)
            file = self._disk.open_new(target)
        try:
            with self._errors(target):
                with file:
                    yield file
                    file.flush()
                    self._disk.fsync(file.fileno())
                self._fsync_folder(target.parent)
        except BaseException:
            self._unlink(target)
            raise

    def modified_ms(self, path: str) -> int:
        """See Store."""
        try:
            return self._disk.modified_ms(self._resolve(path))
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error

    def sync(self, paths: Sequence[str]) -> None:
        """See Store. Files first, then the folders that name them, up to the root."""
        targets = [self._resolve(path) for path in paths]
        folders = {folder for target in targets for folder in target.parents if folder.is_relative_to(self._root)}
        with self._errors(self._root), ThreadPoolExecutor(_SYNC_THREADS) as pool:
            for _ in pool.map(self._fsync, targets):
                pass
            for _ in pool.map(self._fsync_folder, folders):
                pass

    def gather(self, paths: Sequence[str], folder: str) -> Sequence[str]:
        """Move files from folders within `folder` into `folder` itself; returns their new paths.

        No other process may know these files. Folders that become empty are removed.
        """
        moved = []
        with self._errors(self._root):
            for number, path in enumerate(paths):
                source = self._resolve(path)
                moved.append(f"{folder}/{number}-{source.name}")
                self._disk.rename(source, self._resolve(moved[-1]))
                with contextlib.suppress(OSError):
                    self._disk.remove_folder(source.parent)
        return moved

    def remove_empty_folders(self) -> None:
        """See Store."""
        for folder in self._disk.folders(self._root):
            # A folder that is not empty stays, even if another process is only just filling it.
            with contextlib.suppress(OSError):
                self._disk.remove_folder(folder)

    def _resolve(self, path: str) -> Path:
        return self._root / _without_scheme(path)

    def _write_temporary(self, target: Path, content: bytes, *, durable: bool) -> Path:
        self._make_folder(target.parent)
        temporary = target.with_name(f".{self._system.uuid()}.tmp")
        try:
            with self._disk.open_new(temporary) as file:
                file.write(content)
                if durable:
                    file.flush()
                    self._disk.fsync(file.fileno())
        except BaseException:
            self._unlink(temporary)
            raise
        return temporary

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and its missing parents durably."""
        missing = []
        while not self._disk.is_folder(folder):
            missing.append(folder)
            folder = folder.parent
        for child in reversed(missing):
            if self._disk.exists(child) and not self._disk.is_folder(child):
                raise NotADirectoryError(errno.ENOTDIR, "a file has the name of a folder", str(child))
            self._disk.make_folder(child)
            self._fsync_folder(child.parent)

    def _link(self, temporary: Path, target: Path) -> None:
        try:
            self._disk.link(temporary, target)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise StoreNotSupportedError(
                    f"the file system of {target.parent} has no hard links, so two writers could overwrite each other",
                    advice="put the table on a local disk or an object store with conditional puts",
                    path=str(target.parent),
                ) from error
            raise

    def _unlink(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(path)

    def _fsync(self, path: Path) -> None:
        descriptor = self._disk.open_descriptor(path)
        try:
            self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)

    def _fsync_folder(self, folder: Path) -> None:
        descriptor = self._disk.open_descriptor(folder)
        try:
            # Some file systems cannot fsync a folder; there, syncing the file is enough.
            with contextlib.suppress(OSError):
                self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)

    @contextmanager
    def _errors(self, target: Path) -> Iterator[None]:
        """Convert the operating system's errors to tidelog's; FileExistsError passes through."""
        try:
            yield
        except (FileExistsError, StoreNotSupportedError):
            raise
        except OSError as error:
            if error.errno in _NOT_WRITABLE:
                raise PathNotWritableError(
                    f"cannot write {target}: {error.strerror}",
                    advice="check the path, its permissions and whether the file system is mounted read-only",
                    path=str(self._root),
                ) from error
            raise StoreUnavailableError(
                f"writing {target} failed: {error.strerror}",
                advice="free up space or repair the disk, then retry; nothing was committed",
                path=str(self._root),
            ) from error


def _without_scheme(path: str) -> str:
    return _SCHEME.sub("", path)


def _status(entry: os.DirEntry[str]) -> FileStatus | None:
    try:
        if not entry.is_file():
            return None
        stat = entry.stat()
    except FileNotFoundError:  # deleted while the folder was listed
        return None
    return FileStatus(entry.name, stat.st_size, stat.st_mtime_ns // 1_000_000)
