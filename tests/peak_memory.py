"""How much a read makes the memory of a process of its own grow; only Linux says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")


def grown_mb(read: Callable[[], object]) -> int:
    """How far the peak of this process rises above its memory now while it reads, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the memory that is in use now
    before = _status_mb("VmRSS")
    read()
    return _status_mb("VmHWM") - before


def _status_mb(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) // 1024


def in_a_process(program: str, *arguments: object) -> Any:
    """What a program prints as JSON, run with these arguments in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
