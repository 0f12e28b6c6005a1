"""Back-pressure: a stream that writes small files faster than compaction packs them waits for it, within bounds."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidelog.log import Debt
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.internals import REAL_SYSTEM, System

_LOGGER = logging.getLogger(__name__)

# A stream that stands still for longer than this is better stopped.
MAX_DELAY_LIMIT_S = 3600.0
# Looking at the debt takes at most one part in so many of the stream's time.
_LOOK_SHARE = 20
# Not more often, however cheap a look is: compaction does not pay a debt faster than that.
_MIN_LOOK_INTERVAL_S = 0.5
# Not less often, however dear it is, so that a debt does not grow unseen.
_MAX_LOOK_INTERVAL_S = 60.0
# How long the end of a query may go unnoticed: Spark's stop() waits for the batch function and cannot wake it.
_SLICE_S = 0.25
# What is left of a delay below this is not worth a sleep, and might be less than a clock can tell.
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """How a sink holds back while its table has many small files.

    Up to `max_debt_files` small files (see `Debt`) a batch is written at once; above, it waits from 0 s rising linearly
    to `max_delay_s` at twice as many, and goes on as soon as compaction has paid the debt. It is for a table that a
    compaction daemon looks after: without one each batch waits in vain, and is then written. Choose `max_debt_files`
    well above the number of partitions, each of which may always have a small file or two.

    Raises ConfigurationError for a number of files below 1, or a delay that is not within 0 to 3600 s (0: no delay,
    batches are only coalesced).
    """

    max_debt_files: int = 1000
    max_delay_s: float = 10.0

    def __post_init__(self) -> None:
        if not _is_whole_number(self.max_debt_files) or self.max_debt_files < 1:
            raise ConfigurationError(
                f"max_debt_files cannot be {self.max_debt_files!r}", advice="give a whole number of files above zero"
            )
        if not _is_number(self.max_delay_s) or not 0 <= self.max_delay_s <= MAX_DELAY_LIMIT_S:
            raise ConfigurationError(
                f"max_delay_s cannot be {self.max_delay_s!r}", advice=f"give seconds from 0 to {MAX_DELAY_LIMIT_S:.0f}"
            )

    def is_exceeded_by(self, debt: Debt) -> bool:
        """Whether the table has more small files than it should."""
        return debt.small_files > self.max_debt_files

    def delay_s(self, debt: Debt) -> float:
        """How long a batch waits at this debt: `max_delay_s` times the excess over `max_debt_files`, at most once."""
        excess = (debt.small_files - self.max_debt_files) / self.max_debt_files
        return self.max_delay_s * min(1.0, max(0.0, excess))


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Brake:
    """What was decided about one batch: it waited for `delayed_s`; `coalesce` says to write it in as few files as
    possible. `debt` is the newest that is known, None where nobody looked or the look failed.
    """

    debt: Debt | None = None
    delayed_s: float = 0.0
    coalesce: bool = False


class Indebted(Protocol):
    """What is asked of a table."""

    def refresh(self) -> object:
        """Move to the newest version."""

    def debt(self) -> Debt:
        """The debt of the loaded version."""


class BackPressure:
    """Holds the batches of one sink back by a throttle; without one it never does.

    The debt is looked at before a batch, but only once twenty times what the last look took has passed (0.5 s at least,
    60 s at most), and always at the end of a delay. The first look lists the table's files, which the table then keeps
    in memory. A look that fails never holds a batch back.
    """

    def __init__(self, throttle: Throttle | None, system: System = REAL_SYSTEM) -> None:
        self._throttle = throttle
        self._system = system
        self._debt: Debt | None = None
        self._next_look_s = -math.inf

    def hold(self, table: Indebted, still_running: Callable[[], bool] = lambda: True) -> Brake:
        """Wait for as long as the throttle asks, and say what came of it; may move the table to its newest version.

        Waits `max_delay_s` at most, apart from what looking takes, and ends within a quarter of a second once
        `still_running` says that the query is being stopped: the batch then goes on, and is interrupted by Spark as any
        batch of such a query is.
        """
        if self._throttle is None:
            return Brake()
        if self._is_due():
            self._look(table)
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
                self._look(table)
        return waited

    def _delay_s(self, throttle: Throttle) -> float:
        return 0.0 if self._debt is None else throttle.delay_s(self._debt)

    def _is_due(self) -> bool:
        return self._system.monotonic_s() >= self._next_look_s

    def _look(self, table: Indebted) -> None:
        started = self._system.monotonic_s()
        try:
            table.refresh()
            self._debt = table.debt()
        except (TidelogError, OSError) as error:
            # Whatever is wrong with the table, the batch's own commit will tell, or does not need it.
            _LOGGER.warning("the debt of the table cannot be told, so no batch waits for it: %s", error)
            self._debt = None
        ended = self._system.monotonic_s()
        pause = _LOOK_SHARE * (ended - started)
        self._next_look_s = ended + min(_MAX_LOOK_INTERVAL_S, max(_MIN_LOOK_INTERVAL_S, pause))
