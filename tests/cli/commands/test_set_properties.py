"""`tidelog set-properties`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import run
from tidelog.log import Table


def test_set_and_unset(table: Table) -> None:
    result = run("set-properties", table.path, "tidelog.targetFileSize=64 MiB", "mine=a=b")
    expected = f"{table.path}: version 3: changed tidelog.targetFileSize, mine\n"
    assert (result.exit_code, result.stdout) == (0, expected)
    found = table.refresh().properties
    assert (found["tidelog.targetFileSize"], found["mine"]) == ("64 MiB", "a=b")
    result = run("set-properties", table.path, "mine=c", "--unset", "tidelog.targetFileSize", "--json")
    assert (result.exit_code, json.loads(result.stdout)["version"]) == (0, 4)
    found = table.refresh().properties
    assert found["mine"] == "c"
    assert "tidelog.targetFileSize" not in found


def test_nothing_to_do(table: Table) -> None:
    run("set-properties", table.path, "mine=a")
    for arguments in (["mine=a"], ["--unset", "yours"]):
        result = run("set-properties", table.path, *arguments)
        expected = f"{table.path}: nothing to do: version 3 already has this state\n"
        assert (result.exit_code, result.stdout) == (4, expected)
        result = run("set-properties", table.path, *arguments, "--json")
        assert (result.exit_code, json.loads(result.stdout)["changed"]) == (4, False)
    assert table.refresh().version == 3


def test_a_protocol_upgrade_is_allowed_only_by_its_flag(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Table.set_properties
    seen: list[dict[str, Any]] = []

    def set_properties(self: Table, properties: Any, **rest: Any) -> Any:
        seen.append(rest)
        return honest(self, properties)

    monkeypatch.setattr(Table, "set_properties", set_properties)
    assert run("set-properties", table.path, "mine=a").exit_code == 0
    assert run("set-properties", table.path, "mine=b", "--allow-protocol-upgrade").exit_code == 0
    assert seen == [{}, {"allow_protocol_upgrade": True}]
