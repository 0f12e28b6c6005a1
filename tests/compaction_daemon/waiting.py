"""A daemon that runs on a clock of a test, whose sleeps take no time."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty

from tests.compaction_daemon.support import PassingClock
from tidelog.compaction_daemon import Daemon
from tidelog.compaction_daemon.observing.live_status import health_builtins


class PassingSleep:
    """The sleep of a daemon that runs: time passes at once, and then some more, as no sleep is exact."""

    def __init__(self, daemon: Daemon, clock: PassingClock, times: int, first: Callable[[], None]) -> None:
        self.slept_s: list[float] = []
        self.healthy: list[bool] = []
        self._daemon, self._clock, self._times, self._first = daemon, clock, times, first

    def get(self, timeout: float) -> None:
        self.slept_s.append(timeout)
        self._clock.pass_s(timeout + 1)
        self.healthy.append(health_builtins(self._daemon.status())["healthy"])
        if len(self.slept_s) == 1:
            self._first()
        if len(self.slept_s) == self._times:
            self._daemon.stop()
        raise Empty

    def put(self, _: None) -> None:
        pass


def ran(daemon: Daemon, clock: PassingClock, *, times: int, first: Callable[[], None] = lambda: None) -> PassingSleep:
    """Let the daemon run until it has slept so many times; `first` is called during the first sleep."""
    sleep = PassingSleep(daemon, clock, times, first)
    daemon._wake = sleep  # type: ignore[assignment]
    daemon.run()
    return sleep
