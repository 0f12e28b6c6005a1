"""`tidelog plan`."""

from __future__ import annotations

import json

from tests.cli.support import run
from tests.compaction_daemon.support import delete_rows, put
from tidelog.compaction_daemon import Plan, plan
from tidelog.log import Table


def test_plan_prints_what_and_why(small_files: Table) -> None:
    put(small_files, 7, part="b")
    ended = run("plan", small_files.path)
    assert ended.exit_code == 0
    first, header, *rows = ended.stdout.splitlines()
    assert first.startswith(f"{small_files.path}: rewrite 3 files (")
    assert first.endswith(" bytes) of part=a into about 1")
    assert header.split() == ["file", "chosen", "why"]
    assert [row.split()[1] for row in rows] == ["yes", "yes", "yes", "no"]
    assert rows[3].endswith("small, but there is no other small file to pack it with")
    assert small_files.refresh().version == 4, "a plan changes nothing"
    ended = run("plan", small_files.path, "--level", "major", "--cluster-by", "n", "--where", "part = 'b'")
    assert "rewrite 1 file (" in ended.stdout
    assert "into about 1, clustered by n" in ended.stdout


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
    assert "drop 1 file (" in (out := run("plan", small_files.path).stdout)
    assert "of part=a: all their rows are dead" in out
