"""Writers leave checkpoints in the background, without a daemon, and whatever fails there fails no commit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log.support import Clock, memory_store, new_table
from tidelog.log import Table
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.state import background_checkpoint, checkpointing
from tidelog.log.state.segment import pointed_version

SCHEMA = pa.schema([("n", pa.int64())])


class Background(Clock):
    """Keeps the work that would go on in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def in_background(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def run(self) -> int:
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()
        return len(waiting)


@pytest.fixture
def system() -> Background:
    return Background()


def made(system: Background) -> Table:
    properties = {"delta.checkpointInterval": "4", "tidelog.primaryKey": "n"}
    return new_table(memory_store(system), SCHEMA, properties=properties, system=system)


@pytest.mark.parametrize(
    "write",
    [
        lambda table, n: table.insert([{"n": n}]),
        lambda table, n: table.upsert([{"n": n}]),
        lambda table, n: table.delete(f"n = {n}") if n % 2 else table.insert([{"n": n + 1}]),
    ],
)
def test_each_interval_of_commits_leaves_a_checkpoint(
    system: Background, write: Callable[[Table, int], object]
) -> None:
    table = made(system)
    found = []
    for n in range(12):
        write(table, n)
        if system.run():
            found.append((table.version, pointed_version(table.store)))
    assert found == [(4, 4), (8, 8), (12, 12)]
    assert Table.open(table.path).commits_since_checkpoint() == 0


def test_writers_of_one_commit_each_leave_them_too(system: Background) -> None:
    table = made(system)
    begun = 0
    for n in range(8):
        Table.open(table.path, system=system).insert([{"n": n}])
        begun += system.run()
    assert begun == 2
    assert pointed_version(table.store) == 8


def test_they_stay_those_of_a_daemon(system: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(system)
    for n in range(3):
        table.insert([{"n": n}])
    table.checkpoint()
    monkeypatch.setattr(background_checkpoint, "load", None)  # a check that finds a daemon's reads nothing else
    table.insert([{"n": 3}])
    assert system.run() == 1
    assert pointed_version(table.store) == 3


def test_one_is_written_at_a_time(system: Background) -> None:
    table = made(system)
    for n in range(9):
        table.insert([{"n": n}])
    assert len(system.waiting) == 1
    system.run()
    assert pointed_version(table.store) == 9


def test_what_fails_is_said_and_tried_again(
    system: Background, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        message = "no answer"
        raise StoreUnavailableError(message, path="")

    table = made(system)
    with monkeypatch.context() as patched:
        patched.setattr(checkpointing, "checkpoint", fail)
        for n in range(4):
            table.insert([{"n": n}])
        assert system.run() == 1
    assert "could not write a checkpoint" in caplog.text
    for n in range(4):
        table.insert([{"n": n}])
    assert system.run() == 1
    assert pointed_version(table.store) == 8


def test_no_thread_is_no_error(system: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(Background, "in_background", fail)
    table = made(system)
    for n in range(5):
        table.insert([{"n": n}])
    assert table.version == 5


PROGRAM = """
import sys
from tidelog.log import Table
table = Table.open(sys.argv[1])
for n in range(4):
    table.insert([{"n": n}])
"""


def test_a_program_that_ends_leaves_its_checkpoint(tmp_path: Path) -> None:
    """With real threads: the end of the program waits for what goes on."""
    path = str(tmp_path / "t")
    table = Table.create(path, SCHEMA, properties={"delta.checkpointInterval": "4"})
    done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert pointed_version(table.store) == 4
