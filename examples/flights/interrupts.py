"""Ctrl-C and SIGTERM, without a stack trace.

An exception out of a signal handler may strike anywhere: within an import, or between a question to the JVM and its
answer, which the next question would then take for its own. So there are two ways, neither of which does that:
while nothing runs that wants an orderly end, the process just ends; else the signal is noted, and raised where the
program asks for it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

HOW_TO_GO_ON = "interrupted; run the same command again and it goes on where it stopped"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODE_OF_SIGNAL = 128
_WAIT_S = 0.25


class InterruptedRunError(Exception):
    """The run was asked to end; `exit_code` is the shell's for the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(HOW_TO_GO_ON)
        self.exit_code = _EXIT_CODE_OF_SIGNAL + number


class Interrupts:
    """The signals that ask this process to end."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._orderly = False
        self._event = Event()

    def install(self) -> None:
        """Take the signals over."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    @contextmanager
    def orderly(self) -> Iterator[None]:
        """Within, only `check` and `attend` raise a signal; a second one ends the process at once."""
        self._orderly = True
        try:
            yield
        finally:
            self._orderly = False
        self.check()

    def check(self) -> None:
        """Raise InterruptedRunError if a signal came."""
        if self._received is not None:
            raise InterruptedRunError(self._received)

    def attend(self, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Do `work` in a thread and wait for it, calling `meanwhile` a few times a second.

        A signal ends the wait, not the work: end what the work waits for.
        """
        future: Future[T] = Future()
        Thread(target=_fulfil, args=(future, work), daemon=True).start()
        while not future.done():
            meanwhile()
            self._event.wait(_WAIT_S)
            self.check()
        return future.result()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._orderly and self._received is None:
            self._received = number
            self._event.set()
            return
        # Children end with this process: the JVM and the daemon both read a pipe that closes with it.
        os.write(1, f"\n{HOW_TO_GO_ON}\n".encode())
        os._exit(_EXIT_CODE_OF_SIGNAL + number)


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is raised again where the result is asked for
        future.set_exception(error)
