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
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from tidelog.log.errors import (
    ConfigurationError,
    PathNotWritableError,
    StoreAccessError,
    StoreNotSupportedError,
    StoreUnavailableError,
)
from tidelog.log.storage.regular_file import open_regular_file, read_regular_file
from tidelog.log.storage.store import (
    FileStatus,
    NotDurableError,
    NotReadError,
    NotStoredError,
    Store,
    UnreadableFileError,
    outside,
)
from tidelog.log.system import REAL_SYSTEM, System

# --- the operating system ---------------------------------------------------------------------------------------------

_THREADS = 8


class Disk:
    """The calls to the operating system that `LocalStore` makes, in one place, so that a test can replace them.

    Each method is one or a few system calls and raises OSError, or a subclass, as these do. What the calls have to do,
    and in which order, is decided in `LocalStore`.
    """

    @property
    def reads_at_once(self) -> int:
        """How many files to read at the same time: the kernel reads ahead by itself, so cores to decode them count."""
        return min(int(pa.cpu_count()), _THREADS)

    def read(self, path: str, start_bytes: int | None = None) -> bytes:
        """The whole content of a file, or its start."""
        return read_regular_file(path, start_bytes=start_bytes)

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

    def names_state(self, folder: Path) -> object:
        """What changes whenever a name directly in a folder is made or removed, or if it becomes another folder."""
        status = folder.stat()
        return status.st_ino, status.st_mtime_ns

    def modified_ms(self, path: Path) -> int:
        """The modification time of a file, in ms since the epoch."""
        return path.stat().st_mtime_ns // 1_000_000

    def appeared_ms(self, path: Path) -> int:
        """When a name was last given to the file or taken from it, in ms since the epoch; see Store."""
        status = path.stat()
        return max(status.st_mtime_ns, status.st_ctime_ns) // 1_000_000

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


# --- its errors, as the errors of every store -------------------------------------------------------------------------

# What is there, or its permissions, forbid writing.
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT}
# No file can exist at a path below a file, or with such a name.
_NO_SUCH_PATH = {errno.ENOTDIR, errno.ENAMETOOLONG}

_S = TypeVar("_S", bound=Store)
_T = TypeVar("_T")
_P = ParamSpec("_P")


def _reading(method: Callable[Concatenate[_S, str, _P], _T]) -> Callable[Concatenate[_S, str, _P], _T]:
    """Convert the operating system's errors of a method that reads a path, but not those that the store promises."""

    @functools.wraps(method)
    def converted(store: _S, path: str, /, *more: _P.args, **named: _P.kwargs) -> _T:
        try:
            return method(store, path, *more, **named)
        except OSError as error:
            if error.errno in _NO_SUCH_PATH:
                raise FileNotFoundError(path) from error
            if isinstance(error, PermissionError):
                raise StoreAccessError(
                    f"cannot read {path or 'the folder'} of {store.url}: {error.strerror}",
                    advice="give this user permission to read the table's files and to list its folders",
                    path=store.url,
                ) from error
            if error.errno == errno.ELOOP:
                raise UnreadableFileError(error.errno, "a symbolic link that leads nowhere", path) from error
            if isinstance(error, (FileNotFoundError, UnreadableFileError)):
                raise
            raise NotReadError(
                f"reading {path or 'the folder'} of {store.url} failed: {error.strerror or error}",
                advice="repair the disk, or what else the message names, then retry",
                path=store.url,
            ) from error

    return converted


@contextmanager
def _writing(target: Path, url: str, failed: type[StoreUnavailableError] = StoreUnavailableError) -> Iterator[None]:
    """Convert the operating system's errors of a block that writes; FileExistsError passes through.

    Args:
        target: What is written.
        url: The store's.
        failed: The error for a disk that is full or fails.
    """
    try:
        yield
    except (FileExistsError, StoreNotSupportedError):
        raise
    except OSError as error:
        if error.errno in _NOT_WRITABLE:
            raise PathNotWritableError(
                f"cannot write {target}: {error.strerror}",
                advice="check the path, its permissions (reading included) and whether it is mounted read-only",
                path=url,
            ) from error
        outcome = "; nothing was committed" if failed is NotStoredError else ""
        raise failed(
            f"writing {target} failed: {error.strerror}",
            advice=f"free up space or repair the disk, then retry{outcome}",
            path=url,
        ) from error


# --- paths, and what is in a folder -----------------------------------------------------------------------------------

_SCHEME = re.compile(r"^file:(//(localhost(?=/))?)?", re.IGNORECASE)
# Between `file://` and the path a URL can name a host. Without one, `~` is the user's home, as in a plain path.
_HOST = re.compile(r"^[^/~]")


def _without_scheme(path: str) -> str:
    """The path in a `file:` URL; a plain path as it is."""
    return _SCHEME.sub("", path)


def _absolute(root: str) -> Path:
    """The absolute path of a table. Raises ConfigurationError if there is none, or if it is on another host."""
    path = _without_scheme(root)
    if root.lower().startswith("file://") and _HOST.match(path):
        raise ConfigurationError(
            f"{root} names the host {path.partition('/')[0]!r}, but a file: URL must name a file of this machine",
            advice=f"write file:///{path} for a path from the root, or a path without file:",
            path=root,
        )
    try:
        return Path(path).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # there is no such user, or the current folder was deleted
        raise ConfigurationError(
            f"the path {root!r} cannot be made absolute: {error}", advice="pass an absolute path", path=root
        ) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a file, or a link to one."""
    return _is(entry.is_file)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a folder, or a link to one."""
    return _is(entry.is_dir)


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _status_of(entry: os.DirEntry[str]) -> FileStatus | None:
    """What a listing says of a file; None if the entry is something else, or gone."""
    try:
        if not _is_file(entry):
            return None
        stat = entry.stat()
    except FileNotFoundError:  # deleted while the folder was listed
        return None
    return FileStatus(entry.name, stat.st_size, stat.st_mtime_ns // 1_000_000)


# --- the store --------------------------------------------------------------------------------------------------------

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
# Some file systems cannot fsync a folder; there, syncing the file is enough.
_NO_FOLDER_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
# How often a folder is made for a file while drops and clean-ups remove empty folders.
_FOLDER_TRIES = 5
# Errors by which the operating system refuses a link. After others, such as EIO, it may have been created.
_REFUSED = _NO_HARD_LINKS | _NOT_WRITABLE | {errno.ENOSPC, errno.EDQUOT}

# A parquet reader has so much of each column in memory, whatever the size of a row group.
_BUFFER_BYTES = 2**16


class LocalStore(Store):
    """The files below a folder. The first write creates the folder.

    If it `is_confined`, no path can lead out of the folder, not even through a link.
    """

    def __init__(
        self, root: str, *, system: System = REAL_SYSTEM, disk: Disk = REAL_DISK, confined: bool = False
    ) -> None:
        self._root = _absolute(root)
        self._base = str(self._root)
        self._system = system
        self._disk = disk
        self.is_confined = confined
        # By folder: what it was like when the names in it were last made durable.
        self._durable: dict[Path, object] = {}
        self.url = str(self._root)

    @property
    def reads_at_once(self) -> int:
        """See Store."""
        return self._disk.reads_at_once

    @property
    def buffer_bytes(self) -> int:
        """See Store. Larger parts are not faster: the kernel reads ahead."""
        return _BUFFER_BYTES

    @_reading
    def read(self, path: str) -> bytes:
        """See Store."""
        return self._disk.read(self._file(path))

    @_reading
    def read_start(self, path: str, size_bytes: int) -> bytes:
        """See Store."""
        return self._disk.read(self._file(path), size_bytes)

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """See Store."""
        target = self._resolve(path)
        with _writing(target, self.url, NotStoredError), contextlib.ExitStack() as ended:
            temporary = self._write_temporary(target, content, durable=durable)
            ended.callback(self._discard, temporary)
            if durable:
                # Opened before the link: from then on nothing may fail but the fsync itself.
                folder = self._disk.open_descriptor(target.parent)
                ended.callback(self._close, folder)
            self._link(temporary, target)
            if durable:
                self._make_name_durable(folder, target)

    def replace(self, path: str, content: bytes) -> None:
        """See Store."""
        target = self._resolve(path)
        with _writing(target, self.url):
            temporary = self._write_temporary(target, content, durable=True)
            try:
                # Hadoop's local file system leaves a checksum next to its files, which the new content would not match.
                self._unlink(target.with_name(f".{target.name}.crc"))
                self._disk.rename(temporary, target)
            except BaseException:
                self._discard(temporary)
                raise

    def list(self, folder: str) -> list[FileStatus]:
        """See Store."""
        found = [_status_of(entry) for entry in self._entries(folder)]
        return sorted((status for status in found if status), key=lambda status: status.name)

    def folders(self, folder: str = "", *, until: str = "") -> Sequence[str]:
        """See Store."""
        if until and self._is_folder(f"{folder}/{until}" if folder else until):
            return [until]
        return sorted(entry.name for entry in self._entries(folder) if _is_folder(entry))

    @_reading
    def _is_folder(self, path: str) -> bool:
        return self._disk.is_folder(self._resolve(path))

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
                elif status := _status_of(entry):
                    yield path, status

    def names(self, folder: str) -> Collection[str]:
        """See Store."""
        return [entry.name for entry in self._entries(folder) if _is_file(entry)]

    @_reading
    def modified_times(self, folder: str, ending: str) -> Sequence[tuple[str, int]]:
        """See Store."""
        try:
            return self._disk.modified_times(self._resolve(folder), ending)
        except (FileNotFoundError, NotADirectoryError):
            return []

    @_reading
    def modified_times_of(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        """See Store."""
        try:
            return dict(self._disk.modified_times_of(self._resolve(folder), names))
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def delete(self, path: str) -> None:
        """See Store."""
        target = self._resolve(path)
        with _writing(target, self.url), contextlib.suppress(NotADirectoryError):
            self._unlink(target)

    @_reading
    def open_input(self, path: str) -> Any:
        """See Store."""
        return self._disk.open_input(self._resolve(path))

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See Store."""
        return self._create(path, durable=True)

    def create_unsynced(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See Store."""
        return self._create(path, durable=False)

    @contextmanager
    def _create(self, path: str, *, durable: bool) -> Iterator[BinaryIO]:
        target = self._resolve(path)
        with _writing(target, self.url):
            # Both at once, because a drop of the table may delete both before the file is complete.
            file, folder = self._in_folder(target.parent, lambda: self._open_both(target))
        try:
            with _writing(target, self.url), contextlib.ExitStack() as ended:
                ended.callback(self._close, folder)
                with file:
                    yield file
                    if durable:
                        file.flush()
                        self._disk.fsync(file.fileno())
                if durable:
                    self._fsync_names(folder)
                    self._make_folder_durable(target.parent)
        except BaseException:
            self._discard(target)
            raise

    @_reading
    def modified_ms(self, path: str) -> int:
        """See Store."""
        return self._disk.modified_ms(self._resolve(path))

    @_reading
    def appeared_ms(self, path: str) -> int:
        """See Store."""
        return self._disk.appeared_ms(self._resolve(path))

    def sync(self, paths: Sequence[str]) -> None:
        """See Store. Files first, then the folders that name them, up to the root."""
        targets = [self._resolve(path) for path in paths]
        folders = {folder for target in targets for folder in target.parents if folder.is_relative_to(self._root)}
        with _writing(self._root, self.url):
            self._disk.for_each(self._fsync, targets)
            self._disk.for_each(self._fsync_folder, folders)

    def move(self, old: str, new: str) -> None:
        """Move a file that no other process knows to a free path.

        Its folder, and the one above that, are removed if that leaves them empty.
        """
        source, target = self._resolve(old), self._resolve(new)
        with _writing(target, self.url):
            self._in_folder(target.parent, lambda: self._disk.rename(source, target))
            with contextlib.suppress(OSError):
                for folder in (source.parent, source.parent.parent):
                    self._disk.remove_folder(folder)

    def remove_empty_folders(self) -> None:
        """See Store."""
        for folder in self._disk.folders(self._root):
            # A folder that is not empty stays, even if another process is only just filling it.
            with contextlib.suppress(OSError):
                self._disk.remove_folder(folder)

    def _entries(self, folder: str) -> Sequence[os.DirEntry[str]]:
        """What is in a folder; nothing if there is no such folder."""
        try:
            return self._scan(folder)
        except (FileNotFoundError, UnreadableFileError):
            return []

    @_reading
    def _scan(self, folder: str) -> Sequence[os.DirEntry[str]]:
        return self._disk.entries(self._resolve(folder))

    def _resolve(self, path: str) -> Path:
        return Path(self._file(path))

    def _file(self, path: str) -> str:
        """The path on this machine. Raises OutsideFileError if the store is confined and the path leaves it.

        Creating a Path takes longer than reading a commit, and a writer that lost many races reads many.
        """
        found = os.path.join(self._base, _without_scheme(path))  # noqa: PTH118 - see above
        if self.is_confined:
            root = os.path.realpath(self._base)
            if os.path.commonpath([root, os.path.realpath(found)]) != root:
                raise outside(path, self.url)
        return found

    def _write_temporary(self, target: Path, content: bytes, *, durable: bool) -> Path:
        temporary = target.with_name(f".{self._system.uuid()}.tmp")
        file = self._in_folder(target.parent, lambda: self._disk.open_new(temporary))
        try:
            with file:
                file.write(content)
                if durable:
                    file.flush()
                    self._disk.fsync(file.fileno())
            if durable:
                self._make_folder_durable(temporary.parent)
        except BaseException:
            self._discard(temporary)
            raise
        return temporary

    def _open_both(self, path: Path) -> tuple[BinaryIO, int]:
        """Create a file, and open its folder for `fsync`."""
        file = self._disk.open_new(path)
        try:
            return file, self._disk.open_descriptor(path.parent)
        except BaseException:
            file.close()
            self._discard(path)
            raise

    def _in_folder(self, folder: Path, open_in_it: Callable[[], _T]) -> _T:
        """Make a folder and open what is in it; again if another process removes the folder in between."""
        for _ in range(_FOLDER_TRIES):
            with contextlib.suppress(FileNotFoundError):
                self._make_folder(folder)
                return open_in_it()
        return open_in_it()

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and its missing parents."""
        missing = []
        while not self._disk.is_folder(folder):
            missing.append(folder)
            folder = folder.parent
        for child in reversed(missing):
            if self._disk.exists(child) and not self._disk.is_folder(child):
                raise NotADirectoryError(errno.ENOTDIR, "a file has the name of a folder", str(child))
            self._disk.make_folder(child)

    def _make_folder_durable(self, folder: Path) -> None:
        """Make the name of a folder durable, and those of its parents up to the root.

        To be called once it holds a file, since then no clean-up removes it. Whoever made it can have died before the
        sync, or a clean-up has removed the folder of that name that was durable.
        """
        while folder.is_relative_to(self._root):
            parent = folder.parent
            state = self._disk.names_state(parent)
            if self._durable.get(parent) == state:
                return
            # The root's parent may be anybody's.
            with contextlib.suppress(PermissionError) if folder == self._root else contextlib.nullcontext():
                self._fsync_folder(parent)
            self._durable[parent] = state
            folder = parent

    def _link(self, temporary: Path, target: Path) -> None:
        """The durable step. An error proves that nothing was linked only if it says so and the name is free."""
        try:
            self._disk.link(temporary, target)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _REFUSED or not self._is_free(target):
                raise StoreUnavailableError(
                    f"writing {target} failed: {error.strerror}",
                    advice="repair the disk; the file may exist or not",
                    path=str(self._root),
                ) from error
            if error.errno in _NO_HARD_LINKS:
                raise StoreNotSupportedError(
                    f"the file system of {target.parent} has no hard links, so two writers could overwrite each other",
                    advice="put the table on a local disk or an object store with conditional puts",
                    path=str(target.parent),
                ) from error
            raise

    def _is_free(self, target: Path) -> bool:
        try:
            return not self._disk.exists(target)
        except OSError as error:
            return error.errno == errno.ENAMETOOLONG  # no file can have such a name

    def _make_name_durable(self, folder: int, target: Path) -> None:
        try:
            self._fsync_names(folder)
        except OSError as error:
            raise NotDurableError(
                f"{target} was written, but a crash of the machine may undo that: {error.strerror}",
                advice="repair the disk",
                path=str(self._root),
            ) from error

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
            self._fsync_names(descriptor)
        finally:
            self._disk.close(descriptor)

    def _fsync_names(self, folder: int) -> None:
        try:
            self._disk.fsync(folder)
        except OSError as error:
            if error.errno not in _NO_FOLDER_FSYNC:
                raise

    def _discard(self, path: Path) -> None:
        """Remove a file of ours that no one needs, if possible: its name cannot be mistaken for another file's."""
        with contextlib.suppress(OSError):
            self._disk.unlink(path)

    def _close(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            self._disk.close(descriptor)
