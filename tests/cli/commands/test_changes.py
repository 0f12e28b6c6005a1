"""`tidelog changes`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.support import lines, run
from tidelog.log import Table


def test_changes_between_points(table: Table) -> None:
    first = table.history()[1].timestamp.isoformat()
    assert [row["n"] for row in lines(run("changes", table.path, "--json"))] == [1, 2]
    for after in ("1", first):
        columns = "n,_commit_version,-_commit_timestamp"
        (row,) = lines(run("changes", table.path, "--json", "--after", after, "--columns", columns))
        assert row == {"n": 2, "_commit_version": 2, "_change_type": "insert"}
    (row,) = lines(run("changes", table.path, "--json", "--until", 1, "--where", "n > 0", "--mode", "append"))
    assert row["_commit_timestamp"].endswith("Z")
    assert "_commit_version" in run("changes", table.path).stdout
    assert run("changes", table.path, "--after", 2).exit_code == 0


def test_mode_and_keys_are_passed_on_only_if_given(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Table.changes
    seen: list[dict[str, Any]] = []

    def changes(self: Table, *, mode: str = "append", keys: Any = (), **rest: Any) -> Any:
        seen.append({"mode": mode, "keys": keys})
        return honest(self, **rest)

    monkeypatch.setattr(Table, "changes", changes)
    run("changes", table.path, "--mode", "net", "--keys", "n, part", "--keys", "day")
    run("changes", table.path)
    assert seen == [{"mode": "net", "keys": ["n", "part", "day"]}, {"mode": "append", "keys": ()}]
