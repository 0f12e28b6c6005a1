"""A daemon keeps to its share of the cores: it rests after each table, and counts what its processes use."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import SCHEMA, PassingClock, memory_table, put
from tests.compaction_daemon.waiting import ran
from tidelog.compaction_daemon import Daemon, DaemonConfig
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.rewriting import rewrite
from tidelog.log import Table

CORES = os.cpu_count() or 1


class BusyClock(PassingClock):
    """Each rewrite takes 10 seconds of all cores."""

    cpu = 0.0

    def cpu_s(self) -> float:
        return self.cpu

    def rewrites(self, *args: Any, **named: Any) -> Any:
        self.pass_s(10)
        self.cpu += 10 * CORES
        return rewrite.rewrite(*args, **named)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> BusyClock:
    clock = BusyClock()
    monkeypatch.setattr(applying, "rewrite", clock.rewrites)
    return clock


def busy_daemon(clock: BusyClock) -> Daemon:
    tables = [memory_table() for _ in range(3)]
    for table in tables:
        put(table, 1)
        put(table, 2)
    return Daemon([table.path for table in tables], config=DaemonConfig(core_share=0.25), clock=clock)


def test_it_rests_after_each_table(clock: BusyClock, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = busy_daemon(clock)
    began_s, shares = clock.seconds, []

    def rewrites(*args: Any, **named: Any) -> Any:
        if clock.seconds > began_s:
            shares.append(clock.cpu / CORES / (clock.seconds - began_s))
        return clock.rewrites(*args, **named)

    monkeypatch.setattr(applying, "rewrite", rewrites)
    ran(daemon, clock, times=3)
    assert len(shares) == 2
    assert max(shares) <= 0.25


@pytest.mark.parametrize("during", [Daemon.stop, lambda daemon: daemon.reconfigure(DaemonConfig(), ["memory://other"])])
def test_a_rest_is_left_for_what_the_user_wants(clock: BusyClock, during: Callable[[Daemon], None]) -> None:
    """It stops at once. Other settings come after the round, without a sleep before them."""
    daemon = busy_daemon(clock)
    sleep = ran(daemon, clock, times=3, first=lambda: during(daemon))
    done = [table.last_compaction for table in daemon.status().tables]
    if during is Daemon.stop:
        assert len(sleep.slept_s) == 1
        assert [each is not None for each in done].count(True) == 1
    else:
        assert [table.path for table in daemon.status().tables] == ["memory://other"]


def test_the_step_of_a_program_does_not_rest(clock: BusyClock) -> None:
    assert [step.did_anything for step in busy_daemon(clock).step().tables] == [True] * 3


def test_the_time_of_its_processes_counts(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["part"])
    put(table, *range(1000))
    put(table, *range(1000))
    with ProcessPoolExecutor(1) as pool:
        daemon = Daemon([table.path], executor=pool)
        before_s = daemon._system.cpu_s()
        assert daemon.step().did_anything
    # Closing the pool waits for all that its answers cause.
    assert daemon._executor is not None
    assert 0 < daemon._executor.cpu_s <= daemon._cpu_s() - before_s
