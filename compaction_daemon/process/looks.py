"""Looks at many tables in parallel: each is mostly a wait for a store, and one that takes long holds back no other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self, TypeAlias
from weakref import WeakSet

from tidelog.compaction_daemon.process.watched_tables import WatchedTable
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError
from tidelog.log.system import System

# A look ends with the table at its newest version, or with what kept it from being opened.
_Found: TypeAlias = Table | Exception
_Look: TypeAlias = Callable[[WatchedTable], _Found]

# Object stores answer within 20 to 50 ms: 8 at once look at 1,000 tables in less than 10 s.
_AT_ONCE = 8
# A store that does not answer takes up to a minute for each look, and keeps a thread for so long.
_MOST_THREADS = 64
_DOUBTFUL_AT_ONCE = 4
# After so long without an answer the loop goes on with other things.
_PATIENCE_S = 2.0


def looks_in_order(look: _Look, tables: Sequence[WatchedTable]) -> Iterator[tuple[WatchedTable, _Found]]:
    """A look at each of these tables, in this order."""
    if len(tables) == 1:
        yield tables[0], look(tables[0])
        return
    threads = ThreadPoolExecutor(_AT_ONCE, "tidelog-look")
    try:
        begun: deque[Future[_Found]] = deque()
        for number, watched in enumerate(tables):
            begun.extend(threads.submit(look, each) for each in tables[number + len(begun) : number + _AT_ONCE])
            yield watched, begun.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)


class Looks:
    """The looks of a daemon that runs. Only its loop may call it, but for `begun_s`.

    Args:
        look: Looks at a table.
        system: The clock.
        wake: Is called when the loop should ask for `ready` again.
    """

    def __init__(self, look: _Look, system: System, wake: Callable[[], None]) -> None:
        self._look = look
        self._system = system
        self._wake = wake
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "tidelog-look")
        # Tables whose last look ended with an error are looked at apart: the next one may take a minute again.
        self._doubtful: WeakSet[WatchedTable] = WeakSet()
        self._doubtful_threads = ThreadPoolExecutor(_DOUBTFUL_AT_ONCE, "tidelog-doubtful-look")
        # What the loop no longer waits for.
        self._late: dict[WatchedTable, Future[_Found]] = {}
        self._begun_s: dict[WatchedTable, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Begin no further look. Those that are under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._doubtful_threads.shutdown(wait=False, cancel_futures=True)

    @property
    def under_way(self) -> Collection[WatchedTable]:
        """The tables whose look takes long, with those that are ready."""
        return self._late.keys()

    @property
    def has_ready(self) -> bool:
        """Whether a look that took long has ended."""
        return any(future.done() for future in self._late.values())

    @property
    def begun_s(self) -> list[float]:
        """When each of the looks that are under way began; safe in any thread."""
        return list(self._begun_s.values())

    def ready(self, tables: Sequence[WatchedTable]) -> Iterator[tuple[WatchedTable, _Found]]:
        """Look at these tables, none of which is being looked at. Yields looks as they end, also those begun before.

        The looks that take long, and those at tables that could not be opened before, are left to a later call.
        """
        for watched in tables:
            if watched in self._doubtful:
                self._leave(watched, self._doubtful_threads.submit(self._looked, watched))
        for watched in [watched for watched, future in self._late.items() if future.done()]:
            yield watched, self._found(watched, self._late.pop(watched))
        rest = deque(watched for watched in tables if watched not in self._late)
        begun: dict[Future[_Found], WatchedTable] = {}
        ended: SimpleQueue[Future[_Found]] = SimpleQueue()
        while rest or begun:
            while rest and len(begun) < _AT_ONCE:
                future = self._threads.submit(self._looked, rest[0])
                begun[future] = rest.popleft()
                future.add_done_callback(ended.put)
            try:
                future = ended.get(timeout=_PATIENCE_S)
            except Empty:
                for future, watched in begun.items():
                    self._leave(watched, future)
                return
            watched = begun.pop(future)
            yield watched, self._found(watched, future)

    def _looked(self, watched: WatchedTable) -> _Found:
        self._begun_s[watched] = self._system.monotonic_s()
        try:
            return self._look(watched)
        finally:
            del self._begun_s[watched]

    def _leave(self, watched: WatchedTable, future: Future[_Found]) -> None:
        self._late[watched] = future
        future.add_done_callback(lambda _: self._wake())

    def _found(self, watched: WatchedTable, future: Future[_Found]) -> _Found:
        found = future.result()
        # That there is no table is an answer, and a quick one.
        if isinstance(found, Exception) and not isinstance(found, TableNotFoundError):
            self._doubtful.add(watched)
        else:
            self._doubtful.discard(watched)
        return found
