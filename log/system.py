"""The outside world in one place: clock, sleep, randomness, unique ids, environment and log records.

All other code takes these from a `System`, so that a test can control the clock and the randomness. Ruff's banned-api
forbids the direct calls elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock, Thread

from tidelog.log.presentable import presentable, presentable_lines


class System:
    """The real clock, sleep, randomness and ids. Subclass it to replace any of them."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the machine's clock, which can step backwards."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps backwards. Only differences have a meaning."""
        return time.monotonic()

    def cpu_s(self) -> float:
        """Seconds of processor time of this process, all threads together. Only differences have a meaning."""
        return time.process_time()

    def sleep_s(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        """A random number in [low, high], for jitter. Not for secrets."""
        return random.uniform(low, high)  # noqa: S311 - jitter needs no cryptography

    def in_background(self, work: Callable[[], None]) -> None:
        """Do some work in the one thread of the process for it, after the work that waits already.

        A program that ends waits for it, for AT_EXIT_S at most. A process that forks keeps it: the child has none.
        Raises RuntimeError if no thread can begin, for example because the program is ending, or if MAX_WAITING waits.
        """
        _background.add(work)

    def uuid(self) -> str:
        """A fresh random UUID in its canonical text form."""
        return str(uuid.uuid4())


# How long the end of a program waits for what is done in the background.
AT_EXIT_S = 10.0
# How much work may wait. Each waiting work holds a table's store.
MAX_WAITING = 100


class _Background:
    """One thread for work that nobody waits for. It ends when there is no work left; new work starts another one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._thread: Thread | None = None
        self._is_registered = False

    def add(self, work: Callable[[], None]) -> None:
        """Do the work once that before it is done. Raises RuntimeError."""
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                message = f"{MAX_WAITING} pieces of work wait already"
                raise RuntimeError(message)
            if not self._is_registered:
                # Python's only hook that runs while pools of threads still take work.
                threading._register_atexit(self.finish)  # type: ignore[attr-defined]  # noqa: SLF001
                self._is_registered = True
            if self._thread is None:
                thread = Thread(target=self._run, name="tidelog-background", daemon=True)
                thread.start()  # it waits for the lock
                self._thread = thread
            self._waiting.append(work)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                work = self._waiting.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001 - it is logged, and the thread goes on with other work
                logger(__name__).exception("work in the background failed")

    def finish(self) -> None:
        """Wait for what is left, for AT_EXIT_S at most."""
        thread = self._thread
        if thread is not None:
            thread.join(AT_EXIT_S)

    def forked(self) -> None:
        """Reset in a forked child: the thread is not there, and the lock may be held. The exit hook stays."""
        self._lock = Lock()
        self._waiting = deque()
        self._thread = None


_background = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forked)

REAL_SYSTEM = System()

# The ends of Python's calendar: the years 1 and 9999.
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999


def environment(name: str) -> str | None:
    """The value of an environment variable, or None if it is not set."""
    return os.environ.get(name)


def process_name() -> str:
    """The host name and id of this process, for people who look for it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def utc_text(moment: datetime) -> str:
    """ISO-8601 text of an aware datetime, in UTC with `Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def to_datetime(timestamp_ms: int) -> datetime:
    """The aware UTC datetime of `timestamp_ms` (milliseconds since the epoch), or the nearest one that Python has."""
    seconds, milliseconds = divmod(min(max(timestamp_ms, _FIRST_MS), _LAST_MS), 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1000)


def logger(name: str) -> logging.Logger:
    """The logger `name`, whose records are presentable whatever handler prints them: they can quote a hostile table."""
    found = logging.getLogger(name)
    found.addFilter(_make_presentable)
    return found


def _make_presentable(record: logging.LogRecord) -> bool:
    # This runs in the code that logs, such as a commit. A handler reports a format that does not fit, without raising.
    with contextlib.suppress(Exception):
        record.msg, record.args = presentable(record.getMessage()), ()
    if record.exc_info and not record.exc_text:
        # A formatter uses this text if it is there.
        record.exc_text = presentable_lines(logging.Formatter().formatException(record.exc_info))
    return True
