"""The checks at the end hold for a sound run, and see each kind of damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from examples.shared.check import Check
from tests.soak.checks import log_checks, row_checks
from tests.soak.folder import Folder, write_whole
from tests.soak.journal import Journal
from tests.soak.log_tail import LogTail
from tests.soak.replica import Change, Replica
from tests.soak.rows import (
    DELETE_WHERE,
    DELETES_KEY,
    KEYS,
    NEW,
    SCHEMA,
    UPDATE_SET,
    UPDATE_WHERE,
    Row,
    payload,
    round_rows,
)
from tests.soak.settings import CONSUMERS, STREAMS, Settings
from tidelog.log import Table

SETTINGS = Settings(2, 5)
BATCHES = 2


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """What a short run without Spark leaves."""
    made = Folder(tmp_path)
    write_whole(made.plan, asdict(SETTINGS))
    table = Table.create(str(made.table), SCHEMA, partition_by=["part"])
    for name in STREAMS:
        for batch in range(BATCHES):
            first = batch * SETTINGS.batch_rows
            rows = [
                Row(name, number, number // SETTINGS.part_rows, NEW, 0, payload(name, number))._asdict()
                for number in range(first, first + SETTINGS.batch_rows)
            ]
            table.insert(rows)
        for batch in range(BATCHES):
            write_whole(made.checkpoint(name) / "commits" / str(batch), {})
            write_whole(made.checkpoint(name) / "offsets" / str(batch), {"offset": (batch + 1) * SETTINGS.batch_rows})
    Journal(1, 0).write(made.journal)
    table.upsert(round_rows(SETTINGS.seed, 1), keys=KEYS, delete_where=DELETES_KEY)
    table.update(UPDATE_WHERE, UPDATE_SET)
    table.delete(DELETE_WHERE)
    changes = table.changes(after=0).to_arrow().to_pylist()
    for name in CONSUMERS:
        replica = Replica(made.replica(name))
        replica.apply(0, table.version, map(_change, changes))
        replica.close()
    return made


def _change(row: dict[str, Any]) -> Change:
    return Change(row["_commit_version"], row["_change_type"], Row(*(row[name] for name in SCHEMA.names)))


def failed(checks: Iterator[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def test_a_sound_run_passes(folder: Folder) -> None:
    assert len(list(row_checks(folder, SETTINGS))) == 3 + len(CONSUMERS)
    assert not failed(row_checks(folder, SETTINGS))


def _lose_a_row(folder: Folder) -> None:
    Table.open(str(folder.table)).delete("stream = 'a' AND id = 1")


def _double_a_row(folder: Folder) -> None:
    Table.open(str(folder.table)).insert([Row("a", 1, 0, NEW, 0, payload("a", 1))._asdict()])


def _change_a_row(folder: Folder) -> None:
    Table.open(str(folder.table)).update("stream = 'b' AND id = 7", {"touches": "touches + 1"})


def _lose_a_file(folder: Folder) -> None:
    path = Table.open(str(folder.table)).at().files()["path"][0].as_py()
    (folder.table / unquote(path)).unlink()


def _lag(folder: Folder) -> None:
    folder.replica("slow").unlink()
    Replica(folder.replica("slow")).close()


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        (_lose_a_row, ["rows as computed", "the fast", "the slow"]),
        (_double_a_row, ["rows as computed", "the fast", "the slow"]),
        (_change_a_row, ["rows as computed", "the fast", "the slow"]),
        (_lose_a_file, ["every live file"]),
        (_lag, ["the slow"]),
    ],
)
def test_damage_is_seen(damage: Callable[[Folder], None], seen: list[str], folder: Folder) -> None:
    damage(folder)
    found = failed(row_checks(folder, SETTINGS))
    assert [what for what in found if what.startswith(tuple(seen))] == found
    assert len(found) == len(seen)


def commit(
    version: int, *, batch: tuple[str, int] | None = None, epoch: int | None = None, kind: str = "INSERT"
) -> str:
    own: dict[str, Any] = {"class": kind}
    if batch is not None:
        own["batch"] = {"queryId": batch[0], "batchId": batch[1]}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"inCommitTimestamp": version, "operation": "WRITE", "tidelog": own}}
    ]
    if epoch is not None:
        actions.append({"txn": {"appId": "tidelog.daemon/0", "version": epoch}})
    return "\n".join(map(json.dumps, actions))


def checked(folder: Folder, *commits: str) -> list[str]:
    log = folder.table / "_delta_log"
    for file in log.iterdir():
        file.unlink()
    for version, text in enumerate(commits):
        (log / f"{version:020d}.json").write_text(text)
    tail = LogTail(folder.table)
    tail.look()
    assert len(tail.commits) == len(commits)
    return failed(log_checks(tail.commits, folder, SETTINGS))


BATCH_COMMITS = [commit(number, batch=(name, number)) for name in STREAMS for number in range(BATCHES)]


def test_the_log_of_a_sound_run_passes(folder: Folder) -> None:
    daemons = [commit(9, epoch=epoch, kind="MINOR") for epoch in (1, 1, 3)]
    assert not checked(folder, *BATCH_COMMITS, *daemons)


@pytest.mark.parametrize(
    ("commits", "seen"),
    [
        (BATCH_COMMITS[:-1], "each micro-batch"),
        ([*BATCH_COMMITS, BATCH_COMMITS[-1]], "each micro-batch"),
        (BATCH_COMMITS[::-1], "each micro-batch"),
        ([*BATCH_COMMITS, *(commit(9, epoch=epoch, kind="MINOR") for epoch in (1, 2, 1))], "3 commits of daemons"),
        ([*BATCH_COMMITS, commit(9, kind="MAJOR")], "every compaction"),
    ],
)
def test_a_log_with_a_fault_is_seen(commits: list[str], seen: str, folder: Folder) -> None:
    (found,) = checked(folder, *commits)
    assert found.startswith(seen)
