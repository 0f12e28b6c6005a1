"""The part `planning` of `benchmarks.compaction`: what a daemon plans for tables of many small files.

Alone: `python -m benchmarks.compaction_planning [--quick]`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks import tables
from benchmarks.harness import TIDELOG, Goal, Report, run_alone
from tidelog.compaction_daemon import Budget, read_history
from tidelog.compaction_daemon.planning.compaction_planner import plan_snapshot
from tidelog.compaction_daemon.planning.history import CommitFacts, History
from tidelog.compaction_daemon.planning.request import DUE, CompactionRequest
from tidelog.log import Table

FILES, PARTITIONS = 1_000_000, 100_000
_GOAL = Goal(2.0, of=TIDELOG)
_REPETITIONS = 3
_BUDGET = Budget(512 * 2**20)
# A stream that writes to another two hundred partitions in each commit.
_COMMITS, _TOUCHED = 1000, 200


def measure(report: Report, *, quick: bool = False) -> None:
    """The seconds of a plan of a table whose files are listed; the median of some runs."""
    files, partitions = (100, 20) if quick else (FILES, PARTITIONS)
    few, many = tables.checkpointed(files, 1, TIDELOG), tables.many_partitions(files, partitions)
    for path, scopes in ((few, 10), (many, partitions)):
        _measure(report, Table.open(str(path)), scopes, quick=quick)


def _measure(report: Report, table: Table, scopes: int, *, quick: bool) -> None:
    snapshot = table.at()
    name = f"planning: {snapshot.files().num_rows:,} small files in {scopes:,} partitions"
    quiet = read_history(table)
    now_ms = table.head.timestamp_ms + 86_400_000
    busy = _history(now_ms, scopes, 3 if quick else _COMMITS)

    def due(past: History) -> object:
        return plan_snapshot(snapshot, DUE, history=past, now_ms=now_ms, budget=_BUDGET)

    cases: dict[str, tuple[Callable[[], object], Goal | None]] = {
        "a quiet table": (lambda: due(quiet), _GOAL),
        "beside a stream": (lambda: due(busy), _GOAL),
        "minor, a reason for each file": (lambda: plan_snapshot(snapshot, CompactionRequest(), explain=True), None),
    }
    for case, (make, goal) in cases.items():
        seconds = statistics.median(_seconds(make) for _ in range(1 if quick else _REPETITIONS))
        report.figure(f"{name}, {case}", "s", {TIDELOG: seconds}, goal)


def _history(now_ms: int, scopes: int, commits: int) -> History:
    facts = []
    for number in range(commits):
        touched = (number * _TOUCHED + place for place in range(_TOUCHED))
        names = frozenset((("p", str(place % scopes)),) for place in touched)
        facts.append(
            CommitFacts(
                number,
                now_ms - (commits - number) * 1000,
                names,
                is_compaction=False,
                data_change=True,
                changed_files=number % 5 == 0,
            )
        )
    return History(is_whole=False).followed_by(facts)


def _seconds(make: Callable[[], object]) -> float:
    start = time.perf_counter()
    make()
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print a table."""
    run_alone("compaction-planning", measure)


if __name__ == "__main__":
    main()
