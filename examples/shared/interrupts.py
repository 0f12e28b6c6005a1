"""Handle Ctrl-C and SIGTERM without a stack trace, in a demo whose processes end with it."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODE_OF_SIGNAL = 128


class Interrupted(BaseException):
    """A signal asked the demo to end; `exit_code` is the shell's exit code for it."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted; all its processes have ended")
        self.exit_code = _EXIT_CODE_OF_SIGNAL + number


def raise_interrupts() -> None:
    """From now on raise Interrupted in the main thread when a signal asks the program to end."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    # Only once, so that the clean-up that follows is not interrupted.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)
