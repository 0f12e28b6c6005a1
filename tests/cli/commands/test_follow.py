"""`tidelog changes --follow`, as a program of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.cli.support import PROGRAM, run
from tests.lanes import full_but
from tests.log.support import NUMBERS, numbers
from tidelog.cli import follow as module
from tidelog.cli import output
from tidelog.cli.row_formats import OutputFormat
from tidelog.log import Table
from tidelog.log.consumers.claims import claim
from tidelog.log.consumers.consumer_status import ConsumerStatus, consumers
from tidelog.log.errors import FencedError
from tidelog.log.system import REAL_SYSTEM

_WITHIN_S = 60


@dataclass
class Following:
    """A running command, and what it has written so far."""

    program: subprocess.Popen[str]
    lines: Queue[str] = field(default_factory=Queue)

    def next(self) -> str:
        return self.lines.get(timeout=_WITHIN_S).rstrip("\n")

    def rows(self, count: int) -> list[Any]:
        return [json.loads(self.next())["n"] for _ in range(count)]

    def complaint(self) -> str:
        """The next line on standard error."""
        assert self.program.stderr is not None
        assert select.select([self.program.stderr], [], [], _WITHIN_S)[0]
        return self.program.stderr.readline().rstrip("\n")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.program.send_signal(number)
        return self.program.wait(_WITHIN_S)


@contextmanager
def following(table: Table, *arguments: object) -> Iterator[Following]:
    command = [PROGRAM, "changes", table.path, "--follow", *map(str, arguments)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = Following(program)
    assert program.stdout is not None
    stdout = program.stdout

    def read() -> None:
        for line in stdout:
            found.lines.put(line)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield found
    finally:
        program.kill()
        program.wait()
        reader.join()
        stdout.close()
        assert program.stderr is not None
        program.stderr.close()


def status(table: Table) -> ConsumerStatus:
    (found,) = consumers(table.store, table.refresh().head, REAL_SYSTEM)
    return found


def silence(table: Table, seconds: int) -> None:
    """Make the newest record of the consumer c that much older, as if its owner had been silent for that long."""
    newest = max(Path(table.path, "_tidelog/consumers/c").iterdir())
    old_s = newest.stat().st_mtime - seconds
    os.utime(newest, (old_s, old_s))


def wait_until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(_WITHIN_S * 20):
        if condition():
            return
        waiting.wait(0.05)
    raise TimeoutError


@pytest.mark.parametrize("number", full_but([signal.SIGINT], [signal.SIGTERM, signal.SIGINT]))
def test_new_commits_are_printed_as_they_come(counted: Table, number: int) -> None:
    with following(counted, "--json", "--after", 1) as tail:
        assert tail.rows(2) == [2, 3]
        counted.insert(numbers([4]))
        assert tail.rows(1) == [4]
        counted.compact()
        counted.delete("n = 2")
        assert json.loads(tail.next())["_change_type"] == "delete"
        assert tail.end(number) == 0


def test_a_consumer_survives_restarts(counted: Table) -> None:
    with following(counted, "--json", "--consumer", "c") as tail:
        assert tail.rows(3) == [1, 2, 3]
        wait_until(lambda: status(counted).position == 3)
        assert tail.end() == 0
    assert (status(counted).owner, status(counted).position) == (None, 3)
    counted.insert(numbers([4]))
    with following(counted, "--json", "--consumer", "c", "--after", 1) as tail:
        assert tail.rows(1) == [4]
        wait_until(lambda: status(counted).position == 4)
        assert tail.end() == 0
        assert tail.program.stderr is not None
        assert tail.program.stderr.read() == "the consumer c is registered: going on after version 3\n"


@pytest.mark.full
def test_a_name_has_one_owner(counted: Table) -> None:
    with following(counted, "--json", "--consumer", "c") as tail:
        assert tail.rows(3) == [1, 2, 3]
        wait_until(lambda: status(counted).position == 3)
        silence(counted, 5)
        with following(counted, "--json", "--consumer", "c") as second:
            assert second.complaint().startswith("the consumer c belongs to ")
            counted.insert(numbers([4]))  # to which the owner's position moves, which is a sign of life
            assert tail.rows(1) == [4]
            assert second.program.wait(_WITHIN_S) == 1
            assert second.complaint().startswith("TIDELOG_CONSUMER_IN_USE")
            assert second.lines.empty()
        assert run("consumers", "remove", counted.path, "c").exit_code == 0
        counted.insert(numbers([5]))
        assert tail.program.wait(_WITHIN_S) == 1
        assert tail.complaint().startswith("TIDELOG_FENCED: the consumer 'c' of ")


@pytest.mark.full
def test_a_restart_at_once_waits_for_the_name(counted: Table) -> None:
    with following(counted, "--json", "--consumer", "c") as tail:
        assert tail.rows(3) == [1, 2, 3]
        wait_until(lambda: status(counted).position == 3)
        tail.program.kill()
        tail.program.wait()
    owner = status(counted).owner
    counted.insert(numbers([4]))
    with following(counted, "--json", "--consumer", "c") as tail:
        waits = tail.complaint()
        assert waits.startswith(f"the consumer c belongs to {owner}: waiting up to ")
        assert waits.endswith(" s for the name")
        silence(counted, 60)
        assert tail.rows(1) == [4]
        wait_until(lambda: status(counted).position == 4)
        assert status(counted).owner != owner
        assert tail.end() == 0
        assert tail.program.stderr is not None
        assert tail.program.stderr.read() == ""


@pytest.mark.parametrize("number", full_but([signal.SIGINT], [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_the_wait_for_the_name(counted: Table, number: int) -> None:
    other = claim(counted.store, counted.head, "c", owner="a", position=0, system=REAL_SYSTEM, takeover_after_ms=60_000)
    other.confirm()
    with following(counted, "--json", "--consumer", "c") as tail:
        assert tail.complaint().startswith("the consumer c belongs to a: waiting up to ")
        assert tail.end(number) == 0
        assert tail.lines.empty()
        assert tail.program.stderr is not None
        assert tail.program.stderr.read() == ""
    assert status(counted).owner == "a"


def test_a_crash_repeats_at_most_the_last_commit(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), NUMBERS)
    for number in (1, 2):
        table.insert(numbers([number]))
    large = list(range(1_000, 11_000))  # more than a pipe holds, so that the command is killed while it writes them
    table.insert(numbers(large))
    command = [PROGRAM, "changes", table.path, "--follow", "--json", "--consumer", "c"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        # The first row of the last commit proves that the position has moved past the commits before.
        before = [json.loads(program.stdout.readline())["n"] for _ in range(3)]
        program.kill()
    assert before == [1, 2, large[0]]
    assert status(table).position == 2
    silence(table, 60)
    table.insert(numbers([3]))
    with following(table, "--json", "--consumer", "c") as tail:
        assert tail.rows(len(large) + 1) == [*large, 3]
        wait_until(lambda: status(table).position == 4)
        assert tail.end() == 0
    with following(table, "--json", "--consumer", "c") as tail:
        table.insert(numbers([4]))
        assert tail.rows(1) == [4]


def test_the_position_moves_only_after_the_rows_were_written(counted: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int | None, Any]] = []

    def write_json(row: dict[str, Any]) -> None:
        seen.append((status(counted).position, row["n"]))
        if row["n"] == 3:
            raise BrokenPipeError

    monkeypatch.setattr(output, "write_json", write_json)
    run("changes", counted.path, "--follow", "--json", "--consumer", "c")
    assert seen == [(-1, 1), (1, 2), (2, 3)]
    assert status(counted).position == 2
    assert status(counted).owner is None


def test_a_closed_pipe_ends_it(counted: Table) -> None:
    program = subprocess.Popen(
        [PROGRAM, "changes", counted.path, "--follow", "--json", "--consumer", "c"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    assert json.loads(program.stdout.readline())["n"] == 1
    program.stdout.close()  # while it waits for commits
    assert program.wait(_WITHIN_S) == 0
    assert program.stderr.read() == ""
    program.stderr.close()
    assert status(counted).owner is None


def test_the_initial_snapshot_comes_first_and_once(counted: Table) -> None:
    counted.delete("n = 2")
    with following(counted, "--json", "--consumer", "c", "--initial-snapshot") as tail:
        first = [json.loads(tail.next()) for _ in range(2)]
        assert sorted((row["n"], row["_change_type"], row["_commit_version"]) for row in first) == [
            (1, "insert", 4),
            (3, "insert", 4),
        ]
        counted.insert(numbers([5]))
        assert tail.rows(1) == [5]
        wait_until(lambda: status(counted).position == 5)
        assert tail.end() == 0
    counted.insert(numbers([6]))
    with following(counted, "--json", "--consumer", "c", "--initial-snapshot") as tail:
        assert tail.rows(1) == [6]


@pytest.mark.parametrize(("chosen", "expected"), [("csv", ["n,_commit_version", "2,2", "3,3"]), ("table", None)])
def test_other_formats(counted: Table, chosen: str, expected: list[str] | None) -> None:
    with following(
        counted, "--format", chosen, "--after", 1, "--columns", "n,-_change_type,-_commit_timestamp"
    ) as tail:
        shown = [tail.next() for _ in range(3)]
        assert shown == (expected or ["n  _commit_version", "2                2", "n  _commit_version"])


def test_append_mode_stops_at_a_change(counted: Table) -> None:
    with following(counted, "--json", "--mode", "append") as tail:
        assert tail.rows(3) == [1, 2, 3]
        counted.delete("n = 1")
        assert tail.program.wait(_WITHIN_S) == 1
        assert tail.program.stderr is not None
        assert tail.program.stderr.read().startswith("TIDELOG_NOT_APPEND_ONLY")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--follow", "--until", "3"], "--follow and --until exclude each other"),
        (["--follow", "--limit", "3"], "--follow and --limit exclude each other"),
        (["--follow", "--mode", "net"], "--follow and --mode net exclude each other"),
        (["--follow", "--keys", "n"], "--follow and --keys exclude each other"),
        (["--follow", "--after", "1", "--initial-snapshot"], "--after and --initial-snapshot exclude each other"),
        (["--consumer", "c"], "--consumer needs --follow"),
        (["--initial-snapshot"], "--initial-snapshot needs --follow"),
        (["--follow", "--mode", "odd"], "unknown change mode 'odd'"),
        (["--follow", "--where", "x ="], "TIDELOG_PREDICATE"),
        (["--follow", "--consumer", "a/b"], "cannot be the name of a consumer"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_use(counted: Table, arguments: list[str], message: str) -> None:
    done = run("changes", counted.path, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_waits_grow_to_a_second(counted: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    now_s = 0.0

    class Clock:
        def monotonic_s(self) -> float:
            return now_s

    class Stop:
        is_set = False

        def wait(self, seconds: float) -> None:
            nonlocal now_s
            waits.append(seconds)
            now_s += 5
            if len(waits) == 3:
                counted.insert(numbers([7]))
            self.is_set = len(waits) == 12

    monkeypatch.setattr(module, "REAL_SYSTEM", Clock())
    monkeypatch.setattr(output, "write_json", lambda _row: None)
    wanted = module.Follow("cdc", None, None, None)
    stop: Any = Stop()
    module._Tail(counted, wanted, module._Writer(OutputFormat.JSON), None, 3).run(stop)
    assert waits[:3] == [0.02, 5 / 30, 10 / 30]
    assert waits[3] == 0.02
    assert waits[-1] == 1.0
    assert waits[4:] == sorted(waits[4:])


def test_a_silent_owner_finds_out_before_it_advances(counted: Table) -> None:
    """The commit that it was writing is written again by whoever took over."""
    first = claim(counted.store, counted.head, "c", owner="a", position=0, system=REAL_SYSTEM, takeover_after_ms=0)
    first.confirm()
    second = claim(counted.store, counted.head, "c", owner="b", position=3, system=REAL_SYSTEM)
    assert second.position == 0
    with pytest.raises(FencedError):
        first.advance(1)
