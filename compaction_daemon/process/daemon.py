"""A long-running process that compacts tables and writes their checkpoints, alongside their writers.

It looks at many tables in parallel: each look is mostly a wait for a store, and one that takes long holds back no
other.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Self, TypeAlias
from weakref import WeakSet

from tidelog.compaction_daemon.compaction.executors import DaemonExecutor
from tidelog.compaction_daemon.leases import new_owner
from tidelog.compaction_daemon.process.daemon_status import DaemonStatus
from tidelog.compaction_daemon.process.table_step import StepReport, TableStep, TableStepper
from tidelog.compaction_daemon.process.watched_tables import WatchedTable, WatchedTables, require_tables
from tidelog.compaction_daemon.settings.config import DaemonConfig
from tidelog.compaction_daemon.settings.sources import TableSource
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, TableNotFoundError
from tidelog.log.system import REAL_SYSTEM, System, to_datetime

# What is done for one table is bounded by the bytes that one compaction reads. A loop that does not get on for longer
# than this hangs.
STALLED_S = 900.0

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


class Daemon:
    """Compact tables, write their checkpoints and clean them up until stopped.

    `step` does one bounded round of work, for programs and tests; `run` repeats it until SIGTERM or SIGINT. The process
    can be killed at any moment: each group of a compaction is in one commit, and files that were not committed are
    garbage that `vacuum` deletes.

    A table that does not exist yet is waited for. One that is dropped and created again is followed. An error of one
    table is reported and does not keep the rest from being compacted.

    Args:
        tables: The tables, or their paths; globs and `TableSource`s that find tables; at least one.
        config: How to run; by default `DaemonConfig()`.
        clock: Replaces the real clock of the daemon and of its tables, for tests.
        executor: A `concurrent.futures` executor that rewrites groups of files in parallel, or a function that makes
            one, such as `lambda: ProcessPoolExecutor(2)`; by default some threads of this process do. A pool of
            processes cannot be used any more after one of them was killed, so give a function for it: it is called
            again.
        on_step: Is called with the report of every step.

    Raises:
        ConfigurationError: `tables` is empty or a string, or has something that cannot be a path, or `executor` is no
            executor.

    Example:
        Daemon(["/data/events", "/data/users"]).run()
    """

    def __init__(
        self,
        tables: Sequence[Table | str | TableSource],
        *,
        config: DaemonConfig | None = None,
        clock: System | None = None,
        executor: Executor | Callable[[], Executor] | None = None,
        on_step: Callable[[StepReport], None] | None = None,
    ) -> None:
        self._system = clock or REAL_SYSTEM
        if not isinstance(config, DaemonConfig | None):
            raise ConfigurationError(
                f"the configuration of a daemon must be a DaemonConfig, not {type(config).__name__}",
                advice="pass one, such as DaemonConfig(interval_s=60); it is in tidelog.compaction_daemon",
            )
        self._config = config or DaemonConfig()
        self._tables = WatchedTables(tables, self._config, self._system, keep_handles=clock is None)
        self._owner = new_owner(self._system)
        self._executor = None if executor is None else DaemonExecutor(executor)
        self._stepper = TableStepper(
            self._config, self._owner, self._system, self._executor, stopping=lambda: self._stopped
        )
        # Those of `run`; None while it does not run.
        self._looks: Looks | None = None
        self._on_step = on_step
        self._stopped = False
        # An Event would not do: its lock can be held when a signal handler wants it. A SimpleQueue is made for that.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._reconfigured: tuple[DaemonConfig, Sequence[Table | str | TableSource]] | None = None
        self._started_ms = self._system.now_ms()
        self._steps = 0
        # When the loop last got on, or the end of the rest or sleep that it is in; None while it does not run.
        self._got_on_s: float | None = None
        self._last_step: datetime | None = None
        self._last_step_seconds = 0.0
        self._rest_until_s = 0.0

    def step(self) -> StepReport:
        """Do one round of work: at most one checkpoint and one compaction for each table.

        An error of one table, such as a conflict or a store that does not answer, is reported and does not keep the
        rest from being compacted. The table is skipped for a while, twice as long after each failure, up to 5 minutes.

        Returns:
            What was done for each table, except those that failed a short while ago.
        """
        self._got_on_s = self._system.monotonic_s()
        try:
            self._tables.search_if_due()
            now_s = self._system.monotonic_s()
            return self._round([each for each in self._tables if not each.schedule.failures or each.is_due(now_s)])
        finally:
            self._stepper.leases.release_all()
            self._got_on_s = None

    def run(self) -> None:
        """Repeat steps until `stop`, SIGTERM or SIGINT; the current step is finished first.

        A table is looked at again after `interval_s`, and less and less often while nothing happens to it. A second
        signal ends the process at once. Python handles signals in the main thread only: in another one, `stop` ends it.
        """
        is_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGTERM, signal.SIGINT) if is_main else ()
        self._stepper.leases.asks = True
        previous = {number: signal.signal(number, self._on_signal) for number in signals}
        try:
            with Looks(self._stepper.look, self._system, lambda: self._wake.put(None)) as self._looks:
                self._repeat(self._looks)
            self._got_on_s = None  # after an error it stays: this loop will never get on again
        finally:
            self._looks = None
            self._stepper.leases.release_all()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _repeat(self, looks: Looks) -> None:
        while not self._stopped:
            self._got_on_s = self._system.monotonic_s()
            self._follow_new_settings()
            self._tables.search_if_due()
            due = self._due()
            if due or (looks.has_ready and not self._is_resting):
                self._round(due, looks)
            self._stepper.leases.release_quiet()
            self._stepper.leases.share()
            self._sleep(looks)

    def stop(self) -> None:
        """End `run` after the current step; safe to call from any thread."""
        self._stopped = True
        self._wake.put(None)

    def reconfigure(self, config: DaemonConfig, tables: Sequence[Table | str | TableSource]) -> None:
        """Go on with other settings and tables after the current step; safe to call from any thread.

        Raises:
            ConfigurationError: `tables` is empty or a string.
        """
        require_tables(tables)
        self._reconfigured = (config, tables)
        self._wake.put(None)

    def status(self) -> DaemonStatus:
        """What the daemon knows now; safe to call from any thread, also during a step."""
        now_s = self._system.monotonic_s()
        got_on_s, looks = self._got_on_s, self._looks
        hangs_s = () if got_on_s is None else (got_on_s, *(looks.begun_s if looks else ()))
        return DaemonStatus(
            at=to_datetime(self._system.now_ms()),
            started=to_datetime(self._started_ms),
            owner=self._owner,
            steps=self._steps,
            last_step=self._last_step,
            last_step_seconds=self._last_step_seconds,
            stalled=any(now_s - since_s > STALLED_S for since_s in hangs_s),
            bytes_last_hour=self._stepper.bytes.used(now_s),
            bytes_per_hour=self._stepper.bytes.limit,
            tables=tuple(sorted((each.status for each in self._tables), key=lambda status: status.path)),
            request=self._stepper.request,
            search_errors=self._tables.search_errors,
        )

    def open_table(self, path: str) -> Table:
        """Open a watched table at its newest version, with a handle of its own; safe to call from any thread.

        Raises:
            TableNotFoundError: The daemon watches no table at the path, or there is none.
        """
        options = self._tables.storage_options(path)
        return Table.open(path, storage_options=options, system=self._system)

    def _round(self, due: Sequence[WatchedTable], looks: Looks | None = None) -> StepReport:
        """Make the steps of these tables, the longest overdue first.

        With the `looks` of `run` it does not wait for those that take long, and rests as the share of the cores asks.
        """
        ordered = sorted(due, key=lambda watched: watched.schedule.due_s)
        ready = looks_in_order(self._stepper.look, ordered) if looks is None else looks.ready(ordered)
        began_s, began_cpu_s = self._system.monotonic_s(), self._cpu_s()
        steps: list[TableStep] = []
        for watched, look in ready:
            if looks is not None:
                self._rest()
            if self._stopped:
                break
            if not self._tables.watches(watched):
                continue
            steps.append(self._stepper.step(watched, look))
            self._got_on_s = now_s = self._system.monotonic_s()
            used_s, cores = self._cpu_s() - began_cpu_s, os.cpu_count() or 1
            self._rest_until_s = now_s + rest_s(used_s, now_s - began_s, cores=cores, share=self._config.core_share)
        report = StepReport(tuple(steps))
        if looks is not None and not steps:
            return report
        self._steps += 1
        self._last_step = to_datetime(self._system.now_ms())
        self._last_step_seconds = self._system.monotonic_s() - began_s
        if self._on_step:
            self._on_step(report)
        return report

    def _cpu_s(self) -> float:
        """The processor time of this process, and of the processes of its executor."""
        return self._system.cpu_s() + (self._executor.cpu_s if self._executor else 0.0)

    def _due(self) -> list[WatchedTable]:
        now_s = self._system.monotonic_s()
        return [] if self._is_resting else [watched for watched in self._waiting() if watched.is_due(now_s)]

    def _waiting(self) -> list[WatchedTable]:
        """The tables that are not being looked at."""
        under_way = self._looks.under_way if self._looks else ()
        return [watched for watched in self._tables if watched not in under_way] if under_way else list(self._tables)

    @property
    def _is_resting(self) -> bool:
        return self._system.monotonic_s() < self._rest_until_s

    def _sleep(self, looks: Looks) -> None:
        next_s = min([self._tables.next_search_s, *(watched.schedule.due_s for watched in self._waiting())])
        # What woke the loop from a rest may have been other settings, or a look that took long.
        if not self._reconfigured:
            self._wait_until(max(self._rest_until_s, float("-inf") if looks.has_ready else next_s))

    def _rest(self) -> None:
        """Wait until the share of the cores is kept on average, or until `stop`."""
        while not self._stopped and self._wait_until(self._rest_until_s):
            pass

    def _wait_until(self, end_s: float) -> bool:
        """Wait until then, or until somebody wakes the loop; whether there was time to wait."""
        self._got_on_s = self._system.monotonic_s()
        wait_s = end_s - self._got_on_s
        if wait_s <= 0 or self._stopped:
            return False
        self._got_on_s = end_s
        with suppress(Empty):
            self._wake.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
        return True

    def _follow_new_settings(self) -> None:
        wanted, self._reconfigured = self._reconfigured, None
        if wanted is None:
            return
        self._config, tables = wanted
        self._stepper.reconfigure(self._config)
        self._tables.follow(tables, self._config)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)  # a second signal ends the process at once, which does no harm
        self.stop()


def rest_s(cpu_s: float, elapsed_s: float, *, cores: int, share: float) -> float:
    """How long to rest after work that used `cpu_s` of processor time in `elapsed_s`, in seconds.

    With the rest included, the work took on average no more than `share` of `cores`.
    """
    return max(0.0, cpu_s / (share * cores) - elapsed_s)


# --- looks


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
