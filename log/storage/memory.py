"""Files in this process's memory, shared by all tables opened at the same `memory://` URL. For tests and trials."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, BinaryIO

import pyarrow as pa

from tidelog.log.storage.store import FileStatus, Store, arrow_input
from tidelog.log.system import REAL_SYSTEM, System


class MemoryStore(Store):
    """A dictionary from path to (content, modification time)."""

    _shared: dict[str, dict[str, tuple[bytes, int]]] = {}  # noqa: RUF012 - one registry per process
    _lock = Lock()

    def __init__(self, url: str, *, system: System = REAL_SYSTEM) -> None:
        self.url = url.rstrip("/")
        self._system = system
        with self._lock:
            self._files = self._shared.setdefault(self.url, {})

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[str]]:
        return MemoryStore, (self.url,)

    @property
    def reads_at_once(self) -> int:
        """See Store."""
        return int(pa.cpu_count())

    def read(self, path: str) -> bytes:
        """See Store."""
        try:
            return self._files[self._key(path)][0]
        except KeyError as error:
            raise FileNotFoundError(path) from error

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """See Store."""
        del durable  # nothing here outlives the process
        with self._lock:
            if self._key(path) in self._files:
                raise FileExistsError(path)
            self._files[self._key(path)] = (content, self._system.now_ms())

    def replace(self, path: str, content: bytes) -> None:
        """See Store."""
        with self._lock:
            self._files[self._key(path)] = (content, self._system.now_ms())

    def list(self, folder: str) -> list[FileStatus]:
        """See Store."""
        key = self._key(folder)
        prefix = f"{key}/" if key else ""
        with self._lock:
            found = [(path[len(prefix) :], entry) for path, entry in self._files.items() if path.startswith(prefix)]
        return sorted(
            (FileStatus(name, len(entry[0]), entry[1]) for name, entry in found if "/" not in name),
            key=lambda status: status.name,
        )

    def folders(self, folder: str = "", *, until: str = "") -> Sequence[str]:
        """See Store. The files of stores below this one count as files of this one."""
        del until
        root = f"{self.url}/{self._key(folder)}".rstrip("/") + "/"
        with self._lock:
            urls = [url for url in self._shared if f"{url}/".startswith(root) or root.startswith(f"{url}/")]
            files = [f"{url}/{path}" for url in urls for path in self._shared[url]]
        rests = (file[len(root) :] for file in files if file.startswith(root))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        """See Store."""
        prefix = f"{folder}/" if folder else ""
        with self._lock:
            found = [(path, entry) for path, entry in self._files.items() if path.startswith(prefix)]
        for path, (content, modified_ms) in found:
            yield path, FileStatus(path.rpartition("/")[2], len(content), modified_ms)

    def delete(self, path: str) -> None:
        """See Store."""
        with self._lock:
            self._files.pop(self._key(path), None)

    def open_input(self, path: str) -> Any:
        """See Store."""
        return arrow_input(self.read(path))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """See Store."""
        buffer = io.BytesIO()
        yield buffer
        self.put_if_absent(path, buffer.getvalue())

    def modified_ms(self, path: str) -> int:
        """See Store."""
        try:
            return self._files[self._key(path)][1]
        except KeyError as error:
            raise FileNotFoundError(path) from error

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self.url}/")
