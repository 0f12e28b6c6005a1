"""How a command that runs without an end is stopped: by a signal, or because the reader of its output went away."""

from __future__ import annotations

import contextlib
import select
import signal
import sys
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from types import FrameType


class Stop:
    """Whether to stop, and a wait that ends as soon as that is known."""

    def __init__(self) -> None:
        self.is_set = False
        # An Event would not do: its lock can be held when a signal handler wants it. A SimpleQueue is made for that.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one ends the command after the commit at hand, the second one at once."""
        del frame
        if self.is_set:
            raise SystemExit(128 + number)
        self.is_set = True
        self._wake.put(None)

    def wait(self, seconds: float) -> None:
        """Wait, but not for a reader of the output that has gone. Raises BrokenPipeError."""
        with contextlib.suppress(Empty):
            self._wake.get(timeout=seconds)
        if _is_reader_gone():
            raise BrokenPipeError


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Within the block SIGTERM and SIGINT stop in order."""
    stop = Stop()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_reader_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more; otherwise only a write would notice."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False
