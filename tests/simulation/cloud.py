"""An object store below the real `ObjectStore` and its retries: a request is a step, and its answer can get lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests.simulation.faults import Fault, NoAnswerError, RefusedError, When
from tests.simulation.files import File
from tests.simulation.process import Process
from tidelog.log.storage.cloud import Cloud, Diagnosed, Failure, by_kind
from tidelog.log.storage.object_store import ObjectStore
from tidelog.log.storage.store import FileStatus
from tidelog.log.system import System

URL = "s3://simulated/table"
_PREFIX = len("table/")
_SOON_MS = (0, 2_000)
# Longer than all retries of a request and of a commit, and up to hours.
_LATE_MS = (30_000, 3_600_000, 8 * 3_600_000)

_T = TypeVar("_T")


class SimCloud(Cloud):
    """The bucket as one process sees it. After the process has died its requests do nothing."""

    def __init__(self, process: Process) -> None:
        super().__init__(None)
        self.process = process
        self.world = process.world
        self.files = process.world.files

    @property
    def endpoint(self) -> str:
        return "https://simulated"

    @property
    def documented(self) -> bool:
        return True

    def put(self, bucket: str, key: str, content: bytes, *, create: bool) -> None:
        del bucket
        self._ask("put", key, lambda: self._write(key, content, create=create))

    def put_file(self, bucket: str, key: str, local: str) -> None:
        del bucket
        content = Path(local).read_bytes()
        self._ask("put_file", key, lambda: self._write(key, content, create=True))

    def read(self, bucket: str, key: str, start: int | None = None, end: int | None = None) -> bytes:
        del bucket
        return self._ask("read", key, lambda: self._found(key).content[start:end])

    def delete(self, bucket: str, key: str) -> None:
        del bucket
        if not self.process.is_gone:
            self._ask("delete", key, lambda: self._remove(key))

    def stat(self, bucket: str, key: str) -> FileStatus:
        del bucket
        return self._ask("stat", key, lambda: _status(key[_PREFIX:], self._found(key)))

    def entries(self, bucket: str, prefix: str, *, deep: bool) -> Iterator[tuple[str, FileStatus]]:
        """In two pages, each of which shows the state at its own time."""
        del bucket
        folder = prefix[_PREFIX:]

        def page(after: str) -> list[str]:
            found = (path for path in self.world.listed(self.process) if path.startswith(folder) and path > after)
            return sorted(path for path in found if deep or "/" not in path[len(folder) :])

        first = self._ask("list", prefix, lambda: page(""))
        if first and self.world.scenario.split_listings:
            size = self.world.random.randint(1, len(first))
            yield from self._statuses(first[:size])
            first = self._ask("list", prefix, lambda: page(first[size - 1]))
        yield from self._statuses(first)

    def folders(self, bucket: str, prefix: str, *, until: str) -> Iterator[str]:
        del bucket, until
        folder = prefix[_PREFIX:]

        def found() -> set[str]:
            below = (path[len(folder) :] for path in self.world.listed(self.process) if path.startswith(folder))
            return {path.partition("/")[0] for path in below if "/" in path}

        return iter(sorted(self._ask("list", prefix, found)))

    def diagnose(self, error: BaseException) -> Diagnosed:
        if isinstance(error, NoAnswerError):
            return Diagnosed(Failure.TRANSIENT, str(error))
        if isinstance(error, RefusedError):
            return Diagnosed(Failure.REJECTED, str(error))
        return Diagnosed(by_kind(error), str(error))

    def _statuses(self, paths: list[str]) -> Iterator[tuple[str, FileStatus]]:
        for path in paths:
            file = self.files.names.get(path) or self.files.archive[path]
            yield f"table/{path}", _status(path, file)

    def _ask(self, operation: str, key: str, effect: Callable[[], _T]) -> _T:
        """A step, and the request, unless it gets no answer."""
        path = key[_PREFIX:]
        fault = self.process.call(operation, path)
        if fault is None:
            return effect()
        self.world.scheduler.note(f"  fails: {fault.name}")
        match fault.when:
            case When.NEVER:
                pass
            case When.BEFORE_THE_ANSWER:
                _silently(effect)
            case When.SOON:
                self.world.scheduler.defer(self.world.random.randint(*_SOON_MS), lambda: self._later(fault, effect))
            case When.LATE:
                delay_ms = self.world.random.choice(_LATE_MS)
                self.world.scheduler.defer(delay_ms, lambda: self._later(fault, effect))
        raise fault.raised(path)

    def _later(self, fault: Fault, effect: Callable[[], object]) -> None:
        self.world.scheduler.note(f"  carried out now for {self.process.name}: {fault.name}")
        with self.world.acting(self.process):
            _silently(effect)

    def _write(self, key: str, content: bytes, *, create: bool) -> None:
        path = key[_PREFIX:]
        if create and path in self.files.names:
            raise FileExistsError(path)
        self.files.add(path, File(content, self.world.stamp_ms(), len(content)))
        self.files.durable.add(path)

    def _remove(self, key: str) -> None:
        if key[_PREFIX:] in self.files.names:
            self.files.remove(key[_PREFIX:])

    def _found(self, key: str) -> File:
        try:
            return self.files.names[key[_PREFIX:]]
        except KeyError:
            raise FileNotFoundError(key) from None


class SimObjectStore(ObjectStore):
    """The real object store, connected to a simulated cloud."""

    def __init__(self, process: Process, system: System) -> None:
        super().__init__(URL, system=system)
        self._simulated = SimCloud(process)

    @property
    def reads_at_once(self) -> int:
        return 1  # an actor is a greenlet, which no other thread can run

    @property
    def _cloud(self) -> Cloud:
        return self._simulated


def _silently(effect: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        effect()


def _status(path: str, file: File) -> FileStatus:
    return FileStatus(path.rpartition("/")[2], len(file.content), file.modified_ms // 1000 * 1000)
