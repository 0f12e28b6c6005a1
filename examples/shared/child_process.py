"""A child process in its own session that ends with the demo, with its output in a log file: the daemon is one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

_EXIT_WITH_PARENT = Path(__file__).with_name("exit_with_parent.py")
_ROOT = Path(__file__).parents[2]
_END_S = 12


class ChildEndedError(Exception):
    """A process ended unexpectedly."""


class ChildProcess:
    """A command that runs alongside the demo, can be killed and restarted, and never outlives the demo.

    Its output goes to `log`. A Ctrl-C in a terminal does not reach it, since it has its own session. As a context
    manager it runs for the block.
    """

    def __init__(self, name: str, command: Sequence[str], logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._command = [sys.executable, str(_EXIT_WITH_PARENT), *command]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the process, which must not be running."""
        assert self._process is None, self.name
        # The child imports `examples`, which is not installed.
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
        """Whether the process was started and has ended unexpectedly."""
        return self._process is not None and self._process.poll() is not None

    def require_running(self) -> None:
        """Raise ChildEndedError if the process has ended unexpectedly."""
        if self._process is not None and self.has_ended():
            raise ChildEndedError(f"the {self.name} ended unexpectedly with exit code {self._process.returncode}")

    @property
    def pid(self) -> int | None:
        """The process that runs the command and leads its group; None unless it was started."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """With what it has ended; None if it has not, or was not started."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait until the process ends by itself, and return its exit code. Raises ChildEndedError if it does not."""
        process = self._process
        assert process is not None, self.name
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ChildEndedError(f"the {self.name} did not end within {timeout_s:.0f} seconds") from None
        self.kill()  # what it started and did not end
        return code

    def kill(self) -> None:
        """SIGKILL the process and everything that it started."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process)

    def restart(self) -> None:
        """Kill the process and start it again."""
        self.kill()
        self.start()

    def end(self) -> None:
        """Ask the process to end; kill it if it has not ended after 12 seconds."""
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


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin
    process.stdin.close()


def daemon_process(logs: Path, *tables: Path) -> ChildProcess:
    """`tidelog daemon TABLE ... --json`, as an operator runs it. When asked to end, it completes its step first."""
    program = "from tidelog import cli; cli.main()"
    return ChildProcess("daemon", [sys.executable, "-c", program, "daemon", *map(str, tables), "--json"], logs)
