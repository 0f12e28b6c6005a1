"""The parts `ways` and `many_files` of `benchmarks.feed`.

What the same changes cost by each way into Spark, to a no-op: `changes(spark, ...)`, `spark.read.format("tidelog")` and
the table function `tidelog_changes`. And how soon the first row of a table of many files comes.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import feed_batch, tables
from benchmarks.harness import TIDELOG, Goal, Report
from benchmarks.peers import spark_session
from benchmarks.timing import timed
from tidelog.streaming import changes, read, register

_CASE = feed_batch.Case("1,000,000 rows in 20 versions", 20, 50_000)
_REPETITIONS = 5


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


def measure_many_files(report: Report, *, quick: bool = False, session: Any = None) -> None:
    """Measure the first row of a table of many files, of which only the first ones exist."""
    spark = session or spark_session(memory="4g")
    register(spark)
    files, partitions = (200, 5) if quick else (1_000_000, 1000)
    path = str(tables.one_real_partition(files, partitions))
    ways = {"read()": partial(read, spark, path), 'format("tidelog")': partial(spark.read.format("tidelog").load, path)}
    for way, frame in ways.items():
        spans = []
        for _ in range(1 if quick else 3):
            with timed() as spent:
                assert frame().limit(1).collect()
            spans.append(spent["seconds"])
        report.figure(
            f"first row of {files:,} files, {way}", "s", {TIDELOG: statistics.median(spans)}, Goal(6, TIDELOG)
        )
