"""The speed of compaction: `make bench-compaction`; `BENCHARGS="--only minor"` measures one part.

The goals are next to the cases. A missed goal is reported, but it is not a failure, since a benchmark is not a test.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import compaction_idle, compaction_memory, compaction_planning, tables
from benchmarks.harness import DELTA_SPARK, DELTALAKE, TIDELOG, Goal, Harness, Report, Run, pick, run_parts

ENGINES = (TIDELOG, DELTALAKE, DELTA_SPARK)


@dataclass(frozen=True)
class Sizes:
    """The size of the table, and the number of measurements."""

    rows: int = 10_000_000
    files: int = 500
    repetitions: int = 5


QUICK = Sizes(rows=2000, files=4, repetitions=1)

PARTS = ("minor", "clustered", "planning", "memory", "idle")


class CompactionBench:
    """The parts, each a method named in PARTS."""

    def __init__(self, harness: Harness, sizes: Sizes, engines: tuple[str, ...]) -> None:
        self._harness = harness
        self._report = harness.report
        self._sizes = sizes
        self._engines = engines

    def minor(self) -> None:
        """Pack small files into large ones. tidelog keeps the order, and verifies what it wrote."""
        self._compact("minor", (), Goal(1.0))

    def clustered(self) -> None:
        """Cluster the same rows by two columns. tidelog also writes where each row has gone to."""
        self._compact("clustered", ("k", "v"), Goal(0.6))

    def planning(self) -> None:
        """Plan tables of a million small files."""
        compaction_planning.measure(self._report, quick=self._sizes is QUICK)

    def memory(self) -> None:
        """Rewrite a group of 2 GB."""
        compaction_memory.measure(self._report, quick=self._sizes is QUICK)

    def idle(self) -> None:
        """Watch a thousand tables that do not change."""
        compaction_idle.measure(self._report, quick=self._sizes is QUICK)

    def _compact(self, case: str, columns: tuple[str, ...], goal: Goal) -> None:
        source = tables.small_files(self._sizes.rows, self._sizes.files)
        tiny = tables.small_files(200, 4)

        def arguments(folder: Path) -> Mapping[str, object]:
            path, warm_up = tables.clone(source, folder / "table"), tables.clone(tiny, folder / "tiny")
            return {"path": str(path), "warm_up": str(warm_up), "columns": columns}

        runs = [Run(engine, "compact", arguments, once=engine == DELTA_SPARK) for engine in self._engines]
        found = self._harness.measure(runs)
        seconds, cpu = pick(found, "seconds"), pick(found, "cpu_seconds")
        # The CPU time of Spark is that of another process.
        self._report.figure(case, "s", seconds, goal, cpu={**cpu, DELTA_SPARK: None}, bytes_before=_size_bytes(source))
        self._report.figure(f"{case}_memory", "MB", pick(found, "peak_mb"))
        self._report.figure(f"{case}_size", "bytes", pick(found, "bytes"))
        self._report.figure(f"{case}_files", "files", pick(found, "files"))


def _size_bytes(table: Path) -> int:
    return sum(file.stat().st_size for file in table.rglob("*.parquet"))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="make bench-compaction", description=__doc__)
    parser.add_argument("--rows", type=int, default=Sizes.rows, help="rows of the table")
    parser.add_argument("--repetitions", type=int, default=Sizes.repetitions, help="runs of which the median counts")
    parser.add_argument("--only", default="", help=f"run parts whose name contains this: {', '.join(PARTS)}")
    parser.add_argument("--no-delta", action="store_true", help="leave delta-spark out, which takes a minute for a run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, without Spark, to check that it runs")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes(rows=given.rows, repetitions=given.repetitions)
    report = Report("compaction", engines=ENGINES)
    report.machine(rows=sizes.rows, files=sizes.files)
    tables.CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=tables.CACHE))
    try:
        harness = Harness(report, sizes.repetitions, work, isolated=not given.quick)
        engines = ENGINES[:2] if given.quick or given.no_delta else ENGINES
        run_parts(CompactionBench(harness, sizes, engines), PARTS, given.only)
    finally:
        shutil.rmtree(work)
    report.end(quick=given.quick)


if __name__ == "__main__":
    main()
