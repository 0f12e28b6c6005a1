"""The part `idle` of `benchmarks.compaction`: what a daemon costs while nothing happens to its tables.

Alone: `python -m benchmarks.compaction_idle [--quick]`. In this process, which prints its figures as JSON:
`python -m benchmarks.compaction_idle FOLDER`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.harness import REPOSITORY, TIDELOG, Report, run_alone

TABLES = 1_000
_ROUNDS = 5
_TIMEOUT_S = 300
# On an object store, each of these is a request.
_REQUESTS = ("read", "read_start", "list", "walk", "folders", "open_input", "modified_ms", "put_if_absent", "replace")


def measure(report: Report, *, quick: bool = False) -> None:
    """The time, the memory and the requests of a daemon in a process of its own."""
    count = 3 if quick else TABLES
    figures = in_a_process(tables.idle_tables(count))
    name = f"idle: {count:,} tables"
    report.figure(f"{name}, a look at each", "s", {TIDELOG: figures["seconds"]}, cpu={TIDELOG: figures["cpu_seconds"]})
    report.figure(f"{name}, CPU time", "s/hour", {TIDELOG: figures["cpu_seconds"] * figures["looks_an_hour"]})
    report.figure(f"{name}, requests", "an hour", {TIDELOG: figures["requests"] * figures["looks_an_hour"]})
    report.figure(f"{name}, memory", "MB", {TIDELOG: figures["peak_mb"]})


def in_a_process(folder: Path) -> dict[str, float]:
    """The figures of a daemon on the tables of a folder."""
    command = [sys.executable, "-m", "benchmarks.compaction_idle", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def looked_at(folder: str) -> dict[str, float]:
    """Look at all tables of a folder some times, after a first time that opens them: the median of each figure."""
    from benchmarks.timing import peak_mb, timed
    from tidelog.compaction_daemon import Daemon, DaemonConfig

    counted = _count_requests()
    config = DaemonConfig()
    daemon = Daemon([f"{folder}/*"], config=config)
    first = daemon.step()
    if any(step.error for step in first.tables):
        raise RuntimeError(f"the first look failed: {first}")
    spans, requests = [], []
    for _ in range(_ROUNDS):
        before = counted()
        with timed() as spent:
            report = daemon.step()
        if any(step.did_anything or step.error for step in report.tables):
            raise RuntimeError(f"the tables are not idle: {report}")
        spans.append(spent)
        requests.append(counted() - before)
    return {
        **{name: statistics.median(spent[name] for spent in spans) for name in spans[0]},
        "requests": statistics.median(requests),
        "looks_an_hour": 3600 / config.idle_interval_s,
        "peak_mb": peak_mb(os.getpid()),
    }


def _count_requests() -> Callable[[], int]:
    """Start to count the calls of local stores. Returns a function that returns the count."""
    from tidelog.log.storage.local import LocalStore

    calls: list[None] = []  # appending is safe in several threads

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            calls.append(None)
            return method(*args, **given)

        return call

    for name in _REQUESTS:
        setattr(LocalStore, name, counting(getattr(LocalStore, name)))
    return lambda: len(calls)


def main() -> None:
    """Measure, and print a table; or look at a folder."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        print(json.dumps(looked_at(sys.argv[1])))
        return
    run_alone("compaction-idle", measure)


if __name__ == "__main__":
    main()
