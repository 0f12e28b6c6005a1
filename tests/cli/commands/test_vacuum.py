"""`tidelog vacuum`."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from tests.cli.support import lines, run
from tests.log.faults import Deleting
from tests.log.support import reopen
from tidelog.cli.commands import vacuum as module
from tidelog.compaction_daemon import vacuum
from tidelog.log import Table


def test_vacuum(old: Table) -> None:
    dry = run("vacuum", old.path, "--dry-run")
    assert dry.exit_code == 0
    assert sorted(dry.stdout.splitlines()[:-1]) == ["orphan-1.parquet", "orphan-2.parquet"]
    assert "would delete 2 data files, 0 deletion vectors, 0 change files, 0 row maps (10 bytes)" in dry.stdout
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
