"""The command `tidelog`: what it prints and how it exits."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import SCHEMA, delete_rows, numbers_of, put
from tidelog import cli
from tidelog.cli import maintain
from tidelog.compaction_daemon import Plan, daemon, plan
from tidelog.log import Table
from tidelog.log.errors import (
    CommitStateUnknownError,
    ConcurrentAppendException,
    ConfigurationError,
    CorruptLogError,
    FencedError,
    PredicateError,
    StoreUnavailableError,
    TableNotFoundError,
    TidelogError,
)


@dataclass(frozen=True)
class Ended:
    """How a call of the command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def tidelog(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process; the real program is run below."""

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tidelog", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        text = capsys.readouterr()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Ended(code, text.out, text.err)

    return call


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    for number in range(3):
        put(made, number)
    return made


def test_compact_says_what_it_did(tidelog: Command, table: Table) -> None:
    ended = tidelog("compact", table.path)
    assert ended.code == 0
    assert ended.out.startswith(f"{table.path}: version 4: 3 files became 1 (")
    assert numbers_of(table) == [0, 1, 2]


def test_compact_with_nothing_to_do(tidelog: Command, table: Table) -> None:
    tidelog("compact", table.path)
    ended = tidelog("compact", table.path)
    assert (ended.code, ended.out) == (4, f"{table.path}: nothing to do\n")
    assert tidelog("compact", table.path, "--json") == Ended(4, "", "")


def test_compact_as_json(tidelog: Command, table: Table) -> None:
    ended = tidelog("compact", "--json", table.path)
    assert ended.code == 0
    report = json.loads(ended.out)
    assert {key: report[key] for key in ("path", "version", "files_removed", "files_added", "checkpointed")} == {
        "path": table.path,
        "version": 4,
        "files_removed": 3,
        "files_added": 1,
        "checkpointed": False,
    }


def test_compact_takes_level_partitions_and_columns(tidelog: Command, table: Table) -> None:
    put(table, 9, 8, part="b")
    put(table, 7, part="b")
    ended = tidelog("compact", table.path, "--level", "major", "--where", "part = 'b'", "--cluster-by", "n")
    assert ended.code == 0
    assert "2 files became 1" in ended.out
    assert numbers_of(table, part="b") == [7, 8, 9]
    table.delete("n = 9")
    assert tidelog("compact", table.path, "--level", "major", "--where", "part = 'b'", "--purge").code == 0
    assert tidelog("compact", table.path, "--level", "major", "--where", "part = 'b'", "--purge").code == 4


@pytest.mark.parametrize("command", ["compact", "plan"])
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--level", "huge"], "use one of minor, major"),
        (["--purge"], "neither clusters nor purges"),
        (["--level", "major", "--cluster-by", "n,x"], "there is no column 'x'"),
        (["--where", "n = 1"], "'n' is not a partition column"),
    ],
)
def test_what_cannot_be_compacted_is_wrong_use(
    tidelog: Command, table: Table, command: str, arguments: list[str], fault: str
) -> None:
    ended = tidelog(command, table.path, *arguments)
    assert ended.code == 2
    assert fault in ended.err


def test_plan_says_what_and_why(tidelog: Command, table: Table) -> None:
    put(table, 7, part="b")
    ended = tidelog("plan", table.path)
    assert ended.code == 0
    first, header, *rows = ended.out.splitlines()
    assert first.startswith(f"{table.path}: 3 files (")
    assert first.endswith(" bytes) of part=a become about 1")
    assert header.split() == ["file", "chosen", "why"]
    assert [row.split()[1] for row in rows] == ["yes", "yes", "yes", "no"]
    assert rows[3].endswith("small, but no small file near it in time fits beside it")
    assert table.refresh().version == 4, "a plan changes nothing"
    ended = tidelog("plan", table.path, "--level", "major", "--cluster-by", "n", "--where", "part = 'b'")
    assert "1 files" in ended.out
    assert "become about 1, clustered by n" in ended.out


def test_plan_as_json_is_a_plan(tidelog: Command, table: Table) -> None:
    ended = tidelog("plan", table.path, "--json")
    assert ended.code == 0
    assert Plan.from_json(ended.out) == plan(table)
    tidelog("compact", table.path)
    ended = tidelog("plan", table.path, "--json")
    assert ended.code == 4
    assert json.loads(ended.out)["groups"] == []
    ended = tidelog("plan", table.path)
    assert (ended.code, ended.out.splitlines()[0]) == (4, f"{table.path}: nothing to do")


def test_plan_names_files_without_a_live_row(tidelog: Command, table: Table) -> None:
    delete_rows(table, [0])
    assert "1 files" in (out := tidelog("plan", table.path).out)
    assert "of part=a are dropped: no row of them is live" in out


def test_daemon_once_ends_when_there_is_nothing_left(tidelog: Command, table: Table, tmp_path: Path) -> None:
    other = Table.create(str(tmp_path / "other"), SCHEMA, properties={"delta.checkpointInterval": 2})
    for number in range(4):
        put(other, number)
    ended = tidelog("daemon", "--once", "--json", table.path, other.path)
    assert (ended.code, ended.err) == (0, "")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert {(line["path"], line["version"], line["checkpointed"]) for line in lines} == {
        (table.path, 4, False),
        (other.path, 5, True),
    }
    assert tidelog("daemon", "--once", table.path, other.path) == Ended(0, "", "")


def test_daemon_once_in_words(tidelog: Command, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, properties={"delta.checkpointInterval": 2})
    for number in range(3):
        put(table, number)
    ended = tidelog("daemon", "--once", table.path)
    assert ended.code == 0
    assert f"{table.path}: version 4: 3 files became 1 (" in ended.out
    assert "), checkpoint at version 4" in ended.out


def test_daemon_once_fails_where_a_table_fails_and_looks_after_the_others(
    tidelog: Command, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = Table.create(str(tmp_path / "sick"), SCHEMA)
    honest = daemon.Daemon.step

    def step(daemon: daemon.Daemon) -> Any:
        shutil.rmtree(sick.path, ignore_errors=True)
        return honest(daemon)

    monkeypatch.setattr(daemon.Daemon, "step", step)
    ended = tidelog("daemon", "--once", sick.path, table.path)
    assert f"{sick.path}: TIDELOG_TABLE_NOT_FOUND" in ended.err
    assert "3 files became 1" in ended.out
    assert ended.code == 1


@pytest.mark.parametrize("command", [["compact"], ["daemon", "--once"], ["daemon"]])
def test_not_a_table(tidelog: Command, tmp_path: Path, command: list[str]) -> None:
    ended = tidelog(*command, str(tmp_path / "nothing"))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"TIDELOG_TABLE_NOT_FOUND: there is no table at {tmp_path / 'nothing'}; check the path")
    assert len(ended.err.splitlines()) == 1


def test_a_store_that_cannot_hold_tables(tidelog: Command) -> None:
    ended = tidelog("compact", "ftp://host/table")
    assert ended.code == 2
    assert "TIDELOG_STORE_NOT_SUPPORTED" in ended.err


def test_a_damaged_log(tidelog: Command, table: Table) -> None:
    for file in Path(table.path, "_delta_log").iterdir():
        if file.suffix == ".crc":
            file.unlink()
    Path(table.path, "_delta_log", f"{2:020d}.json").write_text("{")
    ended = tidelog("compact", table.path)
    assert ended.code == 1
    assert ended.err.startswith("TIDELOG_CORRUPT_LOG: commit 2 of")


@pytest.mark.parametrize(
    "arguments",
    [
        ["daemon"],
        ["compact"],
        ["compact", "a", "b"],
        ["nonsense"],
        ["compact", "--nonsense", "x"],
        ["daemon", "x", "--interval", "soon"],
    ],
)
def test_wrong_use(tidelog: Command, arguments: list[str]) -> None:
    ended = tidelog(*arguments)
    assert ended.code == 2
    assert "Usage" in ended.err or "Usage" in ended.out


def test_an_interval_of_nothing(tidelog: Command, table: Table) -> None:
    ended = tidelog("daemon", table.path, "--interval", "0")
    assert ended.code == 2
    assert "give seconds above zero" in ended.err


def test_help(tidelog: Command) -> None:
    ended = tidelog("--help")
    assert ended.code == 0
    assert "compact" in ended.out
    assert "daemon" in ended.out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TidelogError("x"), 1),
        (StoreUnavailableError("x"), 1),
        (CommitStateUnknownError("x"), 1),
        (CorruptLogError("x"), 1),
        (FencedError("x"), 1),
        (ConfigurationError("x"), 2),
        (TableNotFoundError("x"), 2),
        (PredicateError("x"), 2),
        (ConcurrentAppendException("x"), 3),
    ],
)
def test_exit_codes(error: TidelogError, code: int) -> None:
    assert cli.exit_code(error) == code


def test_a_conflict_exits_with_its_own_code(tidelog: Command, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def loses(*_: object, **__: object) -> Any:
        raise ConcurrentAppendException("lost", advice="run it again", path=table.path)

    monkeypatch.setattr(maintain, "compact", loses)
    ended = tidelog("compact", table.path)
    assert (ended.code, ended.err) == (3, f"TIDELOG_CONCURRENT_APPEND: lost; run it again [path={table.path}]\n")


# --- the real program ------------------------------------------------------------------------------------------------

PROGRAM = str(Path(sys.executable).parent / "tidelog")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_daemon_looks_after_a_table_until_it_is_told_to_end(table: Table, number: signal.Signals) -> None:
    daemon = subprocess.Popen(
        [PROGRAM, "daemon", table.path, "--interval", "0.05", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with daemon:
        try:
            assert daemon.stdout
            versions = [json.loads(daemon.stdout.readline())["version"]]
            # It notices what is written while it runs.
            for first in (10, 20):
                for k in range(4):
                    put(table, first + k)
                versions.append(json.loads(daemon.stdout.readline())["version"])
            daemon.send_signal(number)
            started = time.monotonic()
            # Not by `communicate`, which would miss a line that `readline` has taken in beside another.
            assert daemon.stderr
            out, err = daemon.stdout.read(), daemon.stderr.read()
            daemon.wait(timeout=60)
        finally:
            daemon.kill()
    assert (daemon.returncode, err) == (0, "")
    assert time.monotonic() - started < 30
    versions += [json.loads(line)["version"] for line in out.splitlines()]
    assert versions == sorted(set(versions))
    assert sorted(numbers_of(table)) == [0, 1, 2, 10, 11, 12, 13, 20, 21, 22, 23]
    assert [record.version for record in reversed(table.history()) if record.time_version is None][1:] == versions
