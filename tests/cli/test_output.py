"""What reaches a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import SCHEMA, on_terminal, run
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
