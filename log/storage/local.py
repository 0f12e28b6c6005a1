"""Files on a local disk, or on a mounted file system with hard links.

Put-if-absent is a hard link: the content is written and fsynced under a temporary name, then linked to its final name,
which the operating system refuses if that name exists. (Opening the final name exclusively would expose a half-written
file to readers; renaming would overwrite another writer's commit.)
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from tidelog.log.errors import (
    ConfigurationError,
    PathNotWritableError,
    StoreAccessError,
    StoreNotSupportedError,
    StoreUnavailableError,
)
from tidelog.log.storage.store import FileStatus, Store
from tidelog.log.system import REAL_SYSTEM, System

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
# Threads that fsync in parallel; the kernel merges waiting fsyncs on the same journal.
_SYNC_THREADS = 8
_SCHEME = re.compile(r"^file:(//)?", re.IGNORECASE)
# No file can exist at a path below a file, or with such a name.
_NO_SUCH_PATH = {errno.ENOTDIR, errno.ENAMETOOLONG}
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT}


_T = TypeVar("_T")


def _reading(method: Callable[[LocalStore, str], _T]) -> Callable[[LocalStore, str], _T]:
    """Convert the operating system's errors of a method that reads a path."""

    @functools.wraps(method)
    def converted(store: LocalStore, path: str) -> _T:
        try:
            return method(store, path)
        except OSError as error:
            if error.errno in _NO_SUCH_PATH:
                raise FileNotFoundError(path) from error
            if isinstance(error, PermissionError):
                raise StoreAccessError(
                    f"cannot read {path or 'the folder'} of {store.url}: {error.strerror}",
                    advice="give this user permission to read the table's files and to list its folders",
                    path=store.url,
                ) from error
            raise

    return converted


class LocalStore(Store):
    """The files below a folder. The first write creates the folder."""

    def __init__(self, root: str, *, system: System = REAL_SYSTEM) -> None:
        self._root = _absolute(root)
        self._base = str(self._root)
        self._system = system
        self.url = str(self._root)

    @_reading
    def read(self, path: str) -> bytes:
        """See Store."""
        # Creating a Path takes longer than reading a commit, and a writer that lost many races reads many.
        with open(os.path.join(self._base, _without_scheme(path)), "rb", buffering=0) as file:  # noqa: PTH118, PTH123
            return file.read()

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target):
            temporary = self._write_temporary(target, content, durable=durable)
            try:
                _link(temporary, target)
                if durable:
                    _fsync_folder(target.parent)
            finally:
                temporary.unlink(missing_ok=True)

    def replace(self, path: str, content: bytes) -> None:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target):
            temporary = self._write_temporary(target, content, durable=True)
            # Hadoop's local file system leaves a checksum next to its files, which the new content would not match.
            target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
            temporary.replace(target)

    def list(self, folder: str) -> list[FileStatus]:
        """See Store."""
        found = [_status(entry) for entry in self._entries(folder)]
        return sorted((status for status in found if status), key=lambda status: status.name)

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        """See Store."""
        folders = [folder]
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_symlink():
                    continue
                if entry.is_dir():
                    folders.append(path)
                elif status := _status(entry):
                    yield path, status

    def names(self, folder: str) -> Collection[str]:
        """See Store."""
        return [entry.name for entry in self._entries(folder) if entry.is_file()]

    def delete(self, path: str) -> None:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target), contextlib.suppress(NotADirectoryError):
            target.unlink(missing_ok=True)

    @_reading
    def open_input(self, path: str) -> Any:
        """See Store."""
        return pa.memory_map(str(self._resolve(path)))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See Store."""
        target = self._resolve(path)
        with self._errors(target):
            self._make_folder(target.parent)
            file = target.open("xb")
        try:
            with self._errors(target):
                with file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                _fsync_folder(target.parent)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    @_reading
    def modified_ms(self, path: str) -> int:
        """See Store."""
        return self._resolve(path).stat().st_mtime_ns // 1_000_000

    def sync(self, paths: Sequence[str]) -> None:
        """See Store. Files first, then the folders that name them, up to the root."""
        targets = [self._resolve(path) for path in paths]
        folders = {folder for target in targets for folder in target.parents if folder.is_relative_to(self._root)}
        with self._errors(self._root), ThreadPoolExecutor(_SYNC_THREADS) as pool:
            for _ in pool.map(_fsync, targets):
                pass
            for _ in pool.map(_fsync_folder, folders):
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
                source.rename(self._resolve(moved[-1]))
                with contextlib.suppress(OSError):
                    source.parent.rmdir()
        return moved

    def remove_empty_folders(self) -> None:
        """See Store."""
        for folder, _, _ in os.walk(self._root, topdown=False):
            # A folder that is not empty stays, even if another process is only just filling it.
            with contextlib.suppress(OSError):
                Path(folder).rmdir()

    def _entries(self, folder: str) -> Sequence[os.DirEntry[str]]:
        """What is in a folder; nothing if there is no such folder."""
        try:
            return self._scan(folder)
        except FileNotFoundError:
            return []

    @_reading
    def _scan(self, folder: str) -> Sequence[os.DirEntry[str]]:
        with os.scandir(self._resolve(folder)) as entries:
            return [*entries]

    def _resolve(self, path: str) -> Path:
        return self._root / _without_scheme(path)

    def _write_temporary(self, target: Path, content: bytes, *, durable: bool) -> Path:
        self._make_folder(target.parent)
        temporary = target.with_name(f".{self._system.uuid()}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and its missing parents durably."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for child in reversed(missing):
            if child.exists() and not child.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "a file has the name of a folder", str(child))
            child.mkdir(exist_ok=True)
            _fsync_folder(child.parent)

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


def _absolute(root: str) -> Path:
    try:
        return Path(_without_scheme(root)).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # there is no such user, or the current folder was deleted
        raise ConfigurationError(
            f"the path {root!r} cannot be made absolute: {error}", advice="pass an absolute path", path=root
        ) from error


def _link(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
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


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some file systems cannot fsync a folder; there, syncing the file is enough.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _status(entry: os.DirEntry[str]) -> FileStatus | None:
    try:
        if not entry.is_file():
            return None
        stat = entry.stat()
    except FileNotFoundError:  # deleted while the folder was listed
        return None
    return FileStatus(entry.name, stat.st_size, stat.st_mtime_ns // 1_000_000)
