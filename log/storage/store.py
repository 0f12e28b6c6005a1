"""The interface of every store, and what stores share.

Paths are relative to the table's root and use `/`; an absolute path or URI of the same kind of store is used as it is,
unless the store is confined to its root.
Commits rely on three guarantees: a file is visible whole or not at all, only one of several concurrent `put_if_absent`
calls for a path succeeds, and a listing shows everything written before it began.
"""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from tidelog.log.errors import OutsideFileError, StoreUnavailableError, TidelogError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file in a listing: bare `name`, size in bytes, modification time in ms since the epoch."""

    name: str
    size_bytes: int
    modified_ms: int


class UnreadableFileError(OSError):
    """What a path names is not a regular file, or it is too large to be read whole, or for the memory."""


def outside(path: str, url: str) -> OutsideFileError:
    """The error for a file that is outside the root of the store at `url`, if that is refused."""
    return OutsideFileError(
        f"the table at {url} names a file outside its folder: {path}",
        advice="if you trust the table, unset TIDELOG_OUTSIDE_FILES",
        path=url,
        file=path,
    )


class NotStoredError(StoreUnavailableError):
    """A put failed, and it is proven that nothing was stored and that nothing will be."""


class NotDurableError(StoreUnavailableError):
    """A put created the file, but a crash of the machine may undo that. Putting or reading it again proves nothing."""


class NotReadError(StoreUnavailableError, OSError):
    """The operating system could not read a file. An OSError, too, so that what is only a shortcut is done without."""


class Store(ABC):
    """The files below one root. Thread-safe, and picklable so that Spark's tasks can read.

    `storage_options` are as given by the caller, including secrets.
    """

    url: str
    storage_options: Mapping[str, Any] = MappingProxyType({})

    @property
    def reads_at_once(self) -> int:
        """How many files to read at the same time, each in a thread, for the highest speed; 1 for no threads."""
        return 1

    @property
    def small_reads_at_once(self) -> int:
        """The same for small files, such as commits; 1 where reading one is as fast as handing it to a thread."""
        return 1

    @property
    def trusted_s(self) -> float:
        """For how long a reader goes by its last look at the commit that it has loaded; 0 where a look costs little."""
        return 0

    @property
    def buffer_bytes(self) -> int:
        """How much of a column to read at once from a file of `open_input`; 0 for all that is stored together."""
        return 0

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole content of a file. Raises FileNotFoundError, UnreadableFileError."""

    def read_start(self, path: str, size_bytes: int) -> bytes:
        """The first `size_bytes` of a file, or more of it; all if it is smaller. Raises the same errors as `read`.

        Stores in which a part costs no more calls than the whole override this.
        """
        del size_bytes
        return self.read(path)

    @abstractmethod
    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Create the file as a whole if and only if it does not exist. Raises FileExistsError if it does.

        With `durable`, the content survives a crash of the machine once the call returns. Use `durable=False` only for
        hints that can be rebuilt.

        A ConfigurationError or a NotStoredError proves that nothing was stored. After a NotDurableError the file is
        there for now. After any other error the file may be there, or may still appear later.
        """

    @abstractmethod
    def replace(self, path: str, content: bytes) -> None:
        """Create or overwrite the file atomically. Use it only for pointers that can be rebuilt."""

    @abstractmethod
    def list(self, folder: str) -> list[FileStatus]:
        """The files (not folders) directly in `folder`, sorted by name; empty if the folder does not exist."""

    def names(self, folder: str) -> Collection[str]:
        """The bare names of the files that `list` would return, in any order.

        Stores that can list names without a lookup per file override this: a log can have hundreds of thousands.
        """
        return [status.name for status in self.list(folder)]

    def modified_times(self, folder: str, ending: str) -> Sequence[tuple[str, int]]:
        """Name and modification time, in ms since the epoch, of the files in `folder` with that ending; in any order.

        Stores that look at each file for its time override this: a log can have several files for each version.
        """
        return [(status.name, status.modified_ms) for status in self.list(folder) if status.name.endswith(ending)]

    def modified_times_of(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        """Modification times, in ms since the epoch, of those of `names` that are files directly in `folder`.

        The names are sorted, and few others should be between them: some stores list from the first to the last.
        """
        found = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = self.modified_ms(f"{folder}/{name}")
        return found

    def recent_names(self, folder: str, since: Callable[[], str]) -> tuple[Collection[str], str]:
        """The names that `names` returns, all of them or from some name on; and that name, or an empty text for all.

        Where a long listing takes many requests, it begins at the text that `since` returns, which is called only then.
        If that is empty, all names are returned.
        """
        del since
        return self.names(folder), ""

    @abstractmethod
    def folders(self, folder: str = "", *, until: str = "") -> Sequence[str]:
        """The bare names of the folders directly in `folder`, sorted; empty if it does not exist.

        Includes hidden folders and links to folders. If `until` is among the names, the others may be missing: finding
        one name can cost fewer calls than a listing.
        """

    @abstractmethod
    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        """Every file below the root, or below `folder`, with its path from the root, in no particular order.

        Includes hidden folders; does not follow links. A file that is written or deleted during the walk may or may not
        be included.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the file. Does nothing if it does not exist."""

    @property
    def deletes_at_once(self) -> int:
        """How many files `delete_each` deletes with one request; 1 if each takes its own."""
        return 1

    def delete_each(self, paths: Sequence[str]) -> dict[str, Exception]:
        """Delete the files, in any order. Returns the errors of those that could not be deleted.

        Stores that delete several files at a time override this.
        """
        failed: dict[str, Exception] = {}
        for path in paths:
            try:
                self.delete(path)
            except (TidelogError, OSError) as error:
                failed[path] = error
        return failed

    @abstractmethod
    def open_input(self, path: str) -> Any:
        """Open the file for random access by pyarrow. Raises FileNotFoundError, UnreadableFileError.

        A file that is truncated while it is open gives fewer bytes than asked for.
        """

    @abstractmethod
    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Create a file with a name never used before. Durable once the block ends; removed if the block raises."""

    def create_unsynced(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Like `create`, but a crash of the machine can lose the file until `sync` has returned.

        Many files are durable sooner if they are synced together. Only stores that sync files override this.
        """
        return self.create(path)

    @abstractmethod
    def modified_ms(self, path: str) -> int:
        """The file's modification time in ms since the epoch. Raises FileNotFoundError."""

    def appeared_ms(self, path: str) -> int:
        """A time in ms at or after which the file got its name, by the store's clock. Raises FileNotFoundError.

        In an object store both times are one. On a disk a file is written under another name and then gets its own,
        and its writer can be paused in between; the time is later still if somebody changes the file's owner or links.
        """
        return self.modified_ms(path)

    def sync(self, paths: Sequence[str]) -> None:  # noqa: B027 - an object is durable once it is visible
        """Make files below the root durable that `create_unsynced` or another program (Spark's JVM) wrote."""

    def remove_empty_folders(self) -> None:  # noqa: B027 - most stores have no folders
        """Remove empty folders, including the root, if the store has folders."""


# --- what Arrow reads -------------------------------------------------------------------------------------------------
#
# Arrow's threads may release what they read after the read has returned, even while Python exits. To release an object
# of Python, a thread waits for the interpreter's lock, and then the whole process aborts. So Arrow gets a copy.


def arrow_input(content: bytes) -> Any:
    """The content as a file that Arrow reads. Arrow holds no object of Python."""
    copy = pa.allocate_buffer(len(content))
    memoryview(copy).cast("B")[:] = content
    return pa.BufferReader(copy)  # noqa: TID251 - the buffer is Arrow's


def read_whole(source: Any) -> pa.Buffer:
    """What is left of an open file. Fewer bytes than its size if it ends earlier. Arrow holds no object of Python."""
    buffer = pa.allocate_buffer(source.size() - source.tell())
    return buffer.slice(0, source.readinto(buffer))


class SeekableFile(io.RawIOBase):
    """A file of `size` bytes with a position. A subclass reads from there."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._position = 0

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


# --- two pieces of work at the same time ------------------------------------------------------------------------------


def begun(work: Callable[[], _T], name: str) -> Future[_T] | None:
    """The work, begun in a thread; None if there can be no thread: the process may have no more, or be ending."""
    pool = ThreadPoolExecutor(1, name)
    try:
        return pool.submit(work)
    except RuntimeError:
        return None
    finally:
        pool.shutdown(wait=False)


def side_by_side(store: Store, first: Callable[[], _T], second: Callable[[], object]) -> _T:
    """Do both, and return the result of `first`.

    Where a call to the store mostly waits, `second` runs in a thread meanwhile; elsewhere it runs afterwards, unless
    `first` raises. An error of `first` counts more than one of `second`. No thread is left on return.
    """
    return _both(first, second, at_once=store.small_reads_at_once > 1)


def while_synced(store: Store, paths: Sequence[str], work: Callable[[], _T]) -> _T:
    """Do `work` while a thread waits until files are durable (`Store.sync`), and return its result.

    A store that reads one file at a time has no threads: there the files are synced afterwards. For errors see
    `side_by_side`.
    """
    return _both(work, lambda: store.sync(paths), at_once=store.reads_at_once > 1)


def _both(first: Callable[[], _T], second: Callable[[], object], *, at_once: bool) -> _T:
    other = begun(second, "tidelog-beside") if at_once else None
    if other is None:
        result = first()
        second()
        return result
    try:
        result = first()
    finally:
        wait([other])
    other.result()
    return result
