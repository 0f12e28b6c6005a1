"""`tidelog restore`."""

from __future__ import annotations

import json

from tests.cli.support import lines, run
from tidelog.log import Table


def test_restore_to_a_version(table: Table) -> None:
    result = run("restore", table.path, "--version", 1)
    assert (result.exit_code, result.stdout) == (0, f"{table.path}: version 3: restored to version 1\n")
    assert table.refresh().scan().count() == 1
    (report,) = lines(run("restore", table.path, "--version", 2, "--json"))
    assert {name: report[name] for name in ("path", "changed", "version", "rebased_over")} == {
        "path": table.path,
        "changed": True,
        "version": 4,
        "rebased_over": [],
    }
    assert report["metrics"]["numRestoredFiles"] == 1
    assert report["timestamp"].endswith("Z")
    assert table.refresh().scan().count() == 2


def test_restore_to_a_time(table: Table) -> None:
    stamp = table.history()[1].timestamp.isoformat()
    result = run("restore", table.path, "--timestamp", stamp)
    assert (result.exit_code, result.stdout) == (0, f"{table.path}: version 3: restored to {stamp}\n")
    assert table.refresh().scan().count() == 1


def test_restore_with_nothing_to_do(table: Table) -> None:
    result = run("restore", table.path, "--version", 2)
    expected = f"{table.path}: nothing to do: version 2 already has this state\n"
    assert (result.exit_code, result.stdout) == (4, expected)
    result = run("restore", table.path, "--version", 2, "--json")
    assert result.exit_code == 4
    assert {name: json.loads(result.stdout)[name] for name in ("changed", "version")} == {
        "changed": False,
        "version": 2,
    }
    assert table.refresh().version == 2


def test_a_version_that_does_not_exist(table: Table) -> None:
    result = run("restore", table.path, "--version", 9)
    assert result.exit_code == 1
    assert "the available versions are 0 to 2" in result.stderr
