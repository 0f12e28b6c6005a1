"""Memory, file descriptors, threads and CPU of a process and of those below it, from Linux's /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command's name, which is in parentheses and can hold anything.
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _THREADS = 1, 11, 12, 17
# It only waits, for a program that has to end with its parent.
_WRAPPER = b"exit_with_parent"
PYTHON, JAVA, WORKERS = ROLES = ("python", "java", "workers")


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes use at one moment; `cpu_s` since they started."""

    rss_bytes: int = 0
    fds: int = 0
    threads: int = 0
    cpu_s: float = 0.0
    pids: tuple[int, ...] = ()

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.rss_bytes + other.rss_bytes,
            self.fds + other.fds,
            self.threads + other.threads,
            self.cpu_s + other.cpu_s,
            self.pids + other.pids,
        )


class Processes:
    """The processes of this machine at one moment."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = defaultdict(list)
        for entry in _PROC.iterdir():
            if entry.name.isdigit() and (stat := _stat(int(entry.name))):
                self._children[int(stat[_PARENT])].append(int(entry.name))

    def below(self, pid: int) -> Mapping[str, Usage]:
        """What the processes use that `pid` started, by role: `python`, `java`, and Spark's Python `workers`."""
        found: dict[str, Usage] = {}
        for each in self._descendants(pid):
            role, used = _role(each), _usage(each)
            if role is not None and used is not None:
                found[role] = found.get(role, Usage()) + used
        return found

    def _descendants(self, pid: int) -> Iterator[int]:
        yield pid
        for child in self._children[pid]:
            yield from self._descendants(child)


def _role(pid: int) -> str | None:
    """What a process is; None for the wrapper and for one that has ended."""
    try:
        command = (_PROC / str(pid) / "cmdline").read_bytes()
        name = (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None
    if not command or _WRAPPER in command:
        return None
    if name == "java":
        return JAVA
    return WORKERS if b"pyspark.daemon" in command or b"pyspark/daemon" in command else PYTHON


def _usage(pid: int) -> Usage | None:
    stat = _stat(pid)
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
        fds = sum(1 for _ in (_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return None
    if not stat:
        return None
    ticks = int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS])
    return Usage(pages * _PAGE, fds, int(stat[_THREADS]), ticks / _TICKS_A_SECOND, (pid,))


def _stat(pid: int) -> list[str]:
    """The fields after the name; empty if the process has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
