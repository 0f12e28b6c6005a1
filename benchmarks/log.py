"""The log's speed: `make bench-log`; `BENCHARGS="--files 100000"` makes the table smaller.

The goals are next to the cases. A missed goal is reported, but it is not a failure, since a benchmark is not a test.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.harness import DELTA_SPARK, DELTALAKE, TIDELOG, Figures, Goal, Harness, Report, Run, pick, run_parts
from tidelog.log.system import to_datetime


@dataclass(frozen=True)
class Sizes:
    """The sizes of the tables, and the number of measurements."""

    files: int = 1_000_000
    commits: int = 100
    partitions: int = 1000
    timeline: int = 100_000
    short_log: int = 10
    long_log: int = 10_000
    appends: int = 200
    refreshes: int = 21
    lookups: int = 21
    repetitions: int = 3


QUICK = Sizes(
    files=200,
    commits=4,
    partitions=5,
    timeline=40,
    short_log=2,
    long_log=20,
    appends=3,
    refreshes=2,
    lookups=2,
    repetitions=1,
)


CASES = ("open_and_list", "one_partition", "write_checkpoint", "refresh", "append", "lookup", "long_tail", "start")


class LogBench:
    """The groups of cases, each a method named in CASES."""

    def __init__(self, harness: Harness, sizes: Sizes, *, spark: bool) -> None:
        self._harness = harness
        self._report = harness.report
        self._sizes = sizes
        self._spark = spark

    def open_and_list(self) -> None:
        """Open a table and list all live files, from JSON commits and from checkpoints by two writers."""
        files, commits = self._sizes.files, self._sizes.commits
        self._open("open_list_json", tables.many_files(files, commits), Goal(0.5), Goal(0.7))
        for writer, time_goal, memory_goal in ((TIDELOG, Goal(0.25), None), (DELTALAKE, Goal(0.5), Goal(0.8))):
            path = tables.checkpointed(files, commits, writer)
            self._open(f"open_list_checkpoint_by_{writer}", path, time_goal, memory_goal)

    def one_partition(self) -> None:
        """Open a table, and read one of its many partitions or delete a row of it."""
        source = tables.one_real_partition(self._sizes.files, self._sizes.partitions)
        for case in ("scan_partition", "delete_row"):
            found = self._measure(case, lambda work: {"path": str(tables.clone(source, work))})
            self._report.figure(case, "ms", pick(found, "milliseconds"), Goal(60, TIDELOG))
            self._report.figure(f"{case}_memory", "MB", pick(found, "peak_mb"), Goal(250, TIDELOG))

    def write_checkpoint(self) -> None:
        """Write a checkpoint to disk, with the state already in memory."""
        source = tables.many_files(self._sizes.files, self._sizes.commits)
        found = self._measure("write_checkpoint", lambda work: {"path": str(tables.clone(source, work))}, spark=True)
        self._report.figure("write_checkpoint", "s", pick(found, "seconds"), Goal(0.35), cpu=pick(found, "cpu_seconds"))
        self._report.figure("write_checkpoint_memory", "MB", pick(found, "peak_mb"))

    def refresh(self) -> None:
        """Refresh after another writer committed one file, and list all live files."""
        source = tables.checkpointed(self._sizes.files, self._sizes.commits, TIDELOG)

        def run(engine: str, commits: int) -> Run:
            return Run(engine, "refresh", lambda work: {"path": str(tables.clone(source, work)), "commits": commits})

        # Each one takes deltalake seconds.
        found = self._harness.measure([run(TIDELOG, self._sizes.refreshes), run(DELTALAKE, 2)])
        self._report.figure("refresh", "ms", pick(found, "milliseconds"), Goal(20, TIDELOG))

    def append(self) -> None:
        """Commit a blind append without data files, to a short log and to a long one, both without a checkpoint."""
        runs = [
            Run(TIDELOG, "append", lambda work: self._logs(work, self._sizes.appends, in_commit_timestamps=True)),
            # Each one takes deltalake seconds if no checkpoint is near.
            Run(DELTALAKE, "append", lambda work: self._logs(work, 3, in_commit_timestamps=False), once=True),
        ]
        found = self._harness.measure(runs)
        facts: dict[str, Any] = {"short_version": self._sizes.short_log, "long_version": self._sizes.long_log}
        self._report.figure("append_commit_short_log", "ms", pick(found, "short_ms"), Goal(10, TIDELOG), **facts)
        self._report.figure("append_commit_long_log", "ms", pick(found, "long_ms"), Goal(10, TIDELOG), **facts)
        growth = {engine: figures["long_ms"] / figures["short_ms"] for engine, figures in found.items()}
        self._report.figure("append_commit_growth", "long/short", growth, Goal(1.1, TIDELOG), **facts)

    def lookup(self) -> None:
        """Find the version at a time, from in-commit timestamps and from the modification times of the commits."""
        for in_commit_timestamps in (True, False):
            self._lookup(in_commit_timestamps=in_commit_timestamps)

    def long_tail(self) -> None:
        """Open and list after very many commits without a checkpoint."""
        path = tables.long_log(self._sizes.long_log, in_commit_timestamps=False, checkpoint=False)
        found = self._measure("open_list", lambda _: {"path": str(path)})
        self._report.figure("open_list_long_tail", "s", pick(found, "seconds"), cpu=pick(found, "cpu_seconds"))

    def start(self) -> None:
        """Import the feed, as each process does that Spark starts for it."""
        runs = [Run(TIDELOG, "start", lambda _: {})]
        found = self._harness.measure(runs)
        self._report.figure("import_feed", "s", pick(found, "seconds"))

    def _open(self, case: str, path: Path, time_goal: Goal, memory_goal: Goal | None) -> None:
        found = self._measure("open_list", lambda _: {"path": str(path)}, spark=True)
        self._report.figure(case, "s", pick(found, "seconds"), time_goal, cpu=pick(found, "cpu_seconds"))
        self._report.figure(f"{case}_memory", "MB", pick(found, "peak_mb"), memory_goal)

    def _measure(
        self, action: str, arguments: Callable[[Path], dict[str, object]], *, spark: bool = False
    ) -> dict[str, Figures]:
        runs = [Run(engine, action, arguments) for engine in (TIDELOG, DELTALAKE)]
        if spark and self._spark:
            small = tables.many_files(QUICK.files, QUICK.commits)

            def with_warm_up(work: Path) -> dict[str, object]:
                (work / "table").mkdir()
                return arguments(work / "table") | {"warm_up": str(tables.clone(small, work / "warm-up"))}

            runs.append(Run(DELTA_SPARK, action, with_warm_up, once=True))
        return self._harness.measure(runs)

    def _lookup(self, *, in_commit_timestamps: bool) -> None:
        """Look up times in a table that was just opened: the first one, and further ones."""
        path = tables.long_log(self._sizes.timeline, in_commit_timestamps=in_commit_timestamps, checkpoint=True)
        # Both engines also load the snapshot, which is cheapest shortly after the checkpoint.
        moment = to_datetime(tables.START_MS + (self._sizes.timeline - 2) * tables.SPACING_MS + 1).isoformat()
        kind = "in_commit" if in_commit_timestamps else "file_times"
        runs = [Run(TIDELOG, "lookup", lambda _: {"path": str(path), "times": self._sizes.lookups})]
        if self._spark:
            spark_arguments = {"path": str(path), "moment": moment, "times": 2}
            runs.append(Run(DELTA_SPARK, "lookup", lambda _: spark_arguments, once=True))
        found = self._harness.measure(runs)
        first_ms = 50 if in_commit_timestamps else 100
        self._report.figure(f"lookup_{kind}_first", "ms", pick(found, "first_ms"), Goal(first_ms, TIDELOG))
        self._report.figure(f"lookup_{kind}_again", "ms", pick(found, "again_ms"), Goal(50, TIDELOG))
        found = self._measure("at_timestamp", lambda _: {"path": str(path), "moment": moment})
        self._report.figure(f"at_timestamp_{kind}", "s", pick(found, "seconds"), cpu=pick(found, "cpu_seconds"))

    def _logs(self, work: Path, appends: int, *, in_commit_timestamps: bool) -> dict[str, object]:
        """Copies of the short and the long log."""
        found: dict[str, object] = {"commits": appends}
        for name, commits in (("short", self._sizes.short_log), ("long", self._sizes.long_log)):
            source = tables.long_log(commits, in_commit_timestamps=in_commit_timestamps, checkpoint=False)
            found[name] = str(tables.clone(source, work / name))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-log", description=__doc__)
    parser.add_argument("--files", type=int, default=Sizes.files, help="live files of the large table")
    parser.add_argument(
        "--timeline", type=int, default=Sizes.timeline, help="commits in the table for looking up times"
    )
    parser.add_argument("--repetitions", type=int, default=Sizes.repetitions, help="runs of which the median counts")
    parser.add_argument("--no-spark", action="store_true", help="leave delta-spark out")
    parser.add_argument("--only", default="", help=f"run groups whose name contains this: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, without delta-spark, to check that it runs")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes(files=given.files, timeline=given.timeline, repetitions=given.repetitions)
    report = Report("log")
    report.machine(files=sizes.files, commits=sizes.commits, timeline=sizes.timeline)
    tables.CACHE.mkdir(parents=True, exist_ok=True)
    # Next to the cached tables, so that copies can be hard links and commits go to a disk.
    work = Path(tempfile.mkdtemp(prefix="work-", dir=tables.CACHE))
    try:
        harness = Harness(report, sizes.repetitions, work, isolated=not given.quick)
        bench = LogBench(harness, sizes, spark=not (given.quick or given.no_spark))
        run_parts(bench, CASES, given.only)
    finally:
        shutil.rmtree(work)
    report.end(quick=given.quick)


if __name__ == "__main__":
    main()
