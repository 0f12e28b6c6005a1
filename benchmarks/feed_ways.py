"""The parts `ways` and `many_files` of `benchmarks.feed`.

What the same changes cost by each way into Spark, to a no-op: `changes(spark, ...)`, `spark.read.format("tidelog")` and
the table function `tidelog_changes`. And what Spark's driver does before a job begins, if a table has many files.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks import feed_batch, tables
from benchmarks.harness import TIDELOG, Goal, Harness, Report, Run, pick
from benchmarks.peers import spark_session
from benchmarks.timing import grown, timed
from tidelog.log import Table
from tidelog.streaming import changes, read, register, table
from tidelog.streaming.executors import spark_table
from tidelog.streaming.executors.tasks import file_parts

_CASE = feed_batch.Case("1,000,000 rows in 20 versions", 20, 50_000)
_REPETITIONS = 5
# Files and commits of a table that a process reads first.
_TINY = (10, 2)


def measure(report: Report, *, quick: bool = False, session: Any = None) -> None:
    """Measure each way; the figures are medians in seconds."""
    spark = session or spark_session(memory="4g")
    register(spark)
    case = feed_batch.QUICK[0] if quick else _CASE
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        feed_batch.make(path, case)
        ways = {
            "changes()": lambda: changes(spark, path, after=0),
            'format("tidelog")': lambda: spark.read.format("tidelog").option("changes", "cdc").load(path),
            "tidelog_changes": lambda: spark.sql(f"SELECT * FROM tidelog_changes('{path}', 0)"),
        }
        for way, spans in feed_batch.in_turn(ways, 1 if quick else _REPETITIONS).items():
            report.figure(f"ways, {way}: {case.name}", "s", {TIDELOG: statistics.median(spans)})


def _first_row(frame: Callable[[], DataFrame]) -> list[Any]:
    return frame().limit(1).collect()


def changes_frame(path: str) -> dict[str, float]:
    """What `changes(spark, path)` takes in this process, after the same with a small table."""
    spark = spark_session(memory="4g")
    assert changes(spark, str(tables.many_files(*_TINY))).columns
    with grown() as memory, timed() as spent:
        assert changes(spark, path).columns
    return {**spent, **memory}


def share_out(path: str) -> dict[str, float]:
    """What a DELETE by `table(spark, path)` takes until its tasks are known, if it can match every file."""
    opened = Table.open(path)
    count = opened.at().files().num_rows
    transaction = opened.begin()
    with grown() as memory, timed() as spent:
        files = spark_table.candidates(transaction.state, transaction.writer, "id % 2 = 5")
        parts = file_parts(files)
    assert sum(part.rows.num_rows for part in parts) == count
    return {**spent, **memory}


def measure_many_files(harness: Harness, *, quick: bool = False, session: Any = None) -> None:
    """Measure the first row of a table of many files, of which only the first ones exist, and what needs no file."""
    report = harness.report
    spark = session or spark_session(memory="4g")
    register(spark)
    files, partitions, commits = (200, 5, 4) if quick else (1_000_000, 1000, 100)
    source = tables.one_real_partition(files, partitions)
    path = str(source)
    ways = {"read()": partial(read, spark, path), 'format("tidelog")': partial(spark.read.format("tidelog").load, path)}
    cases: dict[str, Callable[[], object]] = {
        f"first row of {files:,} files, {way}": partial(_first_row, frame) for way, frame in ways.items()
    }
    for case, run in cases.items():
        spans = []
        for _ in range(1 if quick else 3):
            with timed() as spent:
                assert run()
            spans.append(spent["seconds"])
        report.figure(case, "s", {TIDELOG: statistics.median(spans)}, Goal(6, TIDELOG))
    given = {"path": str(tables.checkpointed(files, commits, "tidelog"))}
    actions = {
        f"frame of {files:,} files in {commits} commits, changes()": "changes_frame",
        f"sharing out {files:,} files, table()": "share_out",
    }
    for case, action in actions.items():
        found = harness.measure([Run(TIDELOG, action, lambda _: given)])
        report.figure(case, "s", pick(found, "seconds"), Goal(6, TIDELOG))
        report.figure(f"{case}, memory", "MB", pick(found, "peak_mb"), Goal(300, TIDELOG))
    with tempfile.TemporaryDirectory() as folder:
        copy = table(spark, str(tables.clone(source, Path(folder) / "table")))
        with timed() as spent:
            assert copy.compact(where="p = 'real'").files_removed
        case = f"compaction of one of {partitions} partitions of {files:,} files, by Spark"
        report.figure(case, "s", {TIDELOG: spent["seconds"]}, Goal(6, TIDELOG))
