"""`tidelog consumers`, and what clean-ups say about consumers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hostile import NASTY
from tests.cli.support import lines, run
from tidelog.log import Table
from tidelog.log.consumers import record_files
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer import Consumer
from tidelog.log.errors import FencedError
from tidelog.log.system import REAL_SYSTEM


def registered(table: Table, name: str = "billing", position: int = 1) -> Consumer:
    consumer = claim(table.store, table.head, name, owner="host:1", position=position, system=REAL_SYSTEM)
    consumer.confirm()
    return consumer


def test_list(table: Table) -> None:
    registered(table)
    registered(table, "audit", 2)
    audit, billing = lines(run("consumers", "list", table.path, "--json"))
    assert (audit["name"], billing["name"]) == ("audit", "billing")
    assert (billing["position"], billing["owner"], billing["state"], billing["is_live"]) == (1, "host:1", "live", True)
    assert (billing["lag"]["versions"], billing["lag"]["files"], billing["lag"]["is_complete"]) == (1, 1, True)
    assert billing["heartbeat"].endswith("Z")
    shown = run("consumers", "list", table.path).stdout.splitlines()
    assert shown[0].split()[:4] == ["consumer", "position", "committed", "versions"]
    assert shown[1].split()[:2] == ["audit", "2"]
    assert shown[2].split()[-1] == "host:1"
    (only,) = lines(run("consumers", "list", table.path, "billing", "--json"))
    assert only["name"] == "billing"


def test_list_without_consumers(table: Table) -> None:
    shown = run("consumers", "list", table.path)
    assert (shown.exit_code, shown.stdout) == (0, f"{table.path}: no consumer is registered\n")
    assert lines(run("consumers", "list", table.path, "--json")) == []


@pytest.mark.parametrize(("to", "position"), [("0", 0), ("earliest", -1), ("latest", 2)])
def test_reset(table: Table, to: str, position: int) -> None:
    consumer = registered(table)
    done = run("consumers", "reset", table.path, "billing", "--to", to)
    assert (done.exit_code, done.stdout) == (0, f"{table.path}: the consumer billing is at version {position}\n")
    with pytest.raises(FencedError):
        consumer.advance(2)
    when = table.history()[1].timestamp.isoformat()
    (report,) = lines(run("consumers", "reset", table.path, "billing", "--to", when, "--json"))
    assert report == {"path": table.path, "consumer": "billing", "position": 1}


def test_remove(table: Table) -> None:
    consumer = registered(table)
    done = run("consumers", "remove", table.path, "billing")
    assert (done.exit_code, done.stdout) == (0, f"{table.path}: removed the consumer billing\n")
    with pytest.raises(FencedError):
        consumer.advance(2)
    registered(table)
    (report,) = lines(run("consumers", "remove", table.path, "billing", "--json"))
    assert report == {"path": table.path, "consumer": "billing", "removed": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drop"], "the action must be one of list, reset, remove, not 'drop'"),
        (["reset", "billing"], "reset needs --to"),
        (["remove", "billing", "--to", "3"], "reset needs --to"),
        (["list", "--to", "3"], "reset needs --to"),
        (["remove"], "remove needs the name of a consumer"),
        (["remove", "other"], "has no consumer 'other'"),
        (["reset", "other", "--to", "1"], "has no consumer 'other'"),
        (["remove", "a/b"], "cannot be the name of a consumer"),
        (["reset", "billing", "--to", "soon"], "'soon' is not a time"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_use(table: Table, arguments: list[str], message: str) -> None:
    action, *rest = arguments
    done = run("consumers", action, table.path, *rest)
    assert done.exit_code == 2
    assert message in done.stderr


def test_there_must_be_a_table(tmp_path: Path) -> None:
    done = run("consumers", "list", tmp_path / "nothing")
    assert (done.exit_code, done.stderr.partition(":")[0]) == (2, "TIDELOG_TABLE_NOT_FOUND")


def test_a_version_that_does_not_exist(table: Table) -> None:
    registered(table)
    done = run("consumers", "reset", table.path, "billing", "--to", 7)
    assert (done.exit_code, done.stderr.partition(":")[0]) == (1, "TIDELOG_HISTORY_RANGE")


def test_hostile_records_are_spelled_out(table: Table) -> None:
    registered(table)
    number = record_files.newest_number(table.store, "billing")
    path = record_files.path_of("billing", number)
    record: dict[str, Any] = json.loads(table.store.read(path))
    hostile = NASTY.replace("\r", "")
    table.store.replace(path, json.dumps({**record, "owner": hostile}).encode())
    table.store.put_if_absent(f"{record_files.FOLDER}/odd{hostile}/{0:020d}.json", b"{}")
    for arguments in (["list", table.path], ["list", table.path, "--json"]):
        done = run("consumers", *arguments)
        assert done.exit_code == 0
        assert all(line.isprintable() for line in done.stdout.splitlines())
    done = run("vacuum", table.path, "--older-than", "2d")
    assert all(line.isprintable() for line in f"{done.stdout}{done.stderr}".splitlines())


# --- clean-ups -------------------------------------------------------------------------------------------------------


def test_clean_ups_say_whom_they_waited_for(old: Table) -> None:
    registered(old, position=0)
    (report,) = lines(run("vacuum", old.path, "--json", "--older-than", "2d", "--dry-run"))
    assert (report["released"], report["unreadable"]) == ([], [])
    for command in ("expire", "vacuum"):
        done = run(command, old.path, "--older-than", "2d")
        assert "kept what these consumers have yet to read: billing" in done.stdout
        assert done.stderr == ""


def test_clean_ups_say_whom_they_gave_up(old: Table) -> None:
    old.set_properties({"tidelog.consumerTimeToLive": "0 days"})
    registered(old, position=0)
    done = run("vacuum", old.path, "--older-than", "2d")
    assert "did not wait for these consumers, which were silent for too long: billing" in done.stdout


def test_clean_ups_say_which_record_is_unreadable(old: Table) -> None:
    old.store.put_if_absent(record_files.path_of("odd", 0), b"garbage")
    for command in ("expire", "vacuum"):
        done = run(command, old.path, "--older-than", "2d")
        assert "a record of the consumer odd cannot be read" in done.stderr
        assert f"tidelog consumers remove {old.path} odd" in done.stderr
    assert run("consumers", "remove", old.path, "odd").exit_code == 0
    assert run("vacuum", old.path, "--older-than", "2d").stderr == ""
