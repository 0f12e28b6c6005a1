"""`tidelog history`."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.support import lines, on_terminal, run
from tidelog.compaction_daemon import compact
from tidelog.log import Table


def test_history_as_json(table: Table) -> None:
    table.insert([{"n": 3}])
    compact(table)
    found = lines(run("history", table.path, "--json"))
    assert [record["version"] for record in found] == [4, 3, 2, 1, 0]
    assert {name: found[0][name] for name in ("class", "operation", "data_change", "rows", "time_version")} == {
        "class": "MINOR",
        "operation": "OPTIMIZE",
        "data_change": False,
        "rows": None,
        "time_version": None,
    }
    assert (found[0]["files_added"], found[0]["files_removed"]) == (1, 2)
    assert [record["rows"] for record in found] == [None, 1, 1, 1, None]
    assert found[1]["time_version"] == found[1]["timestamp"]
    assert found[1]["timestamp"].endswith("Z")
    assert found[1]["engine"].startswith("tidelog/")
    assert found[1]["metrics"]["numOutputRows"] == "1"


def test_history_in_words_and_limited(table: Table) -> None:
    result = run("history", table.path, "--limit", 2)
    heading, *rows = result.stdout.splitlines()
    assert heading.split("  ")[0] == "version"
    assert [row.split()[0] for row in rows] == ["2", "1"]
    assert "INSERT" in rows[0]
    assert "+1 -0" in rows[0]
    assert len(lines(run("history", table.path, "--limit", 1, "--json"))) == 1


def test_commits_that_changed_rows_are_marked(table: Table) -> None:
    rows = run("history", table.path).stdout.splitlines()[1:]
    assert [row.split()[2] == "*" for row in rows] == [True, True, False]
    stamp = table.history()[0].timestamp.isoformat(timespec="milliseconds")
    assert stamp.replace("+00:00", "Z") in rows[0]


@pytest.mark.parametrize("columns", [80, 100])
def test_a_common_terminal_shows_a_table(table: Table, columns: int) -> None:
    shown = on_terminal("history", table.path, columns=columns)
    assert len(shown.lines) == 4
    assert max(map(len, shown.lines)) <= columns
    for line, record in zip(shown.lines[1:], table.history(), strict=True):
        assert line.split()[0] == str(record.version)
        assert record.timestamp.isoformat(timespec="milliseconds")[:23] in line, "a time is never cut"


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_shows_one_field_per_line(table: Table, columns: int) -> None:
    shown = on_terminal("history", table.path, columns=columns)
    assert max(map(len, shown.lines)) <= columns
    assert "…" not in shown.text
    labels = [line.split()[0] for line in shown.lines]
    assert labels == ["version", "timestamp", "class", "operation", "rows", "files", "engine"] * 3


def test_rows_that_were_updated_and_deleted_are_counted(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("day", pa.string())]))
    table.insert([{"id": number, "day": "a"} for number in range(5)])
    table.update("id = 1", {"day": "'b'"})
    table.delete("id in (2, 3)")
    table.upsert([{"id": 4, "day": "c"}, {"id": 5, "day": "c"}, {"id": 6, "day": "c"}], keys=["id"])
    table.upsert([{"id": 0, "day": "gone"}], keys=["id"], delete_where="day = 'gone'")
    table.overwrite([{"id": 7}])
    table.truncate()
    table.set_properties({"delta.appendOnly": True})
    shown = on_terminal("history", table.path, columns=80)
    assert max(map(len, shown.lines)) <= 80
    rows = [" ".join(re.findall(r"[+~-]\d+(?= )", line)[:-1]) for line in shown.lines if re.match(r" *\d", line)]
    assert rows == ["", "-1", "+1", "-1", "+2 ~1", "-2", "~1", "+5", ""]
    for word in ("UPDATE_DELETE", "TBLPROPERTIES", "OVERWRITE"):
        assert word in shown.text.split(), "words stay whole"
    found = lines(run("history", table.path, "--json"))
    assert [(line["rows"], line["rows_updated"], line["rows_deleted"]) for line in found[3:7]] == [
        (0, 0, 1),
        (2, 1, 0),
        (None, None, 2),
        (None, 1, None),
    ]
