"""Show progress: live bars on a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.progress import Progress

_PLAIN_INTERVAL_S = 5.0
_BAR_WIDTH = 30

Show = Callable[[str, Progress], None]


def say(text: str) -> None:
    """Print one line without buffering."""
    print(text, flush=True)


@contextmanager
def display(days: int, flights: int) -> Iterator[Show]:
    """Yield a function that shows the current activity and the progress towards `days` and `flights`."""
    console = Console()
    started_s = time.monotonic()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4, redirect_stderr=False) as live:
            yield lambda activity, progress: live.update(_bars(activity, progress, days, flights, _elapsed(started_s)))
        return
    last_s = float("-inf")

    def show(activity: str, progress: Progress) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= _PLAIN_INTERVAL_S:
            last_s = now_s
            say(f"{_elapsed(started_s)}  {activity}: {_line(progress, days)}")

    yield show


def _elapsed(started_s: float) -> str:
    seconds = int(time.monotonic() - started_s)
    return f"{seconds // 60}:{seconds % 60:02}"


def _line(progress: Progress, days: int) -> str:
    return (
        f"day {progress.batches}/{days}, rows {progress.rows:,}, version {progress.version}, "
        f"live files {progress.live_files}, compactions {progress.compactions}; "
        f"consumer rows {progress.consumer_rows:,}, behind {progress.lag_rows:,}"
    )


def _bars(activity: str, progress: Progress, days: int, flights: int, elapsed: str) -> Group:
    grid = Table.grid(padding=(0, 2))
    for label, done, total, text in (
        ("writer", progress.batches, days, f"day {progress.batches} of {days}, {progress.rows:,} rows"),
        (
            "consumer",
            progress.consumer_rows,
            flights,
            f"{progress.consumer_rows:,} rows, {progress.lag_rows:,} behind, batch {progress.consumer_batches}",
        ),
    ):
        grid.add_row(label, ProgressBar(total=total, completed=done, width=_BAR_WIDTH), text)
    grid.add_row(
        "table",
        f"version {progress.version}",
        f"live files {progress.live_files} of {progress.files_written} written, compactions {progress.compactions}",
    )
    return Group(Text(f"{activity}  {elapsed}", style="bold"), grid)
