"""Run a demo as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
# Each run starts Spark twice or more, which takes ten seconds alone and a minute beside others.
RUN_S = 540


def demo(name: str, data: Path, *options: str, patience_s: float = RUN_S) -> str:
    """What `examples/NAME/demo.py` prints; it must end well, and leave no process."""
    command = [sys.executable, str(EXAMPLES / name / "demo.py"), "--data", str(data), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False, cwd=data.parent)
    logs = "".join(log.read_text(errors="replace")[-2000:] for log in (data / "logs").glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert done.stderr == ""
    assert processes_of(data) == []
    return done.stdout


def processes_of(data: Path) -> list[str]:
    """The command lines of all processes with the folder in their arguments."""
    listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(data) in line]


def verdicts(printed: str) -> list[str]:
    """`ok` or `FAILED` for each check."""
    return [line.split()[0] for line in printed.splitlines() if line.startswith(("  ok ", "  FAILED "))]
