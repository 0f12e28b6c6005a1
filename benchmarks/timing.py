"""What a process measures of itself and of others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Set `seconds`, and `cpu_seconds` of all threads of this process, at the end of the block."""
    spent: dict[str, float] = {}
    start, cpu_start = time.perf_counter(), time.process_time()
    yield spent
    spent["cpu_seconds"] = time.process_time() - cpu_start
    spent["seconds"] = time.perf_counter() - start


@contextmanager
def grown() -> Iterator[dict[str, float]]:
    """Set `peak_mb` at the end of the block: how far this process's memory rose above what it was at the begin."""
    found: dict[str, float] = {}
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the memory that is in use now
    before = peak_mb(os.getpid())
    yield found
    found["peak_mb"] = peak_mb(os.getpid()) - before


def peak_mb(pid: int) -> float:
    """The peak memory of a process so far (VmHWM), in units of 10^6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))
