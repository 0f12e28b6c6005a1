"""The speed of reading rows and changes: `make bench-feed`; `BENCHARGS="--rows 1000000"` makes the tables smaller.

The goals are next to the cases. A missed goal is reported, but it is not a failure, since a benchmark is not a test.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import feed_batch, feed_planning, feed_stream, feed_ways, tables
from benchmarks.harness import DELTA_SPARK, DELTALAKE, TIDELOG, Goal, Harness, Report, Run, pick, run_parts
from benchmarks.peers import spark_session
from benchmarks.slow_store import slow_s3
from tests.log.storage.servers import UnavailableError

POLARS = "polars"
ENGINES = (TIDELOG, DELTALAKE, POLARS)
REPORTED = (*ENGINES, DELTA_SPARK)
# The wait for the first byte of an object in the same region.
LATENCY_S = 0.03


@dataclass(frozen=True)
class Sizes:
    """The sizes of the tables, and the number of measurements."""

    rows: int = 10_000_000
    files: int = 10
    store_rows: int = 1_000_000
    store_files: int = 40
    small_files: int = 2000
    reads: int = 7
    repetitions: int = 3


QUICK = Sizes(rows=2000, small_files=8, reads=1, repetitions=1)

PARTS = ("scan", "object_store", "batch", "ways", "stream", "latency", "planning", "many_files")


class FeedBench:
    """The parts, each a method named in PARTS."""

    def __init__(self, harness: Harness, sizes: Sizes, work: Path) -> None:
        self._harness = harness
        self._report = harness.report
        self._sizes = sizes
        self._work = work

    def scan(self) -> None:
        """Read all rows into one Arrow table: numbers, text, deletion vectors, many files."""
        rows, files = self._sizes.rows, self._sizes.files
        numbers = tables.with_rows(rows, files, "numbers")
        self._scan("scan_numbers", numbers, "scan", Goal(1.0), polars=True)
        self._scan("scan_text", tables.with_rows(rows, files, "text"), "scan", Goal(1.1), polars=True)
        self._scan("scan_deletion_vectors", tables.with_rows(rows, files, "deleted"), "scan", Goal(1.0))
        self._scan("changes", numbers, "changes", Goal(1.0))
        self._scan("scan_one_small_file", tables.with_rows(1, 1, "numbers"), "scan", None)
        small = tables.with_rows(self._sizes.small_files, self._sizes.small_files, "numbers")
        self._scan("scan_small_files", small, "scan", None)

    def object_store(self) -> None:
        """The same from S3, where most of the time is waiting."""
        stored = tables.with_rows(self._sizes.store_rows, self._sizes.store_files, "numbers")
        try:
            with slow_s3(self._work, stored, LATENCY_S) as (url, options):
                self._scan("scan_object_store", url, "scan", Goal(1.25), options)
                self._scan("changes_object_store", url, "changes", Goal(1.25), options)
        except UnavailableError as error:
            self._report.say(f"the object store is left out: {error}")

    def batch(self) -> None:
        """Read the changes of an interval in Spark, beside delta-spark's readChangeFeed."""
        feed_batch.measure(self._report, quick=self._sizes is QUICK, session=self._spark)

    def ways(self) -> None:
        """Read the same changes in Spark by each way."""
        feed_ways.measure(self._report, quick=self._sizes is QUICK, session=self._spark)

    def stream(self) -> None:
        """Run the change feed as a stream, beside delta-spark's."""
        feed_stream.measure(self._report, quick=self._sizes is QUICK, session=self._spark)

    def latency(self) -> None:
        """Wait for the batch function after a commit."""
        feed_stream.measure_latency(self._report, quick=self._sizes is QUICK, session=self._spark)

    def planning(self) -> None:
        """Plan a micro-batch of many new versions on a table of many files: from the look at the log to the tasks."""
        feed_planning.measure(self._report, self._work, quick=self._sizes is QUICK)

    def many_files(self) -> None:
        """Wait for the first row of a table of many files, and for what the driver does with all of them."""
        feed_ways.measure_many_files(self._harness, quick=self._sizes is QUICK, session=self._spark)

    @cached_property
    def _spark(self) -> Any:
        return spark_session(memory="4g")

    def _scan(
        self,
        case: str,
        path: Path | str,
        what: str,
        goal: Goal | None,
        options: Mapping[str, Mapping[str, str]] | None = None,
        *,
        polars: bool = False,
    ) -> None:
        given = {"path": str(path), "what": what, "reads": self._sizes.reads}

        def run(engine: str) -> Run:
            return Run(engine, "scan", lambda _: {**given, "options": (options or {}).get(engine)})

        engines = ENGINES if polars else (TIDELOG, DELTALAKE)
        found = self._harness.measure([run(engine) for engine in engines])
        rows = {engine: int(figures["rows"]) for engine, figures in found.items()}
        if len(set(rows.values())) > 1:
            self._report.say(f"{case}: the engines read different numbers of rows: {rows}")
        self._report.figure(case, "s", pick(found, "seconds"), goal, cpu=pick(found, "cpu_seconds"), rows=rows[TIDELOG])
        self._report.figure(f"{case}_memory", "MB", pick(found, "peak_mb"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-feed", description=__doc__)
    parser.add_argument("--rows", type=int, default=Sizes.rows, help="rows of the large tables")
    parser.add_argument("--repetitions", type=int, default=Sizes.repetitions, help="runs of which the median counts")
    parser.add_argument("--only", default="", help=f"run parts whose name contains this: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, without the server, to check that it runs")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes(rows=given.rows, repetitions=given.repetitions)
    report = Report("feed", engines=REPORTED)
    report.machine(rows=sizes.rows, files=sizes.files, latency_s=LATENCY_S)
    work = Path(tempfile.mkdtemp(prefix="tidelog-bench-feed-"))
    try:
        harness = Harness(report, sizes.repetitions, work, isolated=not given.quick)
        only = given.only or ("scan" if given.quick else "")
        run_parts(FeedBench(harness, sizes, work), PARTS, only)
    finally:
        shutil.rmtree(work)
    report.end(quick=given.quick)


if __name__ == "__main__":
    main()
