"""`tidelog expire`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.support import lines, run
from tests.log.support import reopen
from tidelog.log import Table


@pytest.mark.parametrize("age", ["30d", "30 days"])
def test_expire(old: Table, age: str) -> None:
    before = sorted(os.listdir(Path(old.path, "_delta_log")))  # noqa: PTH208
    dry = run("expire", old.path, "--older-than", age, "--dry-run")
    assert dry.exit_code == 0
    assert f"_delta_log/{0:020d}.json\n" in dry.stdout
    assert "would delete 9 commits, 2 checkpoints, 9 other log files (" in dry.stdout
    assert sorted(os.listdir(Path(old.path, "_delta_log"))) == before  # noqa: PTH208
    (report,) = lines(run("expire", old.path, "--older-than", age, "--json"))
    assert (report["earliest_version"], report["commits"], report["dry_run"]) == (9, 9, False)
    assert report["advice"] is None
    again = run("expire", old.path, "--older-than", age)
    assert (again.exit_code, again.stdout) == (4, f"{old.path}: nothing to do: version 9 is already the oldest one\n")
    assert reopen(old).scan().count() == 10


def test_expire_says_that_log_cleanup_is_off_and_what_to_do(old: Table) -> None:
    old.set_properties({"tidelog.cleanUp": False})
    advice = f"run `tidelog expire {old.path} --older-than 30d`, or set tidelog.cleanUp=true"
    result = run("expire", old.path)
    expected = f"{old.path}: nothing to do: log clean-up is off for this table; {advice}\n"
    assert (result.exit_code, result.stdout) == (4, expected)
    result = run("expire", old.path, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["files"], report["advice"]) == (4, [], advice)
    assert "tidelog.cleanUp and delta.enableExpiredLogCleanup are off" in report["reason"]


def test_both_pieces_of_the_advice_work(old: Table) -> None:
    old.set_properties({"tidelog.cleanUp": False})
    assert run("expire", old.path, "--older-than", "30d", "--dry-run").exit_code == 0
    assert run("set-properties", old.path, "tidelog.cleanUp=true").exit_code == 0
    (report,) = lines(run("expire", old.path, "--json"))
    assert (report["commits"], report["advice"]) == (9, None)
