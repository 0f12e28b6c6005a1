"""`tidelog report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import lines, run
from tidelog.cli.app import WRONG_USE
from tidelog.log import Table


def test_it_writes_one_file_and_says_where(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("an older report")
    done = run("report", table.path, "-o", str(file))
    assert (done.exit_code, done.stdout) == (0, f"{table.path}: wrote {file}\n")
    assert file.read_text().startswith("<!doctype html>")
    assert f'"table_id":"{table.id}"' in file.read_text()
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name] == ["report.html"]


def test_json(table: Table, tmp_path: Path) -> None:
    (found,) = lines(run("report", table.path, "--json"))
    assert (found["path"], found["version"], len(found["versions"])) == (table.path, 2, 3)
    both = run("report", table.path, "--json", "--output", str(tmp_path / "r.html"))
    assert json.loads(both.stdout)["version"] == 2
    assert (tmp_path / "r.html").exists()


def test_without_a_file(table: Table) -> None:
    done = run("report", table.path)
    assert done.exit_code == WRONG_USE
    assert "there is no file to write to; write -o FILE, or --json" in done.stderr


def test_a_file_that_cannot_be_written(table: Table, tmp_path: Path) -> None:
    target = str(tmp_path / "no" / "report.html")
    done = run("report", table.path, "-o", target)
    assert done.exit_code == 2
    assert f"cannot write '{target}': No such file or directory; name a file in a folder where" in done.stderr


@pytest.mark.parametrize("path", ["s3://key:hunter2@", "memory://nowhere"])
def test_a_table_that_is_none(path: str, tmp_path: Path) -> None:
    done = run("report", path, "-o", str(tmp_path / "r.html"))
    assert done.exit_code == WRONG_USE
    assert "hunter2" not in done.stderr
    assert not (tmp_path / "r.html").exists()
