"""`tidelog compact`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import run
from tests.compaction_daemon.support import SCHEMA, delete_rows, live_files, numbers_of, put
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
        "versions": [],
        "dropped": [],
        "predicted": {"bytes_to_read": 0, "bytes_to_write": 0, "seconds": 0.0, "conflict_odds": 0.0},
        "seconds": 0.0,
        "levels": [],
        "stopped": None,
        "purge": None,
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
        (["--level", "huge"], "use one of minor, major, auto"),
        (["--max-bytes", "0"], "--max-bytes must be a size above zero, such as 2GiB, not '0'"),
        (["--max-seconds", "soon"], "--max-seconds must be a number of seconds, not 'soon'"),
        (["--level", "major", "--cluster-by", "n", "--cluster-order", "z"], "use one of hilbert, sort"),
        (["--purge"], "neither clusters nor purges"),
        (["--level", "major", "--cluster-by", "n,x"], "there is no column 'x'"),
        (["--where", "n = 1"], "'n' is not a partition column"),
    ],
)
def test_bad_arguments_are_wrong_use(small_files: Table, command: str, arguments: list[str], fault: str) -> None:
    ended = run(command, small_files.path, *arguments)
    assert ended.exit_code == 2
    assert fault in ended.stderr


@pytest.fixture
def plan_file(small_files: Table, tmp_path: Path) -> Path:
    """What `tidelog plan --json` prints for two partitions."""
    put(small_files, 7, part="b")
    put(small_files, 8, part="b")
    file = tmp_path / "plan.json"
    file.write_text(run("plan", small_files.path, "--json").stdout)
    return file


def test_a_plan_is_kept_and_applied(small_files: Table, plan_file: Path) -> None:
    put(small_files, 9, part="b")
    ended = run("compact", small_files.path, "--plan", str(plan_file))
    assert ended.exit_code == 0
    assert f"{small_files.path}: version 7: 5 files became 2 (" in ended.stdout
    assert sorted(numbers_of(small_files, part="b")) == [7, 8, 9]
    again = run("compact", small_files.path, "--plan", str(plan_file))
    assert again.exit_code == 4
    first, *dropped = again.stdout.splitlines()
    assert first == f"{small_files.path}: nothing to do: the files of the plan have changed since; make a new one"
    assert [line.split(": ")[1] for line in dropped] == ["left alone 3 files of part=a", "left alone 2 files of part=b"]
    assert all(line.endswith(".parquet: the file is no longer part of the table") for line in dropped)


def test_a_group_whose_files_changed_is_left_alone_and_named(small_files: Table, plan_file: Path) -> None:
    delete_rows(small_files, [0], file=0)
    changed = live_files(small_files)[0].path
    dry = run("compact", small_files.path, "--plan", str(plan_file), "--dry-run")
    assert dry.exit_code == 0
    ended = run("compact", small_files.path, "--plan", str(plan_file))
    assert ended.exit_code == 0
    named = f"left alone 3 files of part=a: {changed}: rows of the file were deleted or brought back"
    assert named in dry.stdout
    assert named in ended.stdout
    assert "2 files became 1" in ended.stdout
    as_json = json.loads(run("compact", small_files.path, "--plan", str(plan_file), "--json").stdout)
    assert [group["files"] for group in as_json["dropped"]] == [3, 2]


@pytest.mark.parametrize(
    "option",
    [["--level", "minor"], ["--where", "part = 'a'"], ["--purge"], ["--cluster-by", "n"], ["--max-bytes", "1GiB"]],
)
def test_a_plan_and_other_wishes_are_wrong_use(small_files: Table, plan_file: Path, option: list[str]) -> None:
    ended = run("compact", small_files.path, "--plan", str(plan_file), *option)
    assert ended.exit_code == 2
    assert "--plan already says what to do; leave out --level" in ended.stderr


def test_a_plan_that_cannot_be_used(small_files: Table, plan_file: Path, tmp_path: Path) -> None:
    other = Table.create(str(tmp_path / "other"), SCHEMA, partition_by=["part"])
    ended = run("compact", other.path, "--plan", str(plan_file))
    assert (ended.exit_code, ended.stderr.split(":")[0]) == (1, "TIDELOG_TABLE_REPLACED")
    ended = run("compact", other.path, "--plan", str(tmp_path / "nothing"))
    assert ended.exit_code == 2
    assert "write it with tidelog plan --json > FILE" in ended.stderr
    plan_file.write_text("{}")
    ended = run("compact", small_files.path, "--plan", str(plan_file))
    assert ended.exit_code == 2
    assert f"'{plan_file}' is not a plan: Object missing required field" in ended.stderr
    assert "write it with tidelog plan --json > FILE" in ended.stderr


def test_a_plan_without_end_is_refused(small_files: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PLAN_BYTES", 1000)
    ended = run("compact", small_files.path, "--plan", "/dev/zero")
    assert ended.exit_code == 2
    assert "'/dev/zero' is not a plan: it has more than 1,000 bytes; write it with" in ended.stderr


def test_a_dry_run_prints_the_plan_and_changes_nothing(small_files: Table) -> None:
    ended = run("compact", small_files.path, "--dry-run", "--level", "major")
    assert ended.exit_code == 0
    assert ended.stdout == run("plan", small_files.path, "--level", "major").stdout
    assert small_files.refresh().version == 3
    run("compact", small_files.path)
    assert run("compact", small_files.path, "--dry-run").exit_code == 4


def test_a_budget_bounds_what_one_call_does(small_files: Table) -> None:
    put(small_files, 7, part="b")
    put(small_files, 8, part="b")
    ended = run("compact", small_files.path, "--max-bytes", "1b")
    assert "1 group left for the next compaction" in ended.stdout
    ended = run("plan", small_files.path, "--max-seconds", "0.001", "--level", "major", "--cluster-by", "n")
    assert f"{small_files.path}: left to a later plan: 1 group of" in ended.stdout


def test_a_conflict_has_its_own_exit_code(small_files: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def loses(*_: object, **__: object) -> Any:
        raise ConcurrentAppendException("lost", advice="run it again", path=small_files.path)

    monkeypatch.setattr(module, "compact", loses)
    ended = run("compact", small_files.path)
    expected = f"TIDELOG_CONCURRENT_APPEND: lost; run it again [path={small_files.path}]\n"
    assert (ended.exit_code, ended.stderr) == (3, expected)
