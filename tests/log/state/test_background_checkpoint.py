"""Writers leave checkpoints in the background, without a daemon, and whatever fails there fails no commit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from tests.log.support import Clock, memory_store, new_table
from tidelog.log import Table
from tidelog.log import system as system_module
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


MANY_TABLES = """
import os, sys, threading
from tidelog.log import Table
from tidelog.log.state import background_checkpoint
from tidelog.log.state.segment import pointed_version

begun, go_on, write = threading.Event(), threading.Event(), background_checkpoint.load

def slow(*args):
    begun.set()
    assert go_on.wait(60)
    return write(*args)

background_checkpoint.load = slow
tables = [Table.open(path) for path in sys.argv[1:]]
for table in tables:
    for n in range(4):
        table.insert([{"n": n}])
assert begun.wait(60)
print(sum(thread.name == "tidelog-background" for thread in threading.enumerate()))
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
else:
    background_checkpoint.load = write
    for n in range(4):
        tables[0].insert([{"n": n}])
    threading._shutdown()
    os._exit(0 if pointed_version(tables[0].store) == 8 else 1)
"""


@pytest.mark.full
def test_many_tables_have_one_thread_and_a_forked_child_begins_anew(tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(6)]
    tables = [Table.create(path, SCHEMA, properties={"delta.checkpointInterval": "4"}) for path in paths]
    command = [sys.executable, "-W", "ignore", "-c", MANY_TABLES, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    # The child's checkpoint is newer than the one that the parent wrote of the first table.
    assert [pointed_version(table.store) for table in tables[1:]] == [4] * 5
    assert pointed_version(tables[0].store) in {4, 8}


def test_the_work_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_module, "MAX_WAITING", 2)
    begun, go_on = Event(), Event()
    background = system_module._Background()

    def work() -> None:
        begun.set()
        go_on.wait()

    background.add(work)
    assert begun.wait(60)
    done: list[int] = []
    background.add(lambda: done.append(1))
    background.add(lambda: done.append(2))
    with pytest.raises(RuntimeError, match="2 pieces of work wait"):
        background.add(lambda: done.append(3))
    go_on.set()
    background.finish()
    assert done == [1, 2]
