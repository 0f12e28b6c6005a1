"""A daemon is stopped with SIGSTOP in the middle of a rewrite, another one takes over: the first commits nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.compaction_daemon.support import SCHEMA, numbers_of, put
from tests.lanes import full_but
from tidelog.compaction_daemon.leases import lease_of
from tidelog.log import Table

pytestmark = pytest.mark.crash

PROGRAM = Path(__file__).parent / "leased_daemon.py"
TTL_S = 1.0


class Daemon:
    """A daemon in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, line: str) -> None:
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.says()


@contextmanager
def started(path: str) -> Iterator[Daemon]:
    command = [sys.executable, str(PROGRAM), path, str(TTL_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Daemon(process)
        finally:
            process.kill()


def data_files(path: str) -> set[Path]:
    return set(Path(path).rglob("*.parquet"))


@pytest.mark.parametrize("compacts_first", full_but([True], [False, True]))
def test_a_daemon_that_was_paused_commits_nothing(tmp_path: Path, compacts_first: bool) -> None:
    path = str(tmp_path / "table")
    table = Table.create(path, SCHEMA, partition_by=["part"])
    for number in range(8):
        put(table, number, part="ab"[number % 2])
    before = data_files(path)
    with ExitStack() as daemons:
        first, second = (daemons.enter_context(started(path)) for _ in range(2))
        assert first.says() == second.says() == "ready"
        assert first.ask("take") == "epoch 1 False"
        assert first.ask("compact") == "rewriting"
        assert len(data_files(path)) == len(before) + 1
        first.process.send_signal(signal.SIGSTOP)

        assert second.ask("take") == "epoch 2 True"
        assert table.refresh().version == 9
        if compacts_first:
            assert second.ask("compact") == "rewriting"
            assert second.ask("go on") == "Committed"
        version = table.refresh().version
        newest = data_files(path)

        first.process.send_signal(signal.SIGCONT)
        answer = first.ask("go on")
        assert answer.startswith("TIDELOG_LEASE_LOST: ")
        assert "epoch 2 of tidelog.daemon/0" in answer
        assert answer.endswith("held=False")
        assert table.refresh().version == version
        assert len(data_files(path)) == len(newest) - 1
        assert first.ask("release") == "False"

        if not compacts_first:
            assert second.ask("compact") == "rewriting"
            assert second.ask("go on") == "Committed"
        assert second.ask("release") == "True"
    assert sorted(numbers_of(table)) == list(range(8))
    assert table.at().num_files == 2
    status = lease_of(table)
    assert status is not None
    assert (status.epoch, status.state) == (2, "released")
    assert table.transactions["tidelog.daemon/0"] == 2
