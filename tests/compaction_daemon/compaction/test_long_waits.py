"""A daemon that rests, sleeps or has much to do is healthy; one that hangs is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compaction_daemon.support import PassingClock, memory_table, put
from tests.compaction_daemon.waiting import ran
from tidelog.compaction_daemon import Daemon, DaemonConfig
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.observing.live_status import health_builtins
from tidelog.compaction_daemon.process.daemon import STALLED_S
from tidelog.compaction_daemon.rewriting import rewrite


def test_a_folder_without_tables_is_healthy(tmp_path: Path) -> None:
    clock = PassingClock()
    daemon = Daemon([f"{tmp_path}/lake/**"], clock=clock)
    sleep = ran(daemon, clock, times=40)
    assert all(sleep.healthy)


def test_a_long_sleep_is_healthy() -> None:
    clock = PassingClock()
    daemon = Daemon([memory_table().path], config=DaemonConfig(idle_interval_s=7200.0), clock=clock)
    sleep = ran(daemon, clock, times=16)
    assert max(sleep.slept_s) == 7200
    assert all(sleep.healthy)


def test_a_long_round_is_healthy_while_each_table_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PassingClock()
    tables = [memory_table() for _ in range(4)]
    for table in tables:
        put(table, 1)
        put(table, 2)
    daemon = Daemon([table.path for table in tables], clock=clock)
    healthy: list[bool] = []

    def slow(*args: Any, **named: Any) -> Any:
        clock.pass_s(STALLED_S - 1)
        healthy.append(health_builtins(daemon.status())["healthy"])
        return rewrite.rewrite(*args, **named)

    monkeypatch.setattr(applying, "rewrite", slow)
    ran(daemon, clock, times=1)
    assert healthy == [True] * 4


def test_a_search_that_hangs_is_unhealthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PassingClock()
    daemon = Daemon([f"{tmp_path}/*"], clock=clock)
    healthy: list[bool] = []

    def hangs() -> None:
        clock.pass_s(STALLED_S + 1)
        healthy.append(health_builtins(daemon.status())["healthy"])
        daemon.stop()

    monkeypatch.setattr(daemon._tables, "search_if_due", hangs)
    daemon.run()
    assert healthy == [False]
    assert health_builtins(daemon.status())["healthy"], "it has ended"


def test_a_loop_that_ended_with_an_error_is_unhealthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PassingClock()
    daemon = Daemon([f"{tmp_path}/*"], clock=clock)

    def fails() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(daemon._tables, "search_if_due", fails)
    with pytest.raises(ZeroDivisionError):
        daemon.run()
    clock.pass_s(STALLED_S + 1)
    assert not health_builtins(daemon.status())["healthy"]
