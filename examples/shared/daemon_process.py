"""The compaction daemon in a separate process, as an operator runs it: `tidelog daemon TABLE ... --json`."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.shared.child_process import ChildProcess


def daemon_process(logs: Path, *tables: Path) -> ChildProcess:
    """The daemon for these tables. When asked to end, it completes its current step first."""
    program = "from tidelog import cli; cli.main()"
    return ChildProcess("daemon", [sys.executable, "-c", program, "daemon", *map(str, tables), "--json"], logs)
