"""For each line on stdin, fork a process that keeps a table and kills itself with SIGKILL at a change of the disk.

A line holds two numbers: before which change it dies (0: never), and how many days its clock is behind. So more of an
old table becomes old enough from line to line. (To a clock that is ahead, what writers just wrote would be left over.)
The answer is a line with the exit status. It forks because importing everything takes long.

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

DAY_MS = 86_400_000
CHANGES = ("put_if_absent", "replace", "create", "delete")


class Behind(System):
    """A clock that is some days behind."""

    def __init__(self, days: float) -> None:
        self.days = days

    def now_ms(self) -> int:
        return super().now_ms() - int(self.days * DAY_MS)


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


def keep(path: str, days_behind: int) -> None:
    """Look twice, four days apart: at first sight nothing is due yet."""
    clock = Behind(days_behind + 4)
    upkeep = Upkeep(system=clock)
    table = Table.open(path)
    upkeep.due(table)
    clock.days = days_behind
    while upkeep.due(table.refresh()):
        report = upkeep.run(table)
        assert not report.errors, report.errors


def main(path: str) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        change, days_behind = map(int, line.split())
        child = os.fork()
        if child == 0:
            die_before(change)
            keep(path, days_behind)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
