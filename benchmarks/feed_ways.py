"""The part `ways` of `benchmarks.feed`: what the same changes cost by each way into Spark, to a no-op.

The ways are `changes(spark, ...)`, `spark.read.format("tidelog")` and the table function `tidelog_changes`.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import feed_batch
from benchmarks.harness import TIDELOG, Report
from benchmarks.peers import spark_session
from tidelog.streaming import changes, register

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
