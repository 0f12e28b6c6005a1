"""`tidelog status`: from the logs of tables, and from a running daemon."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.support import lines, on_terminal, run
from tests.compaction_daemon.observing.tables import NO_VACUUM, daemon_status, table_status
from tests.compaction_daemon.support import SCHEMA, put
from tidelog.cli.commands import status
from tidelog.compaction_daemon import Daemon, LeftAlone, compact
from tidelog.compaction_daemon.leases.lease import Lease
from tidelog.compaction_daemon.observing.server import PageServer
from tidelog.compaction_daemon.process.daemon_status import SearchError
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.system import REAL_SYSTEM


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with the tables `a`, which was compacted, and `b`."""
    for name in ("a", "b"):
        table = Table.create(str(tmp_path / "lake" / name), SCHEMA)
        for number in range(3):
            put(table, number)
        if name == "a":
            table.delete("n = 1")
            compact(table)
            table.checkpoint()
    return tmp_path / "lake"


def test_one_table_in_full(lake: Path) -> None:
    table = Table.open(str(lake / "a"))
    put(table, 9)
    claim(table.store, table.head, "billing", owner="job-1", position=3, system=REAL_SYSTEM).release()
    lease = Lease.take(table, owner="host:1:abc")
    shown = run("status", lake / "a")
    assert isinstance(lease, Lease)
    lease.release()
    assert (shown.exit_code, shown.stderr) == (0, "")
    text = re.sub(r" +", " ", shown.stdout)
    assert f"path {lake}/a\n" in text
    assert "\ndebt 2 small of 2 files, 0 dead rows\n" in text
    assert re.search(r"\ncompacted version 5 \(minor\), \d+ s ago\n", text)
    assert "\ncheckpoint version 5, 1 commit ago\n" in text
    assert re.search(r"\ndaemon host:1:abc, epoch 1, \d+ s ago\n", text)
    assert "\nconsumers billing: " in text
    assert "behind\n" in text
    assert "\nclean-up expire: never done, due in " in text
    assert "keeps versions readable: 30 days (delta.logRetentionDuration, the default)" in text


def test_several_tables_in_lines(lake: Path) -> None:
    shown = run("status", f"{lake}/*")
    assert (shown.exit_code, shown.stderr) == (0, "")
    rows = [re.split(r"  +", line) for line in shown.stdout.splitlines()]
    assert [row[0] for row in rows] == [f"below {lake}:", "table", "a", "b"]
    assert rows[3][1:4] == ["3", "3", "0"]


def test_a_list_fits_into_80_columns(tmp_path: Path) -> None:
    for name in ("events", "a table with a name that is much longer than the others"):
        Table.create(f"memory://{tmp_path.name}/{name}", SCHEMA)
    shown = on_terminal("status", f"memory://{tmp_path.name}/*", columns=80)
    assert shown.code == 0
    assert max(map(len, shown.lines)) <= 80
    assert shown.lines[0] == f"below memory://{tmp_path.name}:"
    assert shown.lines[2].startswith("a table with ")
    assert shown.lines[-1].startswith("events ")
    for word in ["a", "table", "with", "a", "name", "that", "is", "much", "longer", "than", "the", "others"]:
        assert word in shown.text, "a name is folded between words"


def test_json_has_everything(lake: Path) -> None:
    found = {Path(line["path"]).name: line for line in lines(run("status", f"{lake}/*", "--json"))}
    assert set(found) == {"a", "b"}
    assert found["a"]["last_compaction"]["operation_class"] == "MINOR"
    assert (found["a"]["checkpoint"], found["b"]["checkpoint"]) == (found["a"]["version"], None)
    assert found["b"]["debt"]["small_files"] == 3
    assert found["b"]["lease"] is found["b"]["last_compaction"] is None
    assert found["b"]["clean_up"] is True
    assert [time["chore"] for time in found["b"]["clean_ups"]] == ["expire", "vacuum by listing", "vacuum from the log"]
    assert found["b"]["problems"] == []


def test_a_table_that_cannot_be_read_fails_and_the_others_are_printed(lake: Path, tmp_path: Path) -> None:
    (lake / "broken" / "_delta_log").mkdir(parents=True)
    shown = run("status", f"{lake}/*", tmp_path / "missing")
    assert shown.exit_code == 1
    assert "\nb  " in shown.stdout
    assert f"{lake}/broken: TIDELOG_TABLE_NOT_FOUND" in shown.stderr
    assert f"{tmp_path}/missing: TIDELOG_TABLE_NOT_FOUND" in shown.stderr
    assert "Traceback" not in shown.output
    found = [json.loads(line) for line in run("status", f"{lake}/*", "--json").stdout.splitlines()]
    assert [line.get("error_code") for line in found] == [None, None, "TIDELOG_TABLE_NOT_FOUND"]


def test_a_part_that_cannot_be_read_is_named(lake: Path) -> None:
    folder = lake / "b" / "_tidelog" / "leases"
    table = Table.open(str(lake / "b"))
    lease = Lease.take(table, owner="x")
    assert isinstance(lease, Lease)
    lease.release()
    for file in [file for file in folder.rglob("*.json") if file.is_file()]:
        file.write_bytes(b"broken")
    shown = run("status", lake / "b")
    assert shown.exit_code == 0
    assert f"{lake}/b: lease: TIDELOG_CORRUPT_LOG" in shown.stderr
    assert "3 small of 3 files" in shown.stdout


def test_the_tables_of_a_daemon_s_file(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('[[tables]]\npath = "lake/*"\n[[tables]]\npath = "none/*"\n')
    shown = run("status", "--config", file, "--json")
    assert [json.loads(line)["path"] for line in shown.stdout.splitlines()] == [f"{lake}/a", f"{lake}/b"]
    assert (shown.exit_code, shown.stderr) == (0, f"{tmp_path}/none/*: no table was found\n")


# --- a running daemon ------------------------------------------------------------------------------------------------


@pytest.fixture
def page(lake: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a daemon that fails at one of its tables."""
    daemon = Daemon([f"{lake}/*", str(tmp_path / "later")])
    daemon.step()
    server = PageServer(daemon.status, daemon.open_table)
    server.start()
    yield server.address
    server.stop()


def test_a_running_daemon_is_asked(page: str, tmp_path: Path) -> None:
    shown = run("status", "--url", page)
    assert (shown.exit_code, shown.stderr) == (1, "")
    rows = [re.split(r"  +", line) for line in shown.stdout.splitlines()]
    assert rows[0] == [f"below {tmp_path}:"]
    assert [(row[0], row[1]) for row in rows[2:5]] == [
        ("lake/a", "watched"),
        ("lake/b", "working"),
        ("later", "missing"),
    ]
    assert ": healthy; 1 step, since " in shown.stdout
    found = json.loads(run("status", "--url", f"{page}/", "--json").stdout)
    assert [table["state"] for table in found["tables"]] == ["watched", "working", "missing"]


def test_what_goes_wrong_beside_the_looks_is_said() -> None:
    left = LeftAlone(2, "TIDELOG_DATA_FILE_DAMAGED: no footer", "TIDELOG_DATA_FILE_DAMAGED")
    found = daemon_status(table_status("/data/t", upkeep_errors=(NO_VACUUM,)), table_status("/data/a", left_alone=left))
    found = replace(found, search_errors=(SearchError("/lake/*", "TIDELOG_X: it cannot be read", "TIDELOG_X"),))
    server = PageServer(lambda: found, Table.open)
    server.start()
    try:
        shown = run("status", "--url", server.address)
    finally:
        server.stop()
    assert shown.exit_code == 1
    assert "vacuum from the log fails: a.parquet could not be deleted\n" in shown.stdout
    assert "2 groups left alone: TIDELOG_DATA_FILE_DAMAGED: no footer" in shown.stdout
    assert "/lake/*: the search for tables failed: TIDELOG_X: it cannot be read\n" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--url", "http://127.0.0.1:1"], 1, "no daemon answers at http://127.0.0.1:1/api/status: "),
        (["--url", "127.0.0.1:8080"], 2, "'127.0.0.1:8080' is not the URL of a page; write what --listen says"),
        (["--url", "admin:hunter22@host:80"], 2, "'***@host:80' is not the URL of a page"),
        (["--url", "http://admin:hunter22@127.0.0.1:1"], 1, "no daemon answers at http://***@127.0.0.1:1/api/status: "),
        (["--url", "file:///etc"], 2, "is not the URL of a page"),
        (["--url", "http://127.0.0.1:1", "/data/t"], 2, "leave PATH and --config out"),
        ([], 2, "there are no tables to look at; give a PATH, --config FILE or --url URL"),
    ],
)
def test_wrong_use(arguments: list[str], code: int, says: str) -> None:
    ended = run("status", *arguments)
    assert (ended.exit_code, ended.stdout) == (code, "")
    assert says in ended.stderr
    assert "hunter22" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "answer",
    [{"tables": "x", "health": 1, "owner": 2}, {"tables": [{"path": 1}], "health": {}, "owner": "o", "steps": "many"}],
)
def test_an_answer_of_another_shape_is_no_daemon(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "fetch_status", lambda _url: answer)
    ended = run("status", "--url", "http://127.0.0.1:1")
    assert ended.exit_code == 1
    assert "no daemon of tidelog, or one of another version" in ended.stderr
