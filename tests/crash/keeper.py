"""For each line on stdin, fork a process that keeps a table and kills itself with SIGKILL at a change of the disk.

A line holds two numbers: before which change it dies (0: never), and how many weeks its clock is ahead, so that all
clean-ups are due. The answer is a line with the exit status. It forks because importing everything takes long.

python keeper.py TABLE
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow.dataset  # noqa: F401 - imports pandas as well

from tidelog.compaction_daemon import Upkeep
from tidelog.log import Table
from tidelog.log.storage.local import LocalStore
from tidelog.log.system import System

WEEK_MS = 7 * 86_400_000
CHANGES = ("put_if_absent", "replace", "create", "delete")


class Ahead(System):
    """Decides when upkeep is due. The table's own clock, which decides what is old, is right."""

    def __init__(self, weeks: int) -> None:
        self.ahead_ms = weeks * WEEK_MS

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def die_before(change: int) -> None:
    """Count what changes the disk, and die before the one with this number, from 1 on."""
    left = change

    def counted(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*args, **kwargs)

        return call

    for name in CHANGES:
        setattr(LocalStore, name, counted(getattr(LocalStore, name)))


def keep(path: str, weeks: int) -> None:
    """Look twice: at first sight nothing is due yet."""
    clock = Ahead(weeks)
    upkeep = Upkeep(system=clock)
    table = Table.open(path)
    upkeep.due(table)
    clock.ahead_ms += WEEK_MS // 2
    while upkeep.due(table.refresh()):
        report = upkeep.run(table)
        assert not report.errors, report.errors


def main(path: str) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        change, weeks = map(int, line.split())
        child = os.fork()
        if child == 0:
            die_before(change)
            keep(path, weeks)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
