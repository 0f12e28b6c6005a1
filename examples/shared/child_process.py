"""The processes of the demo: each in a session of its own, on a leash, with its output in a log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_LEASH = Path(__file__).with_name("leash.py")
_ROOT = Path(__file__).parents[2]
_END_S = 12


class ChildEndedError(Exception):
    """A process ended that should not have."""


class Child:
    """A command that runs beside the demo, may be killed and started again, and never outlives it.

    A Ctrl-C in a terminal does not reach it: it is in a session of its own, and ends when the demo does.
    """

    def __init__(self, name: str, command: Sequence[str], logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._command = [sys.executable, str(_LEASH), *command]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. It must not be running."""
        assert self._process is None, self.name
        # The children import `examples`, which is not installed.
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )

    def has_ended(self) -> bool:
        """Whether it was started and ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def require_running(self) -> None:
        """Raise ChildEndedError where it ended by itself."""
        if self._process is not None and self.has_ended():
            raise ChildEndedError(f"the {self.name} ended by itself, with exit code {self._process.returncode}")

    def kill(self) -> None:
        """SIGKILL, to it and all that it started."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process)

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def end(self) -> None:
        """Ask it to end, and see to it that it does."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin
        process.stdin.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        finally:
            _kill_group(process)


def python(module: str, *arguments: str) -> list[str]:
    """The command for a module of the demo."""
    return [sys.executable, "-m", f"examples.kafka.{module}", *arguments]


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS reports a group of zombies as the latter
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin
    process.stdin.close()
