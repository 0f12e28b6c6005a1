"""The daemon's loop as a process runs it: signals, sleeps and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compaction_daemon.support import memory_table, numbers_of, put
from tidelog.compaction_daemon import Daemon, DaemonConfig, StepReport


def test_stop_from_a_thread_ends_run_after_the_current_step() -> None:
    table = memory_table()
    steps = []

    def on_step(report: StepReport) -> None:
        steps.append(report)
        if len(steps) == 3:
            threading.Thread(target=daemon.stop).start()

    daemon = Daemon([table], config=DaemonConfig(interval_s=0.2), on_step=on_step)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    daemon.run()
    assert 3 <= len(steps) <= 4
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_it_runs_in_another_thread_as_well() -> None:
    """As in a notebook. Python lets only the main thread handle signals."""
    table = memory_table()
    put(table, 1)
    put(table, 2)
    stepped = threading.Event()
    daemon = Daemon([table], on_step=lambda _: stepped.set())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(daemon.run)
        assert stepped.wait(30)
        daemon.stop()
        running.result(30)
    assert numbers_of(table) == [1, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_finishes_the_step_in_which_a_signal_arrives(number: signal.Signals) -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    seen: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        seen.append(report)
        os.kill(os.getpid(), number)

    Daemon([table], config=DaemonConfig(interval_s=3600), on_step=on_step).run()
    assert [report.did_anything for report in seen] == [True]
    assert numbers_of(table) == [1, 2]


# Runs a daemon that gets its signal at the worst moment: while it is inside `threading`, with a lock held.
_SIGNAL_INSIDE_A_WAIT = """
import signal, sys, threading
from tidelog.compaction_daemon import Daemon, DaemonConfig
from tidelog.log import Table
import pyarrow as pa

Table.create("memory://t", pa.schema([("n", pa.int64())]))
steps = []

def interrupt(frame, event, argument):
    if frame.f_code is threading.Condition.wait.__code__:
        sys.settrace(None)
        signal.raise_signal(signal.SIGTERM)

def on_step(report):
    steps.append(report)
    if len(steps) == 2:
        signal.raise_signal(signal.SIGTERM)
    sys.settrace(interrupt)

Daemon(["memory://t"], config=DaemonConfig(interval_s=0.01), on_step=on_step).run()
"""


def test_a_signal_during_the_sleep_does_not_block() -> None:
    done = subprocess.run([sys.executable, "-c", _SIGNAL_INSIDE_A_WAIT], timeout=60, check=False)
    assert done.returncode == 0


def test_run_does_not_sleep_while_there_is_work() -> None:
    """With an hour of sleep after an idle step, only busy steps can follow each other."""
    table = memory_table()
    steps = 0

    def on_step(_: StepReport) -> None:
        nonlocal steps
        steps += 1
        if steps < 4:
            put(table, 2 * steps)
            put(table, 2 * steps + 1)
        else:
            daemon.stop()

    put(table, 0)
    put(table, 1)
    daemon = Daemon([table], config=DaemonConfig(interval_s=3600, growth=1.0), on_step=on_step)
    daemon.run()
    assert steps == 4
