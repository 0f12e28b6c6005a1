"""Back-pressure: delay a stream that writes small files faster than compaction merges them, within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidelog.log import Debt
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.system import REAL_SYSTEM, System, logger

_LOGGER = logger(__name__)

# A stream that should wait for longer than this is better stopped.
MAX_DELAY_LIMIT_S = 3600.0
# Measuring the debt takes at most one part in 20 of the stream's time.
_MEASURE_SHARE = 20
# Measure no more often than this, however cheap it is: compaction does not reduce the debt faster.
_MIN_MEASURE_INTERVAL_S = 0.5
# Measure at least this often, however expensive it is, so that the debt does not grow unnoticed.
_MAX_MEASURE_INTERVAL_S = 60.0
# How long a stopped query can stay unnoticed: Spark's stop() waits for the batch function and cannot wake it.
_SLICE_S = 0.25
# A shorter remaining delay is not worth a sleep, and can be below the clock's resolution.
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Limits for a Sink that slows its stream down while the table has many small files.

    With at most `max_debt_files` small files (see `Debt`) a batch is written at once. Above that it waits: the delay
    rises linearly from 0 to `max_delay_s` at twice as many files, and ends early when compaction has reduced their
    number. The batch is then written in as few files as possible, and never refused. Use a Throttle for a table that a
    compaction daemon maintains; without one, waiting has no benefit.

    Args:
        max_debt_files: Small files that the table can have without a delay; at least 1. Choose it well above the number
            of partitions, since each of them can always have a small file or two. Default: 1000.
        max_delay_s: Longest delay of a batch in seconds, from 0 to 3600. With 0 no batch waits; it is only written in
            fewer files. Default: 10.

    Raises:
        ConfigurationError: A number is out of range or of another type.

    Example:
        Sink(path, throttle=Throttle(max_debt_files=200, max_delay_s=5))
    """

    max_debt_files: int = 1000
    max_delay_s: float = 10.0

    def __post_init__(self) -> None:
        if not _is_whole_number(self.max_debt_files) or self.max_debt_files < 1:
            raise ConfigurationError(
                f"max_debt_files={self.max_debt_files!r} is not a positive whole number", advice="pass 1 or more"
            )
        if not _is_number(self.max_delay_s) or not 0 <= self.max_delay_s <= MAX_DELAY_LIMIT_S:
            raise ConfigurationError(
                f"max_delay_s={self.max_delay_s!r} is not a number of seconds from 0 to {MAX_DELAY_LIMIT_S:.0f}",
                advice="pass seconds within that range",
            )

    def is_exceeded_by(self, debt: Debt) -> bool:
        """Whether the debt has more small files than `max_debt_files`."""
        return debt.small_files > self.max_debt_files

    def delay_s(self, debt: Debt) -> float:
        """The delay of a batch at this debt, in seconds, from 0 to `max_delay_s`."""
        excess = (debt.small_files - self.max_debt_files) / self.max_debt_files
        return self.max_delay_s * min(1.0, max(0.0, excess))


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Brake:
    """The throttle's decision about one batch.

    The batch waited for `delayed_s`. `coalesce`: write it in as few files as possible. `debt` is the newest measured
    one, None if it was not measured or that failed.
    """

    debt: Debt | None = None
    delayed_s: float = 0.0
    coalesce: bool = False


class Indebted(Protocol):
    """The part of a Table that back-pressure needs."""

    def refresh(self) -> object:
        """Move to the newest version."""

    def debt(self) -> Debt:
        """The debt of the loaded version."""


class BackPressure:
    """Delays the batches of one sink as its throttle says; never without a throttle.

    The debt is measured before a batch if 20 times the duration of the last measurement has passed, at least 0.5 s and
    at most 60 s, and always at the end of a delay. The first measurement lists the table's files, which the table then
    keeps in memory. If a measurement fails, batches are not delayed.
    """

    def __init__(self, throttle: Throttle | None, system: System = REAL_SYSTEM) -> None:
        self._throttle = throttle
        self._system = system
        self._debt: Debt | None = None
        self._next_measure_s = -math.inf

    def hold(self, table: Indebted, still_running: Callable[[], bool] = lambda: True) -> Brake:
        """Wait as long as the throttle asks; can move the table to its newest version.

        Waits at most `max_delay_s`, plus the time of measuring. If `still_running` returns False, since the query is
        being stopped, the wait ends within a quarter of a second; Spark then interrupts the batch as usual.
        """
        if self._throttle is None:
            return Brake()
        if self._is_due():
            self._measure(table)
        delayed_s = self._wait(table, self._throttle, still_running)
        exceeded = self._debt is not None and self._throttle.is_exceeded_by(self._debt)
        return Brake(self._debt, delayed_s, exceeded)

    def _wait(self, table: Indebted, throttle: Throttle, still_running: Callable[[], bool]) -> float:
        started = self._system.monotonic_s()
        waited = 0.0
        while (delay := self._delay_s(throttle)) - waited >= _SHORTEST_S and still_running():
            self._system.sleep_s(min(_SLICE_S, delay - waited))
            waited = self._system.monotonic_s() - started
            if delay - waited < _SHORTEST_S or self._is_due():
                self._measure(table)
        return waited

    def _delay_s(self, throttle: Throttle) -> float:
        return 0.0 if self._debt is None else throttle.delay_s(self._debt)

    def _is_due(self) -> bool:
        return self._system.monotonic_s() >= self._next_measure_s

    def _measure(self, table: Indebted) -> None:
        started = self._system.monotonic_s()
        try:
            table.refresh()
            self._debt = table.debt()
        except (TidelogError, OSError) as error:
            # The batch's own commit raises if the error matters to it.
            _LOGGER.warning("could not measure the table's debt, so batches are not throttled: %s", error)
            self._debt = None
        ended = self._system.monotonic_s()
        pause = _MEASURE_SHARE * (ended - started)
        self._next_measure_s = ended + min(_MAX_MEASURE_INTERVAL_S, max(_MIN_MEASURE_INTERVAL_S, pause))
