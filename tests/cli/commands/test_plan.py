"""`tidelog plan`."""

from __future__ import annotations

import json

import pytest

from tests.cli.support import run
from tests.compaction_daemon.support import delete_rows, put
from tidelog.cli import plans
from tidelog.compaction_daemon import Plan, plan
from tidelog.log import Table


def sections(text: str) -> list[list[str]]:
    """The lines of each part of the output."""
    return [part.splitlines() for part in text.split("\n\n")]


def test_plan_prints_what_and_why(small_files: Table) -> None:
    put(small_files, 7, part="b")
    ended = run("plan", small_files.path)
    assert ended.exit_code == 0
    summary, groups, scopes, files = sections(ended.stdout)
    assert len(summary) == 1
    assert summary[0].startswith(f"{small_files.path}: minor, 1 group: 3 files become about 1; reads ")
    assert summary[0].endswith(" takes about 0.0 s, conflict odds 0%")
    assert groups[0] == "groups, the best first:"
    assert groups[1].split() == ["level", "partition", "files", "into", "reads", "writes", "seconds", "conflict", "why"]
    assert groups[2].split()[:4] == ["minor", "part=a", "3", "1"]
    assert groups[2].endswith("0%  3 small")
    assert scopes[0] == "partitions with debt:"
    assert scopes[2].split()[:5] == ["part=a", "3", "3", "0", "0"]
    assert scopes[2].endswith("1 group for minor")
    header, *rows = files[1:]
    assert header.split() == ["file", "chosen", "why"]
    assert [row.split()[1] for row in rows] == ["yes", "yes", "yes", "no"]
    assert rows[3].endswith("small, but there is no other small file to pack it with")
    assert small_files.refresh().version == 4, "a plan changes nothing"
    ended = run("plan", small_files.path, "--level", "major", "--cluster-by", "n", "--where", "part = 'b'")
    assert "major, 1 group: 1 file become about 1;" in ended.stdout.replace("becomes", "become")
    assert "1 small, 1 not clustered yet; clustered by n" in ended.stdout


def test_plan_as_json_is_a_plan(small_files: Table) -> None:
    ended = run("plan", small_files.path, "--json")
    assert ended.exit_code == 0
    assert Plan.from_json(ended.stdout) == plan(small_files)
    run("compact", small_files.path)
    ended = run("plan", small_files.path, "--json")
    assert ended.exit_code == 4
    assert json.loads(ended.stdout)["groups"] == []
    ended = run("plan", small_files.path)
    assert (ended.exit_code, ended.stdout.splitlines()[0]) == (4, f"{small_files.path}: nothing to do")


def test_plan_names_files_without_a_live_row(small_files: Table) -> None:
    delete_rows(small_files, [0])
    assert "all of their rows are dead" in run("plan", small_files.path).stdout


def test_what_the_daemon_would_do(small_files: Table) -> None:
    """The files were written this moment, so MAJOR waits."""
    ended = run("plan", small_files.path, "--level", "auto")
    assert ended.exit_code == 0
    assert "auto, 1 group: 3 files" in ended.stdout
    found = json.loads(run("plan", small_files.path, "--level", "auto", "--json").stdout)
    assert [group["level"] for group in found["groups"]] == ["minor"]
    assert found["scopes"][0]["reason"].startswith("1 group for minor; major waits for another ")


def test_long_lists_are_cut_with_a_note(small_files: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MAX_ROWS", 2)
    put(small_files, 7, part="b")
    files = sections(run("plan", small_files.path).stdout)[-1]
    assert files[0] == "files:"
    assert len(files) == 1 + 1 + 2 + 1
    assert files[-1] == "and 2 more files; --json prints all"
