"""A disk below the real `LocalStore`: each system call is a step, and can fail, before or after its effect."""

from __future__ import annotations

import errno
import io
import itertools
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from tests.simulation.faults import Fault, When
from tests.simulation.files import File
from tests.simulation.process import Process
from tidelog.log.storage.local import Disk
from tidelog.log.storage.store import arrow_input

ROOT = Path("/simulated/table")
_PARENT = ".."
_PREFIX = len(str(ROOT)) + 1


class Stat(NamedTuple):
    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True)
class Entry:
    """What `os.scandir` yields. As there, size and time are looked up when they are asked for."""

    disk: SimDisk
    path: str
    file: File | None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def is_file(self) -> bool:
        return self.file is not None

    def is_dir(self) -> bool:
        return self.file is None

    def is_symlink(self) -> bool:
        return False

    def stat(self) -> Stat:
        assert self.file is not None
        if self.path not in self.disk.files.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        return Stat(len(self.file.content), self.file.modified_ms * 1_000_000)


class SimFile(io.BytesIO):
    """A file that is being written. What is written shows when it is flushed.

    A process that dies before it has synced or closed the file leaves any part of it.
    """

    def __init__(self, disk: SimDisk, file: File, path: str) -> None:
        super().__init__()
        self._disk, self._file, self._path = disk, file, path

    def flush(self) -> None:
        if self._disk.process.dead and not self._file.synced:  # torn
            self._file.content = self.getvalue()[: self._disk.world.beside.randint(0, len(self.getvalue()))]
        elif not self._disk.process.is_gone:
            self._file.content = self.getvalue()
            self._file.modified_ms = self._disk.world.stamp_ms()

    def fileno(self) -> int:
        return self._disk.descriptor(self._path)

    def close(self) -> None:
        if not self.closed:
            self.flush()
        super().close()


class SimDisk(Disk):
    """The disk as one process sees it. After the process has died its calls do nothing."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self.files = process.world.files
        self._descriptors: dict[int, str] = {}

    @property
    def reads_at_once(self) -> int:
        return 1  # an actor is a greenlet, which no other thread can run

    def read(self, path: str, start_bytes: int | None = None) -> bytes:
        key = path[_PREFIX:]
        self._call("read", key)
        return self._found(key).content[:start_bytes]

    def open_input(self, path: Path) -> Any:
        key = _key(path)
        self._call("read", key)
        return arrow_input(self._found(key).content)

    def open_new(self, path: Path) -> BinaryIO:
        key = _key(path)
        after = self._call("open_new", key)
        if key.rpartition("/")[0] not in self.files.folders:
            raise _error(errno.ENOENT, key)
        if key in self.files.names:
            raise _error(errno.EEXIST, key)
        file = File(b"", self.world.stamp_ms())
        self.files.add(key, file)
        _answer(after, key)
        return cast("BinaryIO", SimFile(self, file, key))

    def open_descriptor(self, path: Path) -> int:
        key = _key(path)
        self._call("open_descriptor", key)
        if key not in self.files.names and key not in self.files.folders and key != _PARENT:
            raise _error(errno.ENOENT, key)
        return self.descriptor(key)

    def descriptor(self, key: str) -> int:
        number = len(self._descriptors) + 3
        self._descriptors[number] = key
        return number

    def fsync(self, descriptor: int) -> None:
        key = self._descriptors[descriptor]
        file = self.files.names.get(key)
        after = self._call("fsync", key)
        if file is not None:
            file.synced = len(file.content)
        else:
            prefix = f"{key}/" if key else ""
            every = itertools.chain(self.files.names, self.files.folders)
            names = (path for path in every if path.startswith(prefix) and "/" not in path[len(prefix) :])
            self.files.durable.update(names)
        _answer(after, key)

    def for_each(self, action: Callable[[Path], None], paths: Collection[Path]) -> None:
        for path in sorted(paths):
            action(path)

    def close(self, descriptor: int) -> None:
        self._descriptors[descriptor] = ""

    def link(self, source: Path, target: Path) -> None:
        key = _key(target)
        after = self._call("link", key)
        if key in self.files.names:
            raise _error(errno.EEXIST, key)
        file = self._found(_key(source))
        file.changed_ms = self.world.store_ms
        self.files.add(key, file)
        _answer(after, key)

    def rename(self, source: Path, target: Path) -> None:
        key = _key(target)
        after = self._call("rename", key)
        file = self._found(_key(source))
        file.changed_ms = self.world.store_ms
        self.files.remove(_key(source))
        self.files.add(key, file)
        _answer(after, key)

    def unlink(self, path: Path) -> None:
        if self.process.is_gone:
            return
        key = _key(path)
        after = self._call("unlink", key)
        self._found(key).changed_ms = self.world.store_ms
        self.files.remove(key)
        _answer(after, key)

    def make_folder(self, path: Path) -> None:
        key = _key(path)
        after = self._call("make_folder", key)
        if key and key.rpartition("/")[0] not in self.files.folders:
            raise _error(errno.ENOENT, key)
        self.files.add_folder(key)
        _answer(after, key)

    def remove_folder(self, path: Path) -> None:
        key = _key(path)
        self._call("remove_folder", key)
        if any(self.files.below(key)) or any(
            other.startswith(f"{key}/" if key else "") for other in self.files.folders if other != key
        ):
            raise _error(errno.ENOTEMPTY, key)
        self.files.remove_folder(key)

    def is_folder(self, path: Path) -> bool:
        key = _key(path)
        self._call("is_folder", key)
        return key in self.files.folders or not str(path).startswith(str(ROOT))

    def exists(self, path: Path) -> bool:
        key = _key(path)
        self._call("exists", key)
        return key in self.files.folders or key in self.files.names

    def names_state(self, folder: Path) -> object:
        """Not a step of its own: it comes right after another one."""
        return self.files.names_state(_key(folder))

    def modified_ms(self, path: Path) -> int:
        key = _key(path)
        self._call("stat", key)
        return self._found(key).modified_ms

    def appeared_ms(self, path: Path) -> int:
        key = _key(path)
        self._call("stat", key)
        file = self._found(key)
        return max(file.modified_ms, file.changed_ms)

    def modified_times(self, folder: Path, ending: str) -> list[tuple[str, int]]:
        found = [entry for entry in self.entries(folder) if entry.name.endswith(ending)]
        return [(entry.name, entry.stat().st_mtime_ns // 1_000_000) for entry in found]

    def modified_times_of(self, folder: Path, names: Collection[str]) -> list[tuple[str, int]]:
        return [(name, self.modified_ms(folder / name)) for name in names if self.exists(folder / name)]

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """Reads the folder in two calls; what changes in between may or may not be in the result."""
        key = _key(folder)
        after = self._call("entries", key)
        before = self._names(key)
        order = list(before)
        self.world.random.shuffle(order)
        first = order[: self.world.random.randint(0, len(order))]
        if first and self.world.scenario.split_listings:
            self._call("entries again", key)
        later = self._names(key)
        seen = set(first)
        second = [name for name in later if name not in seen]
        if after is not None:
            raise after.raised(key)
        return [
            cast("os.DirEntry[str]", Entry(self, path, file))
            for path, file in [*((name, before[name]) for name in first), *((name, later[name]) for name in second)]
        ]

    def folders(self, root: Path) -> Iterator[Path]:
        self._call("folders", _key(root))
        for key in sorted(self.files.folders, key=lambda key: (-key.count("/") - bool(key), key)):
            yield ROOT / key if key else ROOT

    def _names(self, folder: str) -> dict[str, File | None]:
        if folder not in self.files.folders:
            raise _error(errno.ENOENT, folder)
        prefix = f"{folder}/" if folder else ""
        start = len(prefix)
        found: dict[str, File | None] = {
            path: file
            for path, file in self.world.listed(self.process).items()
            if path.startswith(prefix) and "/" not in path[start:]
        }
        for path in sorted(self.files.folders):
            if path and path.startswith(prefix) and "/" not in path[start:]:
                found[path] = None
        return found

    def _found(self, key: str) -> File:
        try:
            return self.files.names[key]
        except KeyError:
            raise _error(errno.ENOENT, key) from None

    def _call(self, operation: str, key: str) -> Fault | None:
        """A step. Raises the error of a call that fails; returns the fault of one that is carried out first."""
        fault = self.process.call(operation, key)
        if fault is not None and fault.when is When.NEVER:
            self.world.scheduler.note(f"  fails: {fault.name}")
            raise fault.raised(key)
        return fault


def _answer(fault: Fault | None, key: str) -> None:
    if fault is not None:
        raise fault.raised(key)


def _key(path: Path) -> str:
    return _PARENT if path == ROOT.parent else str(path)[_PREFIX:]


def _error(code: int, key: str) -> OSError:
    return OSError(code, os.strerror(code), key)
