"""The compaction daemon in a process of its own, as an operator would run it: `tidelog daemon TABLE --json`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.flights.folder import Folder

_PROGRAM = Path(__file__).with_name("leash.py")
_STOP_S = 10


@contextmanager
def daemon(folder: Folder) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon at work on the table. At the end of the block it is asked to end, and finishes the step in hand."""
    command = [sys.executable, str(_PROGRAM), "daemon", str(folder.table), "--json"]
    with (folder.logs / "daemon.jsonl").open("ab") as steps, (folder.logs / "daemon.log").open("ab") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=steps, stderr=errors)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
