"""Wrong use: exit code 2, and one line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import ON_A_TABLE, run
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError


@pytest.mark.parametrize("command", [*ON_A_TABLE, "daemon --once", "drop --yes"])
def test_a_path_without_a_table_is_one_line(command: str, tmp_path: Path) -> None:
    name, *rest = command.split()
    result = run(name, tmp_path / "nothing", *rest, *ON_A_TABLE.get(name, []))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"TIDELOG_TABLE_NOT_FOUND: there is no table at {tmp_path / 'nothing'}; check the")
    assert len(result.stderr.splitlines()) == 1


def test_a_store_that_cannot_hold_tables() -> None:
    ended = run("compact", "ftp://host/table")
    assert ended.exit_code == 2
    assert "TIDELOG_STORE_NOT_SUPPORTED" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["scan", "--where", "n >"], "TIDELOG_PREDICATE"),
        (["scan", "--where", "nn = 1"], "the columns are n, part"),
        (["scan", "--columns", "nn"], "the columns are n, part"),
        (["scan", "--timestamp", "yesterday"], "write ISO-8601"),
        (["scan", "--timestamp", "2026-01-31T12:00:00"], "add one, such as Z"),
        (["scan", "--version", "0", "--timestamp", "2026-01-31T12:00:00Z"], "leave one out"),
        (["scan", "--json", "--format", "csv"], "leave one out"),
        (["changes", "--after", "soon"], "write ISO-8601"),
        (["changes", "--after", "²"], "write ISO-8601"),
        (["changes", "--mode", "nonsense"], "TIDELOG_CONFIGURATION"),
        (["expire", "--older-than", "soon"], "write an age such as 30d"),
        (["expire", "--older-than", "1 hour"], "tidelog.maxTransactionTime"),
        (["expire", "--older-than", "1h"], "tidelog.maxTransactionTime"),
        (["expire", "--older-than", "99999999999999999999d"], "write an age such as 30d"),
        (["vacuum", "--older-than", "3000000d"], "write an age such as 30d"),
        (["vacuum", "--older-than", "0 days"], "tidelog.maxTransactionTime"),
        (["vacuum", "--older-than", "2026-01-31"], "add one, such as Z"),
        (["restore"], "give either --version or --timestamp"),
        (["restore", "--version", "0", "--timestamp", "2026-01-31T12:00:00Z"], "give either --version or --timestamp"),
        (["set-properties"], "give K=V, or --unset K"),
        (["set-properties", "delta.appendOnly"], "write KEY=VALUE"),
        (["set-properties", "a=1", "a=2"], "leave one out"),
        (["set-properties", "a=1", "--unset", "a"], "leave one out"),
        (["set-properties", "delta.appendOnly=maybe"], "it must be true or false"),
        (["add-columns", "x nonsense"], "use one of array<...>, bigint"),
        (["add-columns", "n bigint"], "rename one"),
    ],
)
def test_bad_input_is_one_line_with_advice(table: Table, arguments: list[str], advice: str) -> None:
    command, *rest = arguments
    result = run(command, table.path, *rest)
    assert (result.exit_code, result.stdout) == (2, "")
    assert advice in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert table.refresh().version == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["daemon"],
        ["compact"],
        ["compact", "a", "b"],
        ["nonsense"],
        ["compact", "--nonsense", "x"],
        ["daemon", "x", "--interval", "soon"],
        ["scan"],
        ["scan", "x", "--limit", "0"],
        ["scan", "x", "--format", "xml"],
        ["history", "x", "--all"],
        ["add-columns", "x"],
        ["restore", "x", "--version", "one"],
    ],
)
def test_unknown_and_missing_arguments_show_the_usage(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr


# --- storage options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ON_A_TABLE)
def test_storage_options_reach_the_store_and_are_never_shown(
    command: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def refuse(path: str, *, storage_options: Any = None) -> Table:
        seen.append(storage_options)
        raise ConfigurationError("no such bucket", advice="check it", path=path)

    monkeypatch.setattr(Table, "open", refuse)
    given = ["--storage-option", "key=se=cret", "--storage-option", "endpoint=http://x"]
    result = run(command, table.path, *ON_A_TABLE[command], *given)
    assert seen == [{"key": "se=cret", "endpoint": "http://x"}]
    assert "se=cret" not in result.output
    assert result.exit_code == 2


@pytest.mark.parametrize(("command", "method"), [("create", "create"), ("drop", "drop")])
def test_storage_options_of_create_and_drop(command: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def refuse(*_: object, storage_options: Any = None, **__: object) -> Table:
        seen.append(storage_options)
        raise ConfigurationError("no such bucket", advice="check it")

    monkeypatch.setattr(Table, method, refuse)
    given = {"create": ["--schema", "n bigint"], "drop": ["--yes"]}[command]
    result = run(command, "memory://x", *given, "--storage-option", "key=se=cret")
    assert seen == [{"key": "se=cret"}]
    assert (result.exit_code, "se=cret" in result.output) == (2, False)


@pytest.mark.parametrize("text", ["secret", "=secret"])
def test_an_invalid_storage_option_is_not_repeated(table: Table, text: str) -> None:
    result = run("describe", table.path, "--storage-option", "a=b", "--storage-option", text)
    assert result.exit_code == 2
    assert "secret" not in result.output
    assert "--storage-option number 2" in result.stderr
