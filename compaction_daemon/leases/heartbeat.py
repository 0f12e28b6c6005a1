"""The thread that keeps a lease."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from tidelog.log.errors import LeaseLostError, TidelogError
from tidelog.log.system import logger

_LOGGER = logger(__name__)

# After a failure it tries again after this share of the usual time, so that a short outage costs no lease.
_SOONER = 0.25


class Heartbeat:
    """Calls `renew` again and again in a thread of its own, until it is stopped or the lease is lost.

    Args:
        renew: Raises LeaseLostError once the lease is lost, and other errors for what may pass.
        failed: Called with the error of a renewal that failed.
        interval_s: How long to wait between two calls.
    """

    def __init__(self, renew: Callable[[], None], failed: Callable[[Exception], None], interval_s: float) -> None:
        self._renew = renew
        self._failed = failed
        self._interval_s = interval_s
        self._stopped = Event()
        # A process that ends does not wait for it.
        self._thread = Thread(target=self._run, name="tidelog-lease", daemon=True)

    def start(self) -> None:
        """Begin. The first call comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """End it; a call that is under way may still go on."""
        self._stopped.set()

    def _run(self) -> None:
        wait_s = self._interval_s
        while not self._stopped.wait(wait_s):
            wait_s = self._interval_s
            try:
                self._renew()
            except LeaseLostError as error:
                # Work under the lease raises this error, too. Without work it does not matter; the table may be gone.
                _LOGGER.debug("%s", error)
                return
            except (TidelogError, OSError) as error:
                _LOGGER.debug("a heartbeat failed: %s", error)
                self._failed(error)
                wait_s = self._interval_s * _SOONER
