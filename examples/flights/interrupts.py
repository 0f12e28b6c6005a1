"""Handle Ctrl-C and SIGTERM without a stack trace.

An exception raised by a signal handler can hit anywhere: in an import, or between a request to the JVM and its
response, which the next request would then read as its own. Two ways avoid this. While nothing needs an orderly
shutdown, the process just ends. Otherwise the signal is recorded, and raised when the program asks for it.
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

HOW_TO_CONTINUE = "interrupted; run the same command again to continue"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODE_OF_SIGNAL = 128
_WAIT_S = 0.25


class InterruptedRunError(Exception):
    """A signal asked the run to end; `exit_code` is the shell's exit code for it."""

    def __init__(self, number: int) -> None:
        super().__init__(HOW_TO_CONTINUE)
        self.exit_code = _EXIT_CODE_OF_SIGNAL + number


class Interrupts:
    """The signals that ask this process to end."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._orderly = False
        self._event = Event()

    def install(self) -> None:
        """Install the signal handlers."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    @contextmanager
    def orderly(self) -> Iterator[None]:
        """In the block, only `check` and `attend` raise a signal; a second one ends the process at once."""
        self._orderly = True
        try:
            yield
        finally:
            self._orderly = False
        self.check()

    def check(self) -> None:
        """Raise InterruptedRunError if a signal has arrived."""
        if self._received is not None:
            raise InterruptedRunError(self._received)

    def attend(self, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Do `work` in a thread and wait for it, calling `meanwhile` a few times a second.

        A signal ends the wait but not the work; the caller must end what the work waits for.
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
        # The JVM and the daemon end with this process: both read a pipe that closes then.
        os.write(1, f"\n{HOW_TO_CONTINUE}\n".encode())
        os._exit(_EXIT_CODE_OF_SIGNAL + number)


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised again by `future.result()`
        future.set_exception(error)
