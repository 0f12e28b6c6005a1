"""The processes that `benchmarks.sink` controls: an engine with its streams, and the daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from benchmarks.harness import REPOSITORY
from benchmarks.sink_streams import ANSWER

# Longer than any command on a busy machine. A command that hangs must not block the rest.
ANSWER_TIMEOUT_S = 1800
START_TIMEOUT_S = STOP_TIMEOUT_S = 60
_DAEMON = "from tidelog.cli import main; main()"


class EngineFailedError(Exception):
    """A process ended or did not answer in time. The message has the end of its output."""


class EngineProcess:
    """`benchmarks.sink_streams` for one engine. The constructor returns when it is warm."""

    def __init__(self, engine: str, folder: Path, arguments: dict[str, Any]) -> None:
        folder.mkdir()
        self.folder = folder
        self._errors = folder / "stderr"
        given = json.dumps({"engine": engine, "folder": str(folder), **arguments})
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.sink_streams", given],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._answer()

    def ask(self, command: str, **arguments: object) -> Any:
        """Send a command and return the answer. Raises EngineFailedError."""
        assert self._process.stdin
        try:
            print(json.dumps([command, arguments]), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise EngineFailedError(self._end_of_output()) from error
        return self._answer()

    def close(self) -> None:
        """End the process."""
        with self._process as process:
            assert process.stdin
            process.stdin.close()
            _await_end(process)

    def _answer(self) -> Any:
        assert self._process.stdout
        guard = Timer(ANSWER_TIMEOUT_S, self._process.kill)
        guard.start()
        try:
            for line in self._process.stdout:
                if line.startswith(ANSWER):
                    return json.loads(line.removeprefix(ANSWER))
        finally:
            guard.cancel()
        raise EngineFailedError(self._end_of_output())

    def _end_of_output(self) -> str:
        return f"ended with {self._process.wait()}: {self._errors.read_text()[-2000:]}"


@contextmanager
def daemon(table: Path, output: Path, settings: str = "") -> Iterator[None]:
    """Run `tidelog daemon` on the table during the block. Raises EngineFailedError if it failed.

    `settings` is the text of a configuration file.
    """
    configuration = output.with_suffix(".toml")
    configuration.write_text(settings)
    with output.open("w") as file:
        command = [sys.executable, "-u", "-c", _DAEMON, "daemon", str(table), "--config", str(configuration)]
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=file, stderr=subprocess.STDOUT)
    with process:
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while "Ctrl-C stops it" not in output.read_text() and process.poll() is None:
                assert time.monotonic() < deadline, "the daemon did not start"
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            _await_end(process)
    if process.returncode:
        raise EngineFailedError(f"the daemon ended with {process.returncode}: {output.read_text()[-2000:]}")


def _await_end(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
