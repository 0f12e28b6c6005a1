"""What reaches a terminal."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import SCHEMA, Shown, Terminal, on_terminal, run
from tidelog.cli import output
from tidelog.log import Table

# Characters that a terminal may act on: escapes, C1 controls, a change of the writing direction.
NASTY = "\x1b[2J\x9b31m\u202e\x07\r"


@given(st.text())
def test_json_text_is_printable_and_comes_back(text: str) -> None:
    found = output.json_text({"value": text})
    assert found.isprintable()
    assert json.loads(found) == {"value": text}


@pytest.mark.parametrize("character", ["\ud800", "\U000e0001", "\x9b", "\u202e"])
def test_json_escapes_what_cannot_be_shown(character: str) -> None:
    found = output.json_text(character)
    assert found.isascii()
    assert json.loads(found) == character


def test_a_path_reaches_the_terminal_spelled_out(tmp_path: Path) -> None:
    path = str(tmp_path / f"t{NASTY}")
    missing = on_terminal("describe", path)
    Table.create(path, SCHEMA)
    shown = [on_terminal(*command) for command in (["describe", path], ["compact", path], ["expire", path])]
    for terminal in (missing, *shown):
        assert r"t\x1b[2J\x9b31m\u202e\x07" in terminal.text.replace("\n", "").replace(" ", "")
        assert not set("\x1b\x9b\u202e\x07") & set(terminal.text)


def test_counted() -> None:
    assert [output.counted(number, "file") for number in (0, 1, 2, 1200)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,200 files",
    ]


def test_a_table_without_rows_shows_its_columns(tmp_path: Path) -> None:
    names = [f"column_{number}" for number in range(12)]
    run("create", tmp_path / "t", "--schema", ", ".join(f"{name} bigint" for name in names))
    for columns in (40, 500):
        shown = on_terminal("scan", tmp_path / "t", columns=columns)
        assert shown.text.split() == names


# --- tables in a terminal of 80 columns ------------------------------------------------------------------------------

REASON = "it is small, and joined with others of its partition as soon as these are twice as large as the largest"


def shown_in(columns: int, *arguments: Any, **options: Any) -> list[str]:
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(terminal):
        patched.setenv("COLUMNS", str(columns))
        patched.setenv("TERM", "xterm")
        output.write_grid(*arguments, **options)
    return Shown(0, terminal.getvalue()).lines


def test_a_line_is_folded_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"/data/{'t' * 30}: " + "several words " * 8
    shown = said_in(40, text)
    assert " ".join(shown).split() == text.split()
    assert max(map(len, shown)) <= 40
    assert shown[0] == f"/data/{'t' * 30}:"
    output.say(text)  # not on a terminal
    assert capsys.readouterr().out == f"{text}\n"


def said_in(columns: int, text: str) -> list[str]:
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(terminal):
        patched.setenv("COLUMNS", str(columns))
        patched.setenv("TERM", "xterm")
        output.say(text)
    return terminal.getvalue().splitlines()


def test_texts_are_folded_between_words() -> None:
    found = shown_in(80, ["n", "text", "why"], [[1, "one two three four " * 3, REASON]], numbers=[0])
    assert max(map(len, found)) <= 80
    assert found[0].split() == ["n", "text", "why"]
    assert Counter(" ".join(found[1:]).split()) == Counter(["1", *("one two three four " * 3).split(), *_cut(REASON)])


def _cut(text: str) -> list[str]:
    """The words of a cell, which ends after a word."""
    words = output.cell(text).split()
    assert all(word in f"{text} " for word in words[:-1])
    assert words[-1].endswith("…")
    assert words[-1][:-1] in text.split()
    return words


def test_columns_that_are_not_needed_are_left_out_first() -> None:
    columns, row = ["version", "engine", "operation"], [7, "e" * 60, "o" * 30]
    found = shown_in(80, columns, [row], whole=[0, 2], optional=[1])
    assert found == [
        f"version  operation{' ' * 21}".rstrip(),
        f"7        {'o' * 30}",
        "without engine: the terminal is too narrow",
    ]
    assert "e" * 60 in shown_in(120, columns, [row], optional=[1])[1]


def test_a_reason_goes_below_its_row() -> None:
    rows = [[f"part-{number}-{'0' * 50}", 1, output.coloured(REASON, "")] for number in range(2)]
    found = shown_in(80, ["file", "rows", "why"], rows, numbers=[1], reasons=True)
    assert found[0] == f"file{' ' * 55}rows"
    assert found[1] == "  why"
    assert found[2] == f"{rows[0][0]}     1"
    assert " ".join(" ".join(found[3:5]).split()) == REASON
    assert found[5] == f"{rows[1][0]}     1"
    wide = shown_in(200, ["file", "rows", "why"], rows, numbers=[1], reasons=True)
    assert len(wide) == 3


def test_rows_that_fit_in_no_way_are_blocks() -> None:
    found = shown_in(40, ["a", "b", "why"], [["x" * 30, "y" * 30, "a reason"]], reasons=True)
    assert found == [f"a    {'x' * 30}", f"b    {'y' * 30}", "why  a reason"]
