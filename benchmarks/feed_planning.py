"""The part `planning` of `benchmarks.feed`: a trigger over many new versions of a table with many files."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from benchmarks import tables
from benchmarks.harness import TIDELOG, Goal, Report
from tidelog.log.read.table_reader import TableReader
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.limits import DEFAULT_FILES, ReadLimits
from tidelog.streaming.feed_planning.offsets import Offset
from tidelog.streaming.feed_planning.query_columns import LoadedColumns, QueryColumns

FILES, VERSIONS = 1_000_000, 10_000
_GOAL = Goal(1.0, of=TIDELOG)
_TRIGGERS = 5
_REPETITIONS = 3


def measure(report: Report, work: Path, *, quick: bool = False) -> None:
    """The seconds from the look at the log to the list of what the tasks read; the median of some runs."""
    files, versions = (100, 10) if quick else (FILES, VERSIONS)
    table = tables.clone(tables.checkpointed(files, 1, TIDELOG), work / "planning")
    begin = TableReader.open(str(table)).version
    for version in range(begin + 1, begin + 1 + versions):
        tables.append_commit(table, version)
    spans = [_planned(table, begin, versions) for _ in range(1 if quick else _REPETITIONS)]
    case = f"planning: {versions:,} new versions of a table with {files:,} files"
    report.figure(case, "s", {TIDELOG: statistics.median(spans)}, _GOAL)
    first, *later = _snapshot_triggers(table, files // _TRIGGERS if quick else DEFAULT_FILES)
    case = f"planning: a snapshot of {files:,} files"
    report.figure(f"{case}, first trigger", "s", {TIDELOG: first})
    report.figure(f"{case}, each later trigger", "s", {TIDELOG: statistics.median(later)})


def _planned(path: Path, begin: int, versions: int) -> float:
    table = TableReader(TableReader.open(str(path)).store, TableReader.open(str(path)).at(version=begin).state)
    planner = FeedPlanner(table, REAL_SYSTEM, QueryColumns(None, None, None), loaded=LoadedColumns(begin, table.schema))
    start = time.perf_counter()
    table.refresh()
    end = planner.advance(Offset(table.id, begin), table.version, ReadLimits(files=DEFAULT_FILES))
    changes = list(planner.between(Offset(table.id, begin), end))
    spent = time.perf_counter() - start
    assert len(changes) == versions, len(changes)
    return spent


def _snapshot_triggers(path: Path, max_files: int) -> list[float]:
    """The seconds of the first triggers of a stream that begins with the table as it is."""
    table = TableReader.open(str(path))
    planner = FeedPlanner(table, REAL_SYSTEM, QueryColumns(None, None, None))
    spans, offset = [], None
    for _ in range(_TRIGGERS):
        start = time.perf_counter()
        offset = offset or planner.snapshot_start()
        end = planner.advance(offset, table.version, ReadLimits(files=max_files))
        assert list(planner.between(offset, end))
        spans.append(time.perf_counter() - start)
        offset = end
    return spans
