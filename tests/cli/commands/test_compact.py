"""`tidelog compact`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import run
from tests.compaction_daemon.support import numbers_of, put
from tidelog.cli.commands import compact as module
from tidelog.log import Table
from tidelog.log.errors import ConcurrentAppendException


def test_compact_prints_what_it_did(small_files: Table) -> None:
    ended = run("compact", small_files.path)
    assert ended.exit_code == 0
    assert ended.stdout.startswith(f"{small_files.path}: version 4: 3 files became 1 (")
    assert numbers_of(small_files) == [0, 1, 2]


def test_compact_with_nothing_to_do(small_files: Table) -> None:
    run("compact", small_files.path)
    ended = run("compact", small_files.path)
    reason = "no file needs a rewrite; `tidelog plan` shows why"
    assert (ended.exit_code, ended.stdout) == (4, f"{small_files.path}: nothing to do: {reason}\n")
    ended = run("compact", small_files.path, "--json")
    assert (ended.exit_code, ended.stderr) == (4, "")
    assert json.loads(ended.stdout) == {
        "path": small_files.path,
        "version": None,
        "checkpointed": False,
        "groups": 0,
        "files_removed": 0,
        "files_added": 0,
        "bytes_read": 0,
        "bytes_written": 0,
        "wasted_bytes": 0,
        "rebased_over": [],
        "groups_left": 0,
        "reason": reason,
    }


def test_compact_as_json(small_files: Table) -> None:
    ended = run("compact", "--json", small_files.path)
    assert ended.exit_code == 0
    report = json.loads(ended.stdout)
    assert {
        key: report[key] for key in ("path", "version", "files_removed", "files_added", "checkpointed", "reason")
    } == {
        "path": small_files.path,
        "version": 4,
        "files_removed": 3,
        "files_added": 1,
        "checkpointed": False,
        "reason": "",
    }


def test_compact_takes_level_partitions_and_columns(small_files: Table) -> None:
    put(small_files, 9, 8, part="b")
    put(small_files, 7, part="b")
    ended = run("compact", small_files.path, "--level", "major", "--where", "part = 'b'", "--cluster-by", "n")
    assert ended.exit_code == 0
    assert "2 files became 1" in ended.stdout
    assert numbers_of(small_files, part="b") == [7, 8, 9]
    small_files.delete("n = 9")
    purge = ["compact", small_files.path, "--level", "major", "--where", "part = 'b'", "--purge"]
    assert run(*purge).exit_code == 0
    assert run(*purge).exit_code == 4


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
def test_bad_arguments_are_wrong_use(small_files: Table, command: str, arguments: list[str], fault: str) -> None:
    ended = run(command, small_files.path, *arguments)
    assert ended.exit_code == 2
    assert fault in ended.stderr


def test_a_conflict_has_its_own_exit_code(small_files: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def loses(*_: object, **__: object) -> Any:
        raise ConcurrentAppendException("lost", advice="run it again", path=small_files.path)

    monkeypatch.setattr(module, "compact", loses)
    ended = run("compact", small_files.path)
    expected = f"TIDELOG_CONCURRENT_APPEND: lost; run it again [path={small_files.path}]\n"
    assert (ended.exit_code, ended.stderr) == (3, expected)
