"""The spinner of long commands: on a terminal, after a second, and nowhere else."""

from __future__ import annotations

import io
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.support import Terminal, in_terminal, on_terminal
from tidelog.cli import spinner
from tidelog.cli.spinner import Progress
from tidelog.log import Table

# Runs `tidelog compact`, which waits until the spinner has been drawn.
_SLOW = """
import sys, threading
import rich.live
from tidelog import cli
from tidelog.cli import spinner
from tidelog.cli.commands import compact as module

drawn = threading.Event()
spinner.DELAY_S = 0
start, compact = rich.live.Live.start, module.compact

def start_and_say_so(live, *rest, **named):
    start(live, True)
    drawn.set()

def compact_when_drawn(*rest, **named):
    assert drawn.wait(60)
    return compact(*rest, **named)

rich.live.Live.start, module.compact = start_and_say_so, compact_when_drawn
sys.argv[0] = "tidelog"
cli.main()
"""


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def await_text(terminal: Terminal, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in terminal.getvalue():
        assert time.monotonic() < deadline, terminal.getvalue()
        time.sleep(0.01)


def test_a_long_command_says_what_it_does_and_counts(stderr: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinner, "DELAY_S", 0)
    with redirect_stderr(stderr), Progress("reading /data/\x1bt") as shown:
        await_text(stderr, r"reading /data/\x1bt")
        shown.count(12_000, "rows")
        await_text(stderr, r"12,000 rows: reading /data/\x1bt")
        shown.stop()
        before = stderr.getvalue()
        shown.count(13_000, "rows")
    assert stderr.getvalue() == before
    assert before.endswith("\x1b[2K"), "the line is erased"
    assert before.count("\x1b[?25l") == before.count("\x1b[?25h") == 1, "the cursor is visible again"


def test_a_narrow_terminal_cuts_the_path(stderr: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinner, "DELAY_S", 0)
    monkeypatch.setenv("COLUMNS", "40")
    with redirect_stderr(stderr), Progress(f"reading {'x' * 100}"):
        await_text(stderr, "…")
    assert "0:00:0" in stderr.getvalue()
    assert "reading xxx" in stderr.getvalue()
    assert "\n" not in stderr.getvalue().rstrip("\x1b[2K1A?5lh\r\n"), "it stays on one line"


def test_a_short_command_shows_nothing(stderr: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinner, "DELAY_S", 600)
    with redirect_stderr(stderr), Progress("reading") as shown:
        shown.count(1, "row")
    assert stderr.getvalue() == ""
    assert spinner.DELAY_S == 600


def test_an_error_ends_the_spinner(stderr: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinner, "DELAY_S", 0)

    def fail() -> None:
        with redirect_stderr(stderr), Progress("reading"):
            await_text(stderr, "reading")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert stderr.getvalue().endswith("\x1b[2K")


def test_nothing_is_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(spinner, "DELAY_S", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with redirect_stderr(pipe), Progress("reading") as shown:
        shown.count(1000, "rows")
    assert pipe.getvalue() == ""


def test_a_slow_compaction_on_a_terminal(small_files: Table) -> None:
    shown = in_terminal(sys.executable, "-c", _SLOW, "compact", small_files.path)
    assert shown.code == 0
    assert f"compacting {small_files.path}"[:40] in shown.raw
    text = " ".join(shown.text.split())
    assert text.startswith(f"{small_files.path}: version 4: 3 files became 1"), "the spinner is gone"


def test_json_on_a_terminal_follows_the_spinner(small_files: Table) -> None:
    shown = in_terminal(sys.executable, "-c", _SLOW, "compact", small_files.path, "--json")
    assert shown.code == 0
    assert f"compacting {small_files.path}"[:40] in shown.raw
    assert shown.text.startswith("{"), "the spinner is gone"
    assert len(shown.lines) == 1


def test_rows_on_a_terminal_follow_the_spinner(table: Table) -> None:
    for way in (["--format", "csv"], ["--format", "json"], []):
        shown = on_terminal("scan", table.path, "--columns", "n", *way)
        assert shown.code == 0
        assert [line.strip('{"n: }') for line in shown.lines][-2:] == ["1", "2"]


@pytest.mark.parametrize("command", ["create", "drop"])
def test_a_slow_store_shows_progress(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, given = str(tmp_path / "t"), {"create": ["--schema", "n int"], "drop": ["--yes"]}[command]
    if command == "drop":
        Table.create(path, pa.schema([("n", pa.int64())]))
    doing = watched(monkeypatch, Table, command)
    assert on_terminal(command, path, *given).code == 0
    assert doing == [["creating", "dropping"][command == "drop"]]


@pytest.mark.parametrize("command", ["daemon", "history"])
def test_progress_is_shown_while_a_table_is_opened(command: str, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    doing = watched(monkeypatch, Table, "open")
    assert on_terminal(command, table.path, *(["--once"] if command == "daemon" else [])).code == 0
    assert doing == [{"daemon": "compacting", "history": "reading"}[command]]


def watched(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """The first word of what the progress says each time that a method of `owner` is called."""
    shown: list[Progress] = []
    enter, leave, method = Progress.__enter__, Progress.__exit__, getattr(owner, name)
    words: list[str] = []

    def entered(progress: Progress) -> Progress:
        shown.append(progress)
        return enter(progress)

    def left(progress: Progress, *raised: Any) -> None:
        shown.remove(progress)
        leave(progress, *raised)

    def called(*args: Any, **named: Any) -> Any:
        words.extend(progress._doing.split()[0] for progress in shown)
        return method(*args, **named)

    monkeypatch.setattr(Progress, "__enter__", entered)
    monkeypatch.setattr(Progress, "__exit__", left)
    monkeypatch.setattr(owner, name, called)
    return words
