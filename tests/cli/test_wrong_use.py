"""Wrong use: exit code 2, and one line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.support import ON_A_TABLE, run
from tests.log.support import metadata, put_commit
from tidelog.cli.output import timestamp_text
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import Protocol
from tidelog.log.storage.local import LocalStore

# They go on with their other tables; and a table of a daemon need not exist, so it can be no wrong use.
OF_SEVERAL = {"daemon", "status"}


@pytest.mark.parametrize("command", [*ON_A_TABLE, "drop --yes"])
def test_a_path_without_a_table_is_one_line(command: str, tmp_path: Path) -> None:
    name, *rest = command.split()
    result = run(name, tmp_path / "nothing", *rest, *ON_A_TABLE.get(name, []))
    code, path = (1, f"{tmp_path}/nothing: ") if name in OF_SEVERAL else (2, "")
    assert (result.exit_code, result.stdout) == (code, "")
    error = f"{path}TIDELOG_TABLE_NOT_FOUND: there is no table at {tmp_path / 'nothing'}; check the"
    assert result.stderr.startswith(error)
    other = "" if name == "adopt" else ", or make one of parquet files with tidelog adopt"
    assert f"create the table with tidelog create{other} [" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_is_at_a_path_without_a_table_is_one_line(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    for arguments in (["scan", tmp_path], ["create", tmp_path, "--schema", "n bigint"]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
        assert "it is a folder of parquet files; " in result.stderr
        assert "make a table of them with tidelog adopt --apply [" in result.stderr


def test_a_version_that_does_not_exist_shows_what_there_is(table: Table) -> None:
    result = run("restore", table.path, "--version", "77")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "version 77 is not in the log; the available versions are 0 to 2, which history lists [" in result.stderr


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
        (["expire", "--older-than", "1 hour"], "--older-than must be at least 1 day (tidelog.maxTransactionTime)"),
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
        (["set-properties", "appendOnly=true"], "did you mean 'delta.appendOnly'? write it so, or choose a key with"),
        (["set-properties", "delta.appendOnly=maybe"], "it must be true or false"),
        (["add-columns", "x nonsense"], "use one of array<...>, bigint"),
        (["add-columns", "n bigint"], "the table already has a column 'n' (case does not matter); choose another name"),
        (["add-columns", "x bigint not null"], "; remove NOT NULL"),
        (["changes", "--mode", "net"], "; pass --keys, or set the property tidelog.primaryKey"),
        (["compact", "--where", "n = 1"], "'n' is not a partition column; the partition columns are part ["),
        (["history", "--limit", "0"], "--limit must be at least 1, not 0; see tidelog history --help"),
        (["scan", "--limit", "ten"], "--limit must be a whole number, not 'ten'; see tidelog scan --help"),
        (["scan", "--version", "abc"], "--version must be a whole number, not 'abc'; see tidelog scan --help"),
        (["scan", "--format", "xml"], "--format must be one of table, json, csv, not 'xml'; see tidelog scan"),
        (["daemon", "--interval", "0"], "--interval must be more than 0, not 0.0; see tidelog daemon --help"),
        (["daemon", "--interval", "soon"], "--interval must be a number of seconds, not 'soon'"),
        (
            ["daemon", "--listen", "8080"],
            "'8080' is not an address to listen on; write HOST:PORT, such as 127.0.0.1:8080",
        ),
        (["daemon", "--log-format", "xml"], "--log-format must be one of text, json, not 'xml'; see tidelog daemon"),
        (["daemon", "--log-level", "loud"], "--log-level must be one of debug, info, warning, error, not 'loud'"),
        (["daemon", "--config", "/no/such/file"], "cannot read the configuration file /no/such/file: No such file or"),
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
    ("arguments", "message"),
    [
        (["daemon"], "missing argument 'PATH' or option '--config'; see tidelog daemon --help"),
        (["compact"], "missing argument 'PATH'; see tidelog compact --help"),
        (["compact", "a", "b"], "got unexpected extra argument(s) (b); see tidelog compact --help"),
        (["nonsense"], "no such command 'nonsense'; see tidelog --help"),
        (["--nonsense"], "no such option: --nonsense; see tidelog --help"),
        (["compact", "--nonsense", "x"], "no such option: --nonsense; see tidelog compact --help"),
        (["scan", "x", "--limit"], "option '--limit' requires an argument; see tidelog scan --help"),
        (["history", "x", "--all"], "no such option: --all; see tidelog history --help"),
        (
            ["create", "x", "id"],
            'got unexpected extra argument(s) (id); give the columns as --schema "id long"; see tidelog create --help',
        ),
        (
            ["consumers", "x"],
            "missing argument 'PATH'; write list, reset or remove before the path; see tidelog consumers --help",
        ),
        (["add-columns", "x"], "missing argument 'COLUMNS'; see tidelog add-columns --help"),
        (["doctor", "x", "--rounds", "some"], "--rounds must be a whole number, not 'some'; see tidelog doctor --help"),
    ],
)
def test_unknown_and_missing_arguments_are_one_line(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"TIDELOG_CONFIGURATION: {message}\n"


def test_a_protocol_upgrade_is_asked_for_as_an_option(tmp_path: Path) -> None:
    old = Protocol(min_reader_version=1, min_writer_version=2)
    put_commit(LocalStore(str(tmp_path)), 0, old, metadata(), info={"inCommitTimestamp": None})
    result = run("set-properties", tmp_path, "delta.enableDeletionVectors=true")
    assert result.exit_code == 2
    assert (
        "; pass --allow-protocol-upgrade to raise the protocol to reader version 3, writer version 7" in result.stderr
    )


def test_a_time_before_the_history_shows_what_there_is(table: Table) -> None:
    result = run("scan", table.path, "--timestamp", "2020-01-01T00:00:00Z")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    first, last = table.at(version=0).timestamp, table.at().timestamp
    expected = (
        "TIDELOG_HISTORY_RANGE: 2020-01-01T00:00:00Z is before the retained history; the available versions are 0 to "
        f"2, the first was committed at {timestamp_text(first)}, the last at {timestamp_text(last)} ["
    )
    assert result.stderr.startswith(expected)


# --- storage options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ON_A_TABLE)
def test_storage_options_reach_the_store_and_are_never_shown(
    command: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def refuse(path: str, *, storage_options: Any = None, **_: object) -> Table:
        seen.append(storage_options)
        raise ConfigurationError("no such bucket", advice="check it", path=path)

    monkeypatch.setattr(Table, "open", refuse)
    given = ["--storage-option", "key=se=cret", "--storage-option", "endpoint=http://x"]
    result = run(command, table.path, *ON_A_TABLE[command], *given)
    assert seen == [{"key": "se=cret", "endpoint": "http://x"}]
    assert "se=cret" not in result.output
    assert result.exit_code == (1 if command in OF_SEVERAL else 2)


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
