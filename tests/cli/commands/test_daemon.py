"""`tidelog daemon`."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.cli.support import PROGRAM, run
from tests.compaction_daemon.support import SCHEMA, leave_checkpoints_to_the_daemon, numbers_of, put
from tidelog.compaction_daemon.leases import Lease
from tidelog.compaction_daemon.process import daemon
from tidelog.log import Table
from tidelog.log.errors import PathNotWritableError
from tidelog.log.storage.local import LocalStore


def test_once_ends_when_there_is_nothing_left(
    small_files: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_checkpoints_to_the_daemon(monkeypatch)
    other = Table.create(str(tmp_path / "other"), SCHEMA, properties={"delta.checkpointInterval": 2})
    for number in range(4):
        put(other, number)
    ended = run("daemon", "--once", "--json", small_files.path, other.path)
    assert (ended.exit_code, ended.stderr) == (0, "")
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {(line["path"], line["version"], line["checkpointed"]) for line in found} == {
        (small_files.path, 4, False),
        (other.path, 5, True),
    }


def test_once_with_nothing_to_do(small_files: Table, tmp_path: Path) -> None:
    other = Table.create(str(tmp_path / "other"), SCHEMA)
    run("compact", small_files.path)
    ended = run("daemon", "--once", small_files.path, other.path)
    nothing = "nothing to do: no file needs a rewrite; `tidelog plan` shows why"
    expected = f"{small_files.path}: {nothing}\n{other.path}: {nothing}\n"
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, expected, "")
    ended = run("daemon", "--once", "--json", small_files.path, other.path)
    assert (ended.exit_code, ended.stderr) == (0, "")
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(line["path"], line["version"], line["files_added"], line["checkpointed"]) for line in found] == [
        (small_files.path, 4, 0, False),
        (other.path, 0, 0, False),
    ]


def test_once_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_checkpoints_to_the_daemon(monkeypatch)
    table = Table.create(str(tmp_path / "t"), SCHEMA, properties={"delta.checkpointInterval": 2})
    for number in range(3):
        put(table, number)
    ended = run("daemon", "--once", table.path)
    assert ended.exit_code == 0
    assert f"{table.path}: version 4: 3 files became 1 (" in ended.stdout
    assert "), checkpoint at version 4" in ended.stdout
    assert "nothing to do" not in ended.stdout


def test_once_fails_if_a_table_fails_and_still_compacts_the_rest(
    small_files: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = Table.create(str(tmp_path / "sick"), SCHEMA)
    honest = daemon.Daemon.step

    def step(daemon: daemon.Daemon) -> Any:
        shutil.rmtree(sick.path, ignore_errors=True)
        return honest(daemon)

    monkeypatch.setattr(daemon.Daemon, "step", step)
    ended = run("daemon", "--once", sick.path, small_files.path)
    assert f"{sick.path}: TIDELOG_TABLE_NOT_FOUND" in ended.stderr
    assert "3 files became 1" in ended.stdout
    assert ended.exit_code == 1


def test_once_fails_if_upkeep_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_checkpoints_to_the_daemon(monkeypatch)
    table = Table.create(str(tmp_path / "t"), SCHEMA, properties={"delta.checkpointInterval": 2})
    put(table, 1)
    put(table, 2)

    def refused(table: Table) -> None:
        raise PathNotWritableError("no permission", advice="ask", path=table.path)

    monkeypatch.setattr(Table, "checkpoint", refused)
    ended = run("daemon", "--once", table.path)
    assert ended.stderr == f"{table.path}: checkpoint failed: no permission\n"
    assert "2 files became 1" in ended.stdout
    assert ended.exit_code == 1


def test_an_interval_of_zero_is_wrong_use(small_files: Table) -> None:
    ended = run("daemon", small_files.path, "--interval", "0")
    assert ended.exit_code == 2
    assert "--interval must be more than 0, not 0.0" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_daemon_compacts_a_table_until_a_signal_stops_it(small_files: Table, number: signal.Signals) -> None:
    daemon = subprocess.Popen(
        [PROGRAM, "daemon", small_files.path, "--interval", "0.05", "--json"],
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
                    put(small_files, first + k)
                versions.append(json.loads(daemon.stdout.readline())["version"])
            daemon.send_signal(number)
            started = time.monotonic()
            # `communicate` would miss a line that `readline` has already buffered.
            assert daemon.stderr
            out, err = daemon.stdout.read(), daemon.stderr.read()
            daemon.wait(timeout=60)
        finally:
            daemon.kill()
    assert (daemon.returncode, err) == (0, "")
    assert time.monotonic() - started < 30
    versions += [json.loads(line)["version"] for line in out.splitlines()]
    assert versions == sorted(set(versions))
    assert sorted(numbers_of(small_files)) == [0, 1, 2, 10, 11, 12, 13, 20, 21, 22, 23]
    compactions = [record.version for record in reversed(small_files.history()) if record.time_version is None]
    assert compactions[1:] == versions


def test_once_waits_for_the_lease_of_a_daemon_that_was_killed(small_files: Table) -> None:
    Lease.take(Table.open(small_files.path), owner="gone", ttl_s=0.3)
    ended = run("daemon", "--once", small_files.path)
    assert ended.exit_code == 0
    assert "files became 1" in ended.stdout
    assert [entry.operation for entry in small_files.refresh().history(2)] == ["OPTIMIZE", "TAKE OVER"]


def test_once_says_whose_a_table_is(small_files: Table, tmp_path: Path) -> None:
    """It gives up after twice the lease time."""
    config = tmp_path / "tidelog.toml"
    config.write_text("[daemon]\nlease_ttl_s = 0.1\n")
    lease = Lease.take(Table.open(small_files.path), owner="alive", ttl_s=60)
    assert isinstance(lease, Lease)
    ended = run("daemon", "--once", small_files.path, "--config", config)
    assert (ended.exit_code, ended.stdout) == (0, f"{small_files.path}: another daemon keeps it: alive\n")
    ended = run("daemon", "--once", small_files.path, "--config", config, "--json")
    assert json.loads(ended.stdout)["held_by"] == "alive"


def test_once_fails_if_a_search_fails(small_files: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "folders", Mock(side_effect=OSError(5, "Input/output error")))
    ended = run("daemon", "--once", small_files.path, "/lake/*")
    assert ended.exit_code == 1
    assert "/lake/*: the search for tables failed: " in ended.stderr
    assert "files became 1" in ended.stdout
