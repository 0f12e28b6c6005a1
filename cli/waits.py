"""What `tidelog changes --follow` waits for, within bounds: its consumer's name, and a store that does not answer."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.cli import output
from tidelog.cli.stopping import Stop
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import ConsumerInUseError, StoreUnavailableError
from tidelog.log.system import System

# A command cannot come back under its old identity, so its name is free soon after a crash.
TAKEOVER_AFTER_MS = 60_000
# The times of files, by which silence is measured, have whole seconds in some stores.
_STORE_CLOCK_MS = 2_000
# Long enough for a command that crashed. A stream's name is taken for days: nobody waits for that.
NAME_WAIT_LIMIT_MS = TAKEOVER_AFTER_MS + _STORE_CLOCK_MS
# How often to look whether the name was released, or its owner is alive, and the shortest wait between two looks.
_LOOK_EVERY_S, _SHORTEST_S = 1.0, 0.02

# Outlasts a failover or a network fault. A longer outage should reach the person who runs the command.
OUTAGE_LIMIT_S = 600.0
# Waits between two attempts: each is twice as long as the one before, up to the second figure.
_BACKOFF_S, _BACKOFF_LIMIT_S = 1.0, 30.0


def claim_when_free(claim: Callable[[], Consumer], name: str, stop: Stop, system: System) -> Consumer | None:
    """What `claim` returns, once the owner of the name has been silent for long enough. None if stopped before.

    An owner that crashed gives no sign of life. One that gives a sign is running, so that waiting would be in vain.

    Raises:
        ConsumerInUseError: The owner is alive, somebody else was faster, or the name is not free soon.
    """
    owner, free_ms = "", 0.0
    while not stop.is_set:
        began_ms = system.monotonic_s() * 1000
        try:
            return claim()
        except ConsumerInUseError as error:
            if not owner:
                if error.free_in_ms > NAME_WAIT_LIMIT_MS:
                    raise
                owner, free_ms = error.owner, system.monotonic_s() * 1000 + error.free_in_ms
                seconds = -(-error.free_in_ms // 1000)
                output.complain(f"the consumer {name} belongs to {owner}: waiting up to {seconds} s for the name")
            elif error.owner != owner or began_ms + error.free_in_ms > free_ms + _STORE_CLOCK_MS:
                raise
            left_s = error.free_in_ms / 1000
        stop.wait(max(_SHORTEST_S, min(_LOOK_EVERY_S, left_s)))
    return None


class Outage:
    """The time in which the store does not answer, if it is such a time."""

    def __init__(self, stop: Stop, system: System) -> None:
        self._stop = stop
        self._system = system
        self._began_s: float | None = None
        self._backoff_s = _BACKOFF_S

    def wait(self, error: StoreUnavailableError) -> None:
        """Wait before the next attempt, and say so at the first one. Raises `error` after OUTAGE_LIMIT_S."""
        now_s = self._system.monotonic_s()
        if self._began_s is None:
            self._began_s, self._backoff_s = now_s, _BACKOFF_S
            output.complain(f"trying again for {OUTAGE_LIMIT_S / 60:.0f} minutes: {error}")
        elif now_s - self._began_s >= OUTAGE_LIMIT_S:
            raise error
        self._stop.wait(self._system.uniform(self._backoff_s / 2, self._backoff_s))
        self._backoff_s = min(_BACKOFF_LIMIT_S, self._backoff_s * 2)

    def end(self) -> None:
        """The store has answered. Says so if it had not."""
        if self._began_s is not None:
            output.complain(f"the store answers again, after {self._system.monotonic_s() - self._began_s:.0f} s")
            self._began_s = None
