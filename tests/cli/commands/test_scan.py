"""`tidelog scan`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.support import PROGRAM, SCHEMA, in_terminal, lines, on_terminal, run
from tests.log.support import numbers
from tidelog.log import Table

ROW_AS_JSON = {
    "n": 1,
    "part": "a",
    "price": "1.50",
    "day": "2026-01-31",
    "at": "2026-01-31T12:00:00.000001Z",
    "raw": "AP8=",
    "ratio": "NaN",
    "ok": True,
    "tags": {"k": "2026-01-01"},
    "codes": [{"key": 7, "value": "seven"}],
    "inner": {"x": "0.5", "list": ["AQ==", None]},
    "text": 'a "quoted", text\nwith \x1b[31mcolour',
}


def test_scan_as_json_gives_every_type_its_form(table: Table) -> None:
    nulls = dict.fromkeys(SCHEMA.names) | {"n": 2}
    for way in (["--json"], ["--format", "json"]):
        assert sorted(lines(run("scan", table.path, *way)), key=lambda row: row["n"]) == [ROW_AS_JSON, nulls]


def test_scan_as_csv(table: Table, row: dict[str, Any]) -> None:
    result = run(
        "scan", table.path, "--format", "csv", "--where", "n = 1", "--columns", "n,text,tags,ok", "--columns", "raw"
    )
    assert result.stdout.startswith("n,text,tags,ok,raw\n")
    (found,) = list(csv.DictReader(io.StringIO(result.stdout)))
    assert found == {"n": "1", "text": row["text"], "tags": '{"k": "2026-01-01"}', "ok": "true", "raw": "AP8="}


def test_csv_distinguishes_null_from_an_empty_text(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("a", pa.string()), ("b", pa.string())]))
    table.insert([{"a": "", "b": None}, {"a": " x ", "b": "y"}])
    assert run("scan", table.path, "--format", "csv").stdout == 'a,b\n"",\n" x ",y\n'


def test_scan_in_words_cuts_long_values_and_spells_out_control_characters(table: Table) -> None:
    table.insert([{"n": 3, "text": "x" * 500}])
    result = run("scan", table.path, "--where", "n in (1, 3)", "--columns", "n,text")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert r"with \x1b[31mcolour" in result.stdout
    assert "x" * 59 + "…\n" in result.stdout
    assert "x" * 60 not in result.stdout
    assert len(lines(run("scan", table.path, "--json", "--where", "n = 3"))[0]["text"]) == 500


def test_scan_of_another_version(table: Table) -> None:
    stamp = table.history()[1].timestamp.isoformat()
    for way in (["--version", 1], ["--timestamp", stamp]):
        assert [row["n"] for row in lines(run("scan", table.path, "--json", *way))] == [1]
    assert run("scan", table.path, "--json", "--version", 0).stdout == ""


def test_scan_shows_a_hundred_rows_by_default(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    table.insert(numbers(range(150)))
    short = run("scan", table.path)
    assert len(short.stdout.splitlines()) == 101
    assert "--limit N shows more" in short.stderr
    for arguments, count in ((["--limit", 120], 121), (["--limit", 1000], 151), (["--where", "n < 100"], 101)):
        result = run("scan", table.path, *arguments)
        assert (len(result.stdout.splitlines()), result.stderr) == (count, "")
    assert len(lines(run("scan", table.path, "--json"))) == 150
    assert len(lines(run("scan", table.path, "--json", "--limit", 7))) == 7


def test_a_version_that_does_not_exist_is_a_failure_that_names_the_range(table: Table) -> None:
    result = run("scan", table.path, "--version", 9)
    assert result.exit_code == 1
    assert "the available versions are 0 to 2" in result.stderr


# --- in a terminal ---------------------------------------------------------------------------------------------------


def test_a_terminal_that_is_too_narrow_for_a_word_shows_one_field_per_line(table: Table) -> None:
    table.insert([{"n": 3, "part": "a" * 30, "text": "x" * 100}])
    shown = in_terminal(
        PROGRAM, "scan", table.path, "--where", "n = 3", "--columns", "n,part,text", "--limit", 5, columns=40
    )
    assert shown.code == 0
    assert [line.split()[0] for line in shown.lines[:3]] == ["n", "part", "text"]
    assert all(len(line) <= 40 for line in shown.lines)
    assert "a" * 30 in shown.lines[1]


def test_a_terminal_folds_texts_between_words(table: Table) -> None:
    text = "an event with a text of several words in it"
    table.insert([{"n": 3, "part": "x", "text": text}])
    shown = on_terminal("scan", table.path, "--where", "n = 3", "--columns", "n,part,text", columns=40)
    assert shown.lines[0].split() == ["n", "part", "text"]
    assert all(len(line) <= 40 for line in shown.lines)
    assert " ".join(" ".join(shown.lines[1:]).split()) == f"3 x {text}"


@pytest.mark.parametrize("columns", [40, 60])
def test_a_table_with_too_many_columns_is_shown_one_field_per_line(table: Table, columns: int) -> None:
    shown = on_terminal("scan", table.path, "--where", "n = 1", columns=columns)
    assert all(len(line) <= columns for line in shown.lines)
    found = {line.split()[0]: line for line in shown.lines}
    assert found["n"].split() == ["n", "1"]
    assert found["at"].split() == ["at", "2026-01-31T12:00:00.000001Z"]
    assert [name for name in found if name in SCHEMA.names] == SCHEMA.names
    assert "\x1b[31mcolour" not in shown.raw


def test_csv_on_a_terminal_cannot_move_its_cursor(table: Table) -> None:
    shown = on_terminal("scan", table.path, "--where", "n = 1", "--columns", "text", "--format", "csv")
    assert shown.lines == ["text", r'"a ""quoted"", text\nwith \x1b[31mcolour"']
    assert "\x1b" not in shown.raw
