"""Wrappers that make a store fail the way real ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from tidelog.log.errors import StoreUnavailableError
from tidelog.log.format import filenames
from tidelog.log.storage import FileStatus, Store


class Around(Store):
    """Passes every call on to the inner store; subclasses interfere."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self.inner.put_if_absent(path, content, durable=durable)

    def replace(self, path: str, content: bytes) -> None:
        self.inner.replace(path, content)

    def list(self, folder: str) -> list[FileStatus]:
        return self.inner.list(folder)

    def folders(self, folder: str = "", *, until: str = "") -> Sequence[str]:
        return self.inner.folders(folder, until=until)

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        return self.inner.walk(folder)

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def open_input(self, path: str) -> Any:
        return self.inner.open_input(path)

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self.inner.create(path)

    def modified_ms(self, path: str) -> int:
        return self.inner.modified_ms(path)

    def appeared_ms(self, path: str) -> int:
        return self.inner.appeared_ms(path)


class Counting(Around):
    """Counts listings of the log and remembers the paths read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.lists = 0
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)

    def list(self, folder: str) -> list[FileStatus]:
        self.lists += folder == filenames.LOG_FOLDER
        return super().list(folder)


class LostAnswer(Around):
    """The next `failures` puts of a commit are stored and then raise, as if the answer was lost.

    `also` runs between the write and the error; it can write more, or make later reads fail.
    """

    def __init__(
        self, inner: Store, *, failures: int = 1, error: Exception | None = None, also: Callable[[], None] | None = None
    ) -> None:
        super().__init__(inner)
        self.failures = failures
        self._error = error or StoreUnavailableError("the answer was lost", path=inner.url)
        self._also = also

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        super().put_if_absent(path, content, durable=durable)
        if path.endswith(".json") and self.failures:
            self.failures -= 1
            if self._also:
                self._also()
            raise self._error


class NotWritten(Around):
    """The next `failures` puts of a commit fail before anything is stored; `attempts` counts all puts."""

    def __init__(self, inner: Store, *, failures: int = 1, also: Callable[[], None] | None = None) -> None:
        super().__init__(inner)
        self.failures = failures
        self.attempts = 0
        self._also = also

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.endswith(".json"):
            self.attempts += 1
            if self.failures:
                self.failures -= 1
                if self._also:
                    self._also()
                raise StoreUnavailableError("no connection", path=self.url)
        super().put_if_absent(path, content, durable=durable)


class Unreadable(Around):
    """While `broken`, reading a path that ends with `suffix` raises `error`."""

    def __init__(self, inner: Store, *, suffix: str, error: Exception) -> None:
        super().__init__(inner)
        self.broken = False
        self._suffix = suffix
        self._error = error

    def read(self, path: str) -> bytes:
        if self.broken and path.endswith(self._suffix):
            raise self._error
        return super().read(path)


class Refusing(Around):
    """Writing a path that ends with `suffix` raises `error`."""

    def __init__(self, inner: Store, *, suffix: str, error: Exception) -> None:
        super().__init__(inner)
        self._suffix = suffix
        self._error = error

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        if path.endswith(self._suffix):
            raise self._error
        super().put_if_absent(path, content, durable=durable)

    def replace(self, path: str, content: bytes) -> None:
        if path.endswith(self._suffix):
            raise self._error
        super().replace(path, content)


class Deleting(Around):
    """Records deletions. Raises after `allowed` of them, and for a path that ends with `suffix`.

    The files by which clean-ups read the store's clock do not count.
    """

    def __init__(
        self,
        inner: Store,
        *,
        allowed: int | None = None,
        suffix: str | None = None,
        also: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self.deleted: list[str] = []
        self._allowed = allowed
        self._suffix = suffix
        self._also = also

    def delete(self, path: str) -> None:
        if path.endswith(".clock"):
            super().delete(path)
            return
        if self._also:
            self._also(path)
        if len(self.deleted) == self._allowed or (self._suffix and path.endswith(self._suffix)):
            raise StoreUnavailableError("no connection", path=self.url)
        super().delete(path)
        self.deleted.append(path)


class Paused(Around):
    """Runs `meanwhile` once, before the call with the number `before` (from 0); `calls` counts all calls."""

    def __init__(self, inner: Store, *, before: int = -1, meanwhile: Callable[[], object] | None = None) -> None:
        super().__init__(inner)
        self.calls = 0
        self.before = before
        self._meanwhile = meanwhile

    def read(self, path: str) -> bytes:
        self._step()
        return super().read(path)

    def put_if_absent(self, path: str, content: bytes, *, durable: bool = True) -> None:
        self._step()
        super().put_if_absent(path, content, durable=durable)

    def replace(self, path: str, content: bytes) -> None:
        self._step()
        super().replace(path, content)

    def list(self, folder: str) -> list[FileStatus]:
        self._step()
        return super().list(folder)

    def walk(self, folder: str = "") -> Iterator[tuple[str, FileStatus]]:
        self._step()
        return super().walk(folder)

    def delete(self, path: str) -> None:
        self._step()
        super().delete(path)

    def open_input(self, path: str) -> Any:
        self._step()
        return super().open_input(path)

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._step()
        return super().create(path)

    def modified_ms(self, path: str) -> int:
        self._step()
        return super().modified_ms(path)

    def _step(self) -> None:
        number = self.calls
        self.calls += 1
        if number == self.before and self._meanwhile:
            self._meanwhile()
