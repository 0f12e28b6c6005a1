"""`tidelog describe`."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from tests.cli.support import SCHEMA, lines, on_terminal, run
from tests.compaction_daemon.support import delete_rows
from tests.log.support import add, numbers, put_foreign
from tidelog.log import Table


def test_describe_as_json(table: Table) -> None:
    delete_rows(table, [0], file=0)
    (found,) = lines(run("describe", table.path, "--json"))
    assert {name: value for name, value in found.items() if name not in ("timestamp", "time_version", "schema")} == {
        "path": table.path,
        "id": table.id,
        "version": 3,
        "earliest_version": 0,
        "partition_by": ["part"],
        "files": 2,
        "rows": 1,
        "dead_rows": 1,
        "bytes": sum(table.refresh().at().files()["size"].to_pylist()),
        "small_files": 2,
        "small_bytes": sum(table.refresh().at().files()["size"].to_pylist()),
        "dead_row_files": 1,
        "log_tail": 4,
        "log_cleanup": {"enabled": True, "advice": None},
        "protocol": {
            "min_reader_version": 3,
            "min_writer_version": 7,
            "reader_features": ["deletionVectors"],
            "writer_features": ["appendOnly", "deletionVectors", "inCommitTimestamp", "invariants"],
        },
        "properties": dict(table.properties),
        "streams": {"job/1": 7},
    }
    assert dt.datetime.fromisoformat(found["timestamp"]) == table.at().timestamp
    assert dt.datetime.fromisoformat(found["time_version"]) == table.time_version
    assert found["schema"][0] == {"name": "n", "type": "int64", "nullable": False}
    assert [field["name"] for field in found["schema"]] == SCHEMA.names


def test_describe_in_words(table: Table) -> None:
    result = run("describe", table.path)
    assert result.exit_code == 0
    for words in (
        table.id,
        "partition by",
        "job/1 = 7",
        "n  bigint  not null",
        "tags  map<string, date>",
        "at  timestamp",
        "inner  struct<x: decimal(5,1), list: array<binary>>",
        "reader 3, writer 7; appendOnly,",
    ):
        assert words in result.stdout
    for line in ("log tail +3", "small files +2", "dead row files +0"):
        assert re.search(f"^{line}$", result.stdout, flags=re.MULTILINE)
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_describe_warns_that_log_cleanup_is_off(table: Table) -> None:
    table.set_properties({"tidelog.cleanUp": False})
    off = f"off (run `tidelog expire {table.path} --older-than 30d`, or set tidelog.cleanUp=true)"
    assert re.search(f"^log clean-up +{re.escape(off)}$", run("describe", table.path).stdout, flags=re.MULTILINE)
    table.set_properties({"delta.logRetentionDuration": "36 hours"})
    assert "--older-than 36h`" in run("describe", table.path).stdout
    table.set_properties({"tidelog.cleanUp": True, "delta.logRetentionDuration": "2 weeks"})
    on = r"^log clean-up +on \(`tidelog expire` deletes entries older than 14d\)$"
    assert re.search(on, run("describe", table.path).stdout, flags=re.MULTILINE)
    (found,) = lines(run("describe", table.path, "--json"))
    assert found["log_cleanup"] == {"enabled": True, "advice": None}


def test_another_engines_table_has_log_cleanup_on(table: Table) -> None:
    """Delta's own default is on; only tables that tidelog creates have the property."""
    table.set_properties({"delta.enableExpiredLogCleanup": None, "tidelog.cleanUp": None})
    assert lines(run("describe", table.path, "--json"))[0]["log_cleanup"]["enabled"] is True


def test_describe_an_empty_table_and_one_without_counts(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema, properties={"delta.enableDeletionVectors": False})
    (found,) = lines(run("describe", table.path, "--json"))
    assert (found["rows"], found["files"], found["bytes"], found["time_version"]) == (0, 0, 0, None)
    assert run("describe", table.path).exit_code == 0
    put_foreign(table, add("x", stats=None))
    (found,) = lines(run("describe", table.path, "--json"))
    assert (found["rows"], found["files"]) == (None, 1)
    assert re.search(r"^rows +unknown$", run("describe", table.path).stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_loses_nothing(table: Table, columns: int) -> None:
    table.set_properties({"tidelog.cleanUp": False})
    shown = on_terminal("describe", table.path, columns=columns)
    assert shown.code == 0
    assert max(map(len, shown.lines)) <= columns
    joined = "".join(line[18:].strip() for line in shown.lines).replace(" ", "")
    assert table.id in joined
    assert f"expire{table.path}--older-than30d".replace(" ", "") in joined
    assert "…" not in shown.text
