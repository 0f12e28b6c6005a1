"""Read files ahead of the consumer in threads, and give their batches in order.

A store says how many files are worth reading at once (`Store.reads_at_once`): on a disk as many as there are cores to
decode them, in an object store many more, because there a reader mostly waits. Each thread fills the queue of one file,
and the consumer takes from the queue of the first file only. No thread ever waits for the consumer: once the queues
hold enough, a thread leaves its file where it is and ends its turn, and the consumer starts a turn when there is room
again. So a consumer that stops, or an interpreter that exits, is not held up for longer than reading one batch takes.

Several readings can share the threads of a machine (`SharedThreads`). Before each turn a reading looks how many are its
own by now. One that has a single thread starts none: the consumer reads by itself.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import Condition, Lock, get_ident
from typing import TypeAlias

import pyarrow as pa

from tidelog.log.errors import ConfigurationError

QUEUED_BYTES = 2**27
"""Once the queues hold so much, no thread reads another batch, except the first file's if its queue is empty.

This is enough for several files of common sizes, so that no thread waits for a consumer that is about as fast. Beyond
it, there can be one batch of each file that is being read, and what the parquet reader keeps of such a file.
"""
FILES_AHEAD = 64
"""Files that are open or in the queues. Files of which no row is wanted hold nothing, and would be read for ever."""
BATCH_BYTES = 2**10
"""Counted for each batch besides its rows: a batch without columns has none, but it is not nothing."""

Reading: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]
"""Begins to read a file. Nothing is opened before the first batch is asked for."""


class SharedThreads:
    """Threads that all readings at work share equally; each has one at least. Thread-safe."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._readings = 0
        self._lock = Lock()

    def share(self) -> int:
        """How many threads a reading may have at the moment."""
        return max(1, self.threads // max(1, self._readings))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Counts a reading as long as it is at work."""
        with self._lock:
            self._readings += 1
        try:
            yield
        finally:
            with self._lock:
                self._readings -= 1


def read_ahead(
    files: Iterable[Reading], threads: int | SharedThreads, *, queued_bytes: int | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of all `files`, in order, read by up to `threads` threads. Anything with `nbytes` can be a batch.

    An error is raised in its place: after the batches before it, and before those of later files. A single file is read
    by the caller's own thread. When the iterator is exhausted or closed, no thread is left and all files are closed.
    """
    shared = threads if isinstance(threads, SharedThreads) else SharedThreads(threads)
    rest = iter(files)
    first = list(islice(rest, 2))
    if shared.threads <= 1 or len(first) <= 1:
        for file in chain(first, rest):
            yield from file()
        return
    with shared.reading():
        readers = _Readers(chain(first, rest), shared, queued_bytes)
        try:
            yield from readers.batches()
        finally:
            readers.close()


@dataclass(eq=False, slots=True)
class _File:
    """A file that is being read, or has been. `busy` means that a thread reads it now."""

    batches: Iterator[pa.RecordBatch]
    queue: deque[pa.RecordBatch] = field(default_factory=deque)
    busy: bool = True
    ended: bool = False
    error: BaseException | None = None


class _Readers:
    """The files in order, the first of which is the consumer's, and the threads. `_changed` guards all of it."""

    def __init__(self, files: Iterator[Reading], threads: SharedThreads, queued_bytes: int | None = None) -> None:
        self._waiting = files
        self._queued_bytes = queued_bytes or QUEUED_BYTES
        self._threads = threads
        # It starts a thread for a turn only if none is free.
        self._pool = ThreadPoolExecutor(threads.threads, "tidelog-read-ahead")
        self._changed = Condition()
        self._files: deque[_File] = deque()
        self._turns = 0
        self._held_bytes = 0
        self._closed = False
        self._process = os.getpid()
        self._readers: set[int] = set()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in order."""
        while True:
            self._require_own_process()
            with self._changed:
                self._start_turns()
                batch = self._take()
            if batch is None:
                return
            yield batch

    def close(self) -> None:
        """End the threads and close the files. Returns when it is done."""
        if os.getpid() != self._process:
            return  # forked: the threads are not here, and one of them may have held the lock
        with self._changed:
            self._closed = True
        # The garbage collector can close a forgotten iterator in any thread, also in one of these.
        self._pool.shutdown(wait=get_ident() not in self._readers, cancel_futures=True)
        for file in self._files:
            with suppress(Exception):  # of a file that nobody needs any more
                getattr(file.batches, "close", lambda: None)()
        self._files.clear()

    def _take(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None after the last one. Raises what the first file's reader raised."""
        while True:
            if not self._files:
                self._start_turns()
            first = self._files[0] if self._files else None
            if first is not None and first.queue:
                batch = first.queue.popleft()
                self._held_bytes -= _held_bytes(batch)
                return batch
            if first is not None and first.error is not None:
                error, first.error = first.error, None
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame, and a cycle would keep the file's memory for a while
            if first is not None and first.ended:
                self._files.popleft()
                self._start_turns()
            elif self._turns:
                # One of the threads reads the first file, or is between two files and may begin it.
                self._changed.wait()
            elif file := self._next_file():
                self._read(file)
                file.busy = False
            else:
                return None

    def _start_turns(self) -> None:
        while self._turns < self._most_turns() and (file := self._next_file()):
            self._turns += 1
            self._pool.submit(self._turn, file)

    def _most_turns(self) -> int:
        share = self._threads.share()
        return share if share > 1 else 0

    def _turn(self, file: _File | None) -> None:
        """Read files until there is no room, or nothing to read."""
        self._readers.add(get_ident())
        while file is not None:
            self._fill(file)
            with self._changed:
                file = self._next_file() if self._turns <= self._most_turns() else None
                self._turns -= file is None
                self._changed.notify()

    def _fill(self, file: _File) -> None:
        """Read batches of a file until there is no room or it ends."""
        while file.busy:
            self._read(file)

    def _read(self, file: _File) -> None:
        """Read the next batch of a file, which is busy as long as there is room for another one."""
        batch = error = None
        try:
            batch = next(file.batches, None)
        except BaseException as raised:  # noqa: BLE001 - the consumer raises it
            error = raised
        with self._changed:
            if batch is None:
                file.ended, file.error, file.busy = True, error, False
                if error is not None:
                    self._waiting = iter(())  # the consumer will not come to any later file
            else:
                file.queue.append(batch)
                self._held_bytes += _held_bytes(batch)
                file.busy = self._has_room(file)
            self._changed.notify()

    def _next_file(self) -> _File | None:
        """The first file that can be read on, or the next one that waits; None if there is none, or no room."""
        for file in self._files:
            if not file.busy and not file.ended and self._has_room(file):
                file.busy = True
                return file
        if not self._files or (self._has_room(self._files[-1]) and len(self._files) < FILES_AHEAD):
            try:
                file = _File(next(self._waiting)())
            except StopIteration:
                return None
            except BaseException as error:  # noqa: BLE001 - the consumer raises it, when it comes to this file
                file = _File(_raised(error))
            self._files.append(file)
            return file
        return None

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise ConfigurationError(
                "a read that was begun in another process cannot be continued in this one",
                advice="read again in this process: every call of a scan's methods begins anew",
            )

    def _has_room(self, file: _File) -> bool:
        """Whether another batch of `file` may be read."""
        if self._closed:
            return False
        return self._held_bytes < self._queued_bytes or (file is self._files[0] and not file.queue)


def _raised(error: BaseException) -> Iterator[pa.RecordBatch]:
    raise error
    yield  # this makes it an iterator


def _held_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes) + BATCH_BYTES
