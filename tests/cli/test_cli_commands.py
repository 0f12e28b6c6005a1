"""The commands that look at a table or clean it up: what they print, as text and as JSON, and how they exit."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tests.compaction_daemon.support import delete_rows
from tests.log.faults import Deleting
from tests.log.strategies import PRIMITIVES
from tests.log.support import START_MS, Clock, add, new_table, numbers, put_foreign, reopen
from tidelog import cli
from tidelog.cli import maintain, options, output
from tidelog.compaction_daemon import compact, vacuum
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.storage.local import LocalStore

DAY = 86_400_000
UTC = dt.UTC
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("part", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ("ok", pa.bool_()),
        ("tags", pa.map_(pa.string(), pa.date32())),
        ("codes", pa.map_(pa.int32(), pa.string())),
        ("inner", pa.struct([("x", pa.decimal128(5, 1)), ("list", pa.list_(pa.binary()))])),
        ("text", pa.string()),
    ]
)
ROW: dict[str, Any] = {
    "n": 1,
    "part": "a",
    "price": Decimal("1.50"),
    "day": dt.date(2026, 1, 31),
    "at": dt.datetime(2026, 1, 31, 12, 0, 0, 1, UTC),
    "raw": b"\x00\xff",
    "ratio": float("nan"),
    "ok": True,
    "tags": {"k": dt.date(2026, 1, 1)},
    "codes": {7: "seven"},
    "inner": {"x": Decimal("0.5"), "list": [b"\x01", None]},
    "text": 'a "quoted", text\nwith \x1b[31mcolour',
}
AS_JSON = {
    "n": 1,
    "part": "a",
    "price": "1.50",
    "day": "2026-01-31",
    "at": "2026-01-31T12:00:00.000001Z",
    "raw": "AP8=",
    "ratio": "NaN",
    "ok": True,
    "tags": {"k": "2026-01-01"},
    "codes": [{"key": 7, "value": "seven"}],
    "inner": {"x": "0.5", "list": ["AQ==", None]},
    "text": 'a "quoted", text\nwith \x1b[31mcolour',
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], prog_name="tidelog")


def lines(result: Result) -> list[dict[str, Any]]:
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Version 1 holds ROW, version 2 a row of nulls, version 3 is another writer's txn."""
    made = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
    made.insert([ROW], idempotency_key=("job/1", 7))
    made.insert([{"n": 2}])
    return made


@pytest.fixture
def old(tmp_path: Path) -> Table:
    """Ten versions, a day apart, long ago; every third has a checkpoint; two orphans as old."""
    clock = Clock()
    made = new_table(LocalStore(str(tmp_path / "old")), system=clock)
    for day in range(1, 11):
        clock.ms = START_MS + day * DAY
        made.insert(numbers([day]))
        if day % 3 == 0:
            made.checkpoint()
    for name in ("orphan-1.parquet", "orphan-2.parquet"):
        path = Path(made.path, name)
        path.write_bytes(b"12345")
        os.utime(path, (START_MS / 1000, START_MS / 1000))
    return made


# --- describe --------------------------------------------------------------------------------------------------------


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
    for words in (table.id, "partition by", "job/1 = 7", "n  int64  not null", "reader 3, writer 7; appendOnly,"):
        assert words in result.stdout
    for line in ("log tail +3", "small files +2", "dead row files +0"):
        assert re.search(f"^{line}$", result.stdout, flags=re.MULTILINE)
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_describe_an_empty_table_and_one_without_counts(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema, properties={"delta.enableDeletionVectors": False})
    (found,) = lines(run("describe", table.path, "--json"))
    assert (found["rows"], found["files"], found["bytes"], found["time_version"]) == (0, 0, 0, None)
    assert run("describe", table.path).exit_code == 0
    put_foreign(table, add("x", stats=None))
    (found,) = lines(run("describe", table.path, "--json"))
    assert (found["rows"], found["files"]) == (None, 1)
    assert re.search(r"^rows +unknown$", run("describe", table.path).stdout, flags=re.MULTILINE)


# --- history ---------------------------------------------------------------------------------------------------------


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


# --- scan ------------------------------------------------------------------------------------------------------------


def test_scan_as_json_gives_every_type_its_form(table: Table) -> None:
    nulls = dict.fromkeys(SCHEMA.names) | {"n": 2}
    for way in (["--json"], ["--format", "json"]):
        assert sorted(lines(run("scan", table.path, *way)), key=lambda row: row["n"]) == [AS_JSON, nulls]


def test_scan_as_csv(table: Table) -> None:
    result = run(
        "scan", table.path, "--format", "csv", "--where", "n = 1", "--columns", "n,text,tags,ok", "--columns", "raw"
    )
    assert result.stdout.startswith("n,text,tags,ok,raw\n")
    (row,) = list(csv.DictReader(io.StringIO(result.stdout)))
    assert row == {"n": "1", "text": ROW["text"], "tags": '{"k": "2026-01-01"}', "ok": "true", "raw": "AP8="}


def test_csv_tells_null_from_an_empty_text(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("a", pa.string()), ("b", pa.string())]))
    table.insert([{"a": "", "b": None}, {"a": " x ", "b": "y"}])
    assert run("scan", table.path, "--format", "csv").stdout == 'a,b\n"",\n" x ",y\n'


def test_scan_in_words_cuts_and_spells_out(table: Table) -> None:
    table.insert([{"n": 3, "text": "x" * 500}])
    result = run("scan", table.path, "--where", "n in (1, 3)", "--columns", "n,text")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert r"with \x1b[31mcolour" in result.stdout
    assert "x" * 59 + "…\n" in result.stdout
    assert "x" * 60 not in result.stdout
    assert len(lines(run("scan", table.path, "--json", "--where", "n = 3"))[0]["text"]) == 500


def test_scan_of_another_version(table: Table) -> None:
    stamp = table.history()[1].timestamp.isoformat()
    for way in (["--version", 1], ["--timestamp", stamp]):
        assert [row["n"] for row in lines(run("scan", table.path, "--json", *way))] == [1]
    assert run("scan", table.path, "--json", "--version", 0).stdout == ""


def test_scan_shows_a_hundred_rows_unless_told(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    table.insert(numbers(range(150)))
    short = run("scan", table.path)
    assert len(short.stdout.splitlines()) == 101
    assert "--limit N shows more" in short.stderr
    for arguments, count in ((["--limit", 120], 121), (["--limit", 1000], 151), (["--where", "n < 100"], 101)):
        result = run("scan", table.path, *arguments)
        assert (len(result.stdout.splitlines()), result.stderr) == (count, "")
    assert len(lines(run("scan", table.path, "--json"))) == 150
    assert len(lines(run("scan", table.path, "--json", "--limit", 7))) == 7


@given(st.data())
def test_every_scalar_is_json_and_comes_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(PRIMITIVES)))
    value = pa.array([data.draw(PRIMITIVES[kind])], kind).to_pylist()[0]
    found = json.loads(json.dumps(output.to_json(value, kind), allow_nan=False))
    assert output.cell(found).isprintable()
    assert len(output.cell(found)) <= 60
    if isinstance(value, Decimal):
        assert Decimal(found) == value
    elif isinstance(value, dt.datetime):
        assert dt.datetime.fromisoformat(found) == value
    elif isinstance(value, (int, str)):
        assert found == value


# --- changes ---------------------------------------------------------------------------------------------------------


def test_changes_between_points(table: Table) -> None:
    first = table.history()[1].timestamp.isoformat()
    assert [row["n"] for row in lines(run("changes", table.path, "--json"))] == [1, 2]
    for after in ("1", first):
        (row,) = lines(run("changes", table.path, "--json", "--after", after, "--columns", "n,_commit_version"))
        assert row == {"n": 2, "_commit_version": 2}
    (row,) = lines(run("changes", table.path, "--json", "--until", 1, "--where", "n > 0", "--mode", "append"))
    assert row["_commit_timestamp"].endswith("Z")
    assert "_commit_version" in run("changes", table.path).stdout
    assert run("changes", table.path, "--after", 2).exit_code == 0


def test_mode_and_keys_are_handed_on_as_given(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Table.changes
    seen: list[dict[str, Any]] = []

    def changes(self: Table, *, mode: str = "append", keys: Any = (), **rest: Any) -> Any:
        seen.append({"mode": mode, "keys": keys})
        return honest(self, **rest)

    monkeypatch.setattr(Table, "changes", changes)
    run("changes", table.path, "--mode", "net", "--keys", "n, part", "--keys", "day")
    run("changes", table.path)
    assert seen == [{"mode": "net", "keys": ["n", "part", "day"]}, {"mode": "append", "keys": ()}]


# --- expire and vacuum -----------------------------------------------------------------------------------------------


def test_expire(old: Table) -> None:
    before = sorted(os.listdir(Path(old.path, "_delta_log")))  # noqa: PTH208
    dry = run("expire", old.path, "--older-than", "30 days", "--dry-run")
    assert dry.exit_code == 0
    assert f"_delta_log/{0:020d}.json\n" in dry.stdout
    assert "would delete 9 commits, 2 checkpoints, 9 other files of the log (" in dry.stdout
    assert sorted(os.listdir(Path(old.path, "_delta_log"))) == before  # noqa: PTH208
    (report,) = lines(run("expire", old.path, "--older-than", "30 days", "--json"))
    assert (report["earliest_version"], report["commits"], report["dry_run"]) == (9, 9, False)
    again = run("expire", old.path, "--older-than", "30 days")
    assert (again.exit_code, again.stdout) == (4, f"{old.path}: nothing to do: version 9 is already the oldest one\n")
    assert reopen(old).scan().count() == 10


def test_expire_by_the_property_says_that_it_is_off(old: Table) -> None:
    result = run("expire", old.path)
    assert result.exit_code == 4
    assert "delta.enableExpiredLogCleanup is false" in result.stdout
    assert json.loads(run("expire", old.path, "--json").stdout)["files"] == []


def test_vacuum(old: Table) -> None:
    dry = run("vacuum", old.path, "--dry-run")
    assert dry.exit_code == 0
    assert sorted(dry.stdout.splitlines()[:-1]) == ["orphan-1.parquet", "orphan-2.parquet"]
    assert "would delete 2 data files, 0 deletion vectors, 0 change files, 0 row maps (10 bytes)" in dry.stdout
    since = (dt.datetime.now(UTC) - dt.timedelta(days=2)).isoformat()
    (report,) = lines(run("vacuum", old.path, "--json", "--older-than", since))
    assert (sorted(report["files"]), report["bytes_deleted"]) == (["orphan-1.parquet", "orphan-2.parquet"], 10)
    assert run("vacuum", old.path).exit_code == 4
    assert reopen(old).scan().count() == 10


def test_vacuum_fails_where_a_file_stays(old: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_sick_disk(table: Table, **how: Any) -> Any:
        return vacuum(Table(Deleting(table.store, suffix="1.parquet"), table._state), **how)

    monkeypatch.setattr(maintain, "vacuum", on_a_sick_disk)
    result = run("vacuum", old.path)
    assert result.exit_code == 1
    assert result.stderr.startswith("orphan-1.parquet: TIDELOG_STORE_UNAVAILABLE")
    assert "deleted 1 data files" in result.stdout
    again = run("vacuum", old.path)
    assert again.exit_code == 1


# --- wrong use -------------------------------------------------------------------------------------------------------

READING = ["describe", "history", "scan", "changes", "conflicts", "expire", "vacuum", "compact"]


@pytest.mark.parametrize("command", READING)
def test_no_table_is_one_line_and_wrong_use(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path / "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("TIDELOG_TABLE_NOT_FOUND")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["scan", "--where", "n >"], "TIDELOG_PREDICATE"),
        (["scan", "--where", "nn = 1"], "the columns are n, part"),
        (["scan", "--columns", "nn"], "the columns are n, part"),
        (["scan", "--timestamp", "yesterday"], "write ISO-8601"),
        (["scan", "--timestamp", "2026-01-31T12:00:00"], "add one, such as Z"),
        (["scan", "--version", "0", "--timestamp", "2026-01-31T12:00:00Z"], "leave one out"),
        (["scan", "--json", "--format", "csv"], "leave one out"),
        (["changes", "--after", "soon"], "write ISO-8601"),
        (["changes", "--mode", "nonsense"], "TIDELOG_CONFIGURATION"),
        (["expire", "--older-than", "soon"], "write '14 days'"),
        (["expire", "--older-than", "1 hour"], "tidelog.maxTransactionTime"),
        (["vacuum", "--older-than", "0 days"], "tidelog.maxTransactionTime"),
        (["vacuum", "--older-than", "2026-01-31"], "add one, such as Z"),
    ],
)
def test_bad_input_is_one_line_with_advice(table: Table, arguments: list[str], advice: str) -> None:
    command, *rest = arguments
    result = run(command, table.path, *rest)
    assert (result.exit_code, result.stdout) == (2, "")
    assert advice in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["scan"], ["scan", "x", "--limit", "0"], ["scan", "x", "--format", "xml"], ["history", "x", "--all"]]
)
def test_wrong_options(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr


def test_a_version_that_is_not_there_is_a_failure_that_names_the_range(table: Table) -> None:
    result = run("scan", table.path, "--version", 9)
    assert result.exit_code == 1
    assert "the available versions are 0 to 2" in result.stderr


def test_what_the_system_refuses_is_one_line(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Table:
        raise PermissionError(13, "Permission denied", "/x")

    monkeypatch.setattr(Table, "open", refuse)
    result = run("describe", table.path)
    assert (result.exit_code, result.stderr) == (1, "[Errno 13] Permission denied: '/x'\n")


# --- storage options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*READING, "daemon"])
def test_storage_options_reach_the_store_and_are_never_shown(
    command: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def refuse(path: str, *, storage_options: Any = None) -> Table:
        seen.append(storage_options)
        raise ConfigurationError("no such bucket", advice="check it", path=path)

    monkeypatch.setattr(Table, "open", refuse)
    result = run(command, table.path, "--storage-option", "key=se=cret", "--storage-option", "endpoint=http://x")
    assert seen == [{"key": "se=cret", "endpoint": "http://x"}]
    assert "se=cret" not in result.output
    assert result.exit_code == 2


@pytest.mark.parametrize("text", ["secret", "=secret"])
def test_a_storage_option_that_is_none_is_not_repeated(table: Table, text: str) -> None:
    result = run("describe", table.path, "--storage-option", "a=b", "--storage-option", text)
    assert result.exit_code == 2
    assert "secret" not in result.output
    assert "--storage-option number 2" in result.stderr


def test_texts_of_options() -> None:
    assert options.parse_storage_options(None) is None
    assert options.split_columns(["a, b", "c"]) == ["a", "b", "c"]
    assert options.split_columns(None) is None
    assert [options.parse_point(text) for text in (None, "7", "-1", "2026-01-31T00:00:00Z")] == [
        None,
        7,
        -1,
        "2026-01-31T00:00:00Z",
    ]
    assert options.parse_older_than("2 weeks") == dt.timedelta(days=14)
    assert options.parse_older_than("2026-01-31T00:00:00Z") == dt.datetime(2026, 1, 31, tzinfo=UTC)


# --- the real program ------------------------------------------------------------------------------------------------

PROGRAM = str(Path(sys.executable).parent / "tidelog")


def test_the_program_tells_its_version_and_its_commands() -> None:
    found = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True, timeout=120)
    assert re.fullmatch(r"tidelog \d+\.\d+\.\d+\S*\n", found.stdout)
    found = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True, timeout=120)
    assert all(name in found.stdout for name in [*READING, "daemon"])


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "csv"], ["--limit", "15000"]])
def test_a_pipe_that_is_closed_early_is_no_error(tmp_path: Path, arguments: list[str]) -> None:
    table = Table.create(str(tmp_path / "t"), numbers([]).schema)
    table.insert(numbers(range(15_000)))
    with subprocess.Popen(
        [PROGRAM, "scan", table.path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stderr
        assert program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=120) == 0


def test_a_terminal_cuts_what_does_not_fit(table: Table) -> None:
    """In a terminal of 40 columns no line is longer, and what was cut is marked."""
    table.insert([{"n": 3, "part": "a" * 30, "text": "x" * 100}])
    code = "import os, pty, sys\nstatus = pty.spawn(sys.argv[1:])\nsys.exit(os.waitstatus_to_exitcode(status))\n"
    command = [sys.executable, "-c", code, PROGRAM, "scan", table.path, "--where", "n = 3", "--columns", "n,part,text"]
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm"}
    found = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, env=environment, stdin=subprocess.DEVNULL
    )
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", found.stdout)
    rows = [line.rstrip("\r") for line in text.splitlines() if line.strip()]
    assert len(rows) == 2
    assert all(len(row) <= 40 for row in rows)
    assert "…" in rows[1]


# --- doctor ----------------------------------------------------------------------------------------------------------


def test_doctor_says_what_it_tried(tmp_path: Path) -> None:
    place = tmp_path / "not" / "there"
    result = run("doctor", place, "--writers", 3, "--rounds", 2)
    assert result.exit_code == 0
    assert "3 writers raced for one name, 2 times: exactly one won each time" in result.stdout
    assert result.stdout.splitlines()[-1] == f"{place} keeps every promise that was tried"
    assert not place.exists()
    (found,) = lines(run("doctor", place, "--json", "--rounds", 1))
    assert (found["path"], found["ok"]) == (str(place), True)
    assert {"put-if-absent", "read-after-write", "list-after-write"} <= {each["name"] for each in found["findings"]}


def test_doctor_finds_a_store_that_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: LocalStore, path: str, content: bytes, *, durable: bool = True) -> None:
        del durable
        self.replace(path, content)

    monkeypatch.setattr(LocalStore, "put_if_absent", overwrite)
    result = run("doctor", tmp_path)
    assert result.exit_code == 1
    assert re.search(r"^BROKEN  put-if-absent ", result.stdout, re.MULTILINE)
    assert result.stdout.splitlines()[-1] == f"{tmp_path} cannot hold a table safely"
    assert run("doctor", tmp_path, "--json").exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_doctor_is_used_wrongly(tmp_path: Path) -> None:
    assert run("doctor", tmp_path, "--writers", 1).exit_code == 2
    secret = run("doctor", "s4://bucket/x", "--storage-option", "key=hush")
    assert (secret.exit_code, "hush" in secret.output) == (2, False)
