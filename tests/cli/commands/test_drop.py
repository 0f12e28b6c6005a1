"""`tidelog drop`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import PROGRAM, in_terminal, lines, run
from tests.log.support import add, put_foreign
from tidelog.log import Table


def test_drop_with_yes(table: Table) -> None:
    result = run("drop", table.path, "--yes")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{table.path}: dropped\n", "")
    assert [entry.name for entry in Path(table.path).iterdir()] == ["_delta_log"]
    assert run("drop", table.path, "--yes").exit_code == 2


def test_drop_as_json(table: Table) -> None:
    assert lines(run("drop", table.path, "--yes", "--json")) == [{"path": table.path, "dropped": True}]


def test_without_a_terminal_a_drop_needs_yes(table: Table) -> None:
    result = run("drop", table.path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "dropping a table needs a confirmation; pass --yes" in result.stderr
    assert Table.open(table.path).version == 2


@pytest.mark.parametrize(("answer", "dropped"), [("y", True), ("n", False), ("", False)])
def test_a_terminal_is_asked(table: Table, answer: str, dropped: bool) -> None:
    shown = in_terminal(PROGRAM, "drop", table.path, answer=answer)
    assert f"Drop {table.path} (version 2, 2 rows) and delete its files? [y/N]" in shown.text.replace("\n", "")
    assert shown.code == (0 if dropped else 4)
    # A terminal of 80 columns may fold the line between its words.
    assert " ".join(shown.lines).endswith(f"{table.path}: {'dropped' if dropped else 'not dropped'}")
    assert ([entry.name for entry in Path(table.path).iterdir()] == ["_delta_log"]) == dropped


def test_a_refusal_as_json(table: Table) -> None:
    shown = in_terminal(PROGRAM, "drop", table.path, "--json", answer="n")
    assert shown.lines[-1] == f'{{"path": "{table.path}", "dropped": false}}'
    assert shown.code == 4


def test_the_question_counts_files_if_rows_are_unknown(table: Table) -> None:
    put_foreign(table, add("x", stats=None))
    shown = in_terminal(PROGRAM, "drop", table.path, answer="n")
    assert "(version 3, 3 files)" in shown.text


def test_a_missing_table_is_not_asked_about(tmp_path: Path) -> None:
    shown = in_terminal(PROGRAM, "drop", tmp_path / "nothing")
    assert (shown.code, "?" in shown.text) == (2, False)
    assert "TIDELOG_TABLE_NOT_FOUND" in shown.text
