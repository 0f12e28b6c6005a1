"""Progress of a long command: a spinner on standard error, only on a terminal, and only after a second."""

from __future__ import annotations

import sys
from threading import Timer
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress as Display
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from tidelog.cli.output import one_line

# A command that is done sooner shows nothing.
DELAY_S = 1.0


# The rest of the line: what does not fit is cut, so that the spinner and the seconds stay.
_REST = Column(ratio=1, no_wrap=True, overflow="ellipsis")


class Progress:
    """Show what a command is doing while the block runs: `with Progress("compacting /data/t"): ...`.

    Nothing is shown if standard error is not a terminal. What is shown disappears at the end. Call `stop` before
    writing to standard output inside the block: both may be the same terminal.
    """

    def __init__(self, doing: str) -> None:
        self._doing = one_line(doing)
        self._display: Display | None = None
        if sys.stderr.isatty():
            self._display = Display(
                SpinnerColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False, table_column=_REST),
                console=Console(stderr=True),
                expand=True,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._display.add_task(self._doing, total=None)
            self._timer = Timer(DELAY_S, self._display.start)
            self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._display:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def count(self, number: int, what: str) -> None:
        """Show how much is done so far, such as `1,200 rows`."""
        if self._display:
            self._display.update(self._task, description=f"{number:,} {what}: {self._doing}")

    def stop_on_terminal(self) -> None:
        """Show nothing from now on if standard output is a terminal: the lines written there show the progress."""
        if sys.stdout.isatty():
            self.stop()

    def stop(self) -> None:
        """Show nothing from now on."""
        if self._display:
            self._timer.cancel()
            self._timer.join()
            if self._display.live.is_started:
                self._display.stop()
            self._display = None
