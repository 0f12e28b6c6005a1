"""`tidelog vacuum`."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import lines, run
from tests.log.faults import Deleting
from tests.log.support import START_MS, reopen
from tidelog.cli.commands import vacuum as module
from tidelog.compaction_daemon import vacuum
from tidelog.log import Table


def test_vacuum(old: Table) -> None:
    dry = run("vacuum", old.path, "--dry-run")
    assert dry.exit_code == 0
    assert sorted(dry.stdout.splitlines()[4:-1]) == ["orphan-1.parquet", "orphan-2.parquet"]
    assert (
        "would delete 2 data files, 0 deletion vectors, 0 change files, 0 row maps, 0 other files (10 bytes)"
        in dry.stdout
    )
    since = (dt.datetime.now(dt.UTC) - dt.timedelta(days=2)).isoformat(timespec="milliseconds")
    (report,) = lines(run("vacuum", old.path, "--json", "--older-than", since))
    assert report["cutoff"].endswith("Z")
    assert dt.datetime.fromisoformat(report["cutoff"]) == dt.datetime.fromisoformat(since)
    assert report["reason"] == ""
    assert (sorted(report["files"]), report["bytes_deleted"]) == (["orphan-1.parquet", "orphan-2.parquet"], 10)
    assert run("vacuum", old.path).exit_code == 4
    result = run("vacuum", old.path, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["files"]) == (4, [])
    assert report["reason"] == "every file is young or needed by a retained version"
    assert reopen(old).scan().count() == 10


def test_vacuum_fails_if_a_file_cannot_be_deleted(old: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_sick_disk(table: Table, **how: Any) -> Any:
        return vacuum(Table(Deleting(table.store, suffix="1.parquet"), table._state), **how)

    monkeypatch.setattr(module, "vacuum", on_a_sick_disk)
    result = run("vacuum", old.path)
    assert result.exit_code == 1
    assert result.stderr.startswith("orphan-1.parquet: TIDELOG_STORE_UNAVAILABLE")
    assert "deleted 1 data file, 0 deletion vectors" in result.stdout
    again = run("vacuum", old.path)
    assert again.exit_code == 1


def test_a_dry_run_shows_the_retentions(old: Table) -> None:
    shown = run("vacuum", old.path, "--dry-run").stdout
    assert "keeps files that left the table: 7 days (delta.deletedFileRetentionDuration, the default)\n" in shown
    assert "the default" not in run("vacuum", old.path, "--dry-run", "--older-than", "8d").stdout
    old.set_properties({"delta.deletedFileRetentionDuration": "12 hours"})
    (report,) = lines(run("vacuum", old.path, "--dry-run", "--json"))
    (found,) = [each for each in report["retentions"] if each["property"] == "delta.deletedFileRetentionDuration"]
    assert (found["duration"], found["from_table"]) == ("1 day", True)
    assert found["raised_by"] == "tidelog.maxTransactionTime"


def test_without_a_listing(old: Table) -> None:
    """What no commit ever named is left."""
    result = run("vacuum", old.path, "--no-listing", "--json")
    assert (result.exit_code, json.loads(result.stdout)["listing"]) == (4, False)
    assert run("vacuum", old.path, "--json").exit_code == 0


def test_a_streaming_checkpoint_is_kept_and_named(old: Table) -> None:
    for name in ("metadata", "offsets/0"):
        path = Path(old.path, "cp", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1")
        os.utime(path, (START_MS / 1000 - 1, START_MS / 1000 - 1))
    (report,) = lines(run("vacuum", old.path, "--dry-run", "--json"))
    assert report["checkpoints"] == ["cp"]
    result = run("vacuum", old.path)
    assert "kept cp, which looks like the checkpoint of a streaming query" in result.stderr
