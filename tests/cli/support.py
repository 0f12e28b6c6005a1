"""Running the command: in this process, as a program, and as a program in a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import select
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from tidelog import cli
from tidelog.cli import spinner

# The commands that first take the path of a table that exists, with the other arguments that they need.
ON_A_TABLE: dict[str, list[str]] = {
    "add-columns": ["new bigint"],
    "adopt": [],
    "changes": [],
    "compact": [],
    "conflicts": [],
    "daemon": ["--once"],
    "describe": [],
    "expire": [],
    "history": [],
    "plan": [],
    "report": ["--json"],
    "restore": ["--version", "0"],
    "scan": [],
    "set-properties": ["delta.appendOnly=true"],
    "status": [],
    "vacuum": [],
}
PROGRAM = str(Path(sys.executable).parent / "tidelog")
_ERASED = re.compile(r"[^\n]*\x1b\[2K")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# A table with a column of every kind, and a row of it.
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("part", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ("ok", pa.bool_()),
        ("tags", pa.map_(pa.string(), pa.date32())),
        ("codes", pa.map_(pa.int32(), pa.string())),
        ("inner", pa.struct([("x", pa.decimal128(5, 1)), ("list", pa.list_(pa.binary()))])),
        ("text", pa.string()),
    ]
)


def run(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], prog_name="tidelog")


def lines(result: Result) -> list[dict[str, Any]]:
    """The JSON objects that a command printed, which must have succeeded without a word on standard error."""
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@dataclass(frozen=True)
class Shown:
    """What a program left on its terminal, standard output and standard error alike, and its exit code."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        """What is still shown at the end, without colours: lines that were erased again are gone."""
        text = re.sub(r"\r|\x1b\[\?25[lh]", "", self.raw).replace("\n\x1b[1A", "")
        return _CONTROL.sub("", _ERASED.sub("", text))

    @property
    def lines(self) -> list[str]:
        """The lines that are not empty, without trailing spaces."""
        return [line.rstrip() for line in self.text.splitlines() if line.strip()]


class Terminal(io.StringIO):
    """What a program in this process writes to a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(*arguments: object, columns: int = 80, **environment: str) -> Shown:
    """Run the command in this process, as if in a terminal; too fast for a spinner."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(terminal), redirect_stderr(terminal):
        patched.setattr(spinner, "DELAY_S", 600)
        for name in ("NO_COLOR", "FORCE_COLOR"):
            patched.delenv(name, raising=False)
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm", **environment}.items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            cli.app([str(argument) for argument in arguments], prog_name="tidelog")
    return Shown(int(ended.value.code or 0), terminal.getvalue())


def in_terminal(*command: object, columns: int = 80, answer: str | None = None, **environment: str) -> Shown:
    """Run a program in a terminal; `answer` is typed once it asks `... [y/N]: `."""
    master, slave = os.openpty()
    given = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    given |= {"COLUMNS": str(columns), "TERM": "xterm", **environment}
    program = subprocess.Popen(
        [str(part) for part in command], stdin=slave, stdout=slave, stderr=slave, env=given, start_new_session=True
    )
    os.close(slave)
    try:
        content = _read(master, answer)
        code = program.wait(timeout=60)
    finally:
        program.kill()
        program.wait()
        os.close(master)
    return Shown(code, content.replace("\r\n", "\n"))


def _read(master: int, answer: str | None) -> str:
    """What the terminal gets until the program closes it."""
    content = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if not select.select([master], [], [], 1.0)[0]:
            continue
        try:
            found = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            return content.decode()
        if not found:
            return content.decode()
        content += found
        if answer is not None and b"]: " in content:
            os.write(master, f"{answer}\n".encode())
            answer = None
    raise TimeoutError(content)
