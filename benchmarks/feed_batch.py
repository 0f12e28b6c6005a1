"""The part `batch` of `benchmarks.feed`: `changes(spark, ...)` beside delta-spark's `readChangeFeed`, to a no-op.

Both read the same tables in one Spark, in turn. `python -m benchmarks.feed_batch` runs it alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import DELTA_SPARK, TIDELOG, Goal, Report
from benchmarks.peers import spark_session
from tidelog.compaction_daemon import compact
from tidelog.log import Table

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("text", pa.string())])
GOAL = Goal(0.6)
# The first reads of a Spark compile and load code.
_WARM_UP = 2


@dataclass(frozen=True)
class Case:
    """A table: its commits, the rows of each, and after how many commits it is compacted (0: never)."""

    name: str
    commits: int
    rows: int
    compact_every: int = 0


CASES = (
    Case("10,000,000 rows in 20 versions", 20, 500_000),
    Case("60 versions of 20,000 rows, 12 compactions", 60, 20_000, compact_every=5),
)
QUICK = (Case("20 rows in 2 versions", 2, 10), Case("30 rows in 3 versions, a compaction", 3, 10, compact_every=3))


def measure(report: Report, *, quick: bool = False, repetitions: int = 7, session: Any = None) -> None:
    """Measure both cases; the figures are medians in seconds, with the shortest time of each as `fastest`."""
    spark = session or spark_session(memory="4g")
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(QUICK if quick else CASES):
            path = str(Path(folder) / str(number))
            make(path, case)
            spans = in_turn(readers(spark, path), 1 if quick else repetitions)
            report.figure(
                f"batch: {case.name}",
                "s",
                {engine: statistics.median(found) for engine, found in spans.items()},
                GOAL,
                peer=DELTA_SPARK,
                fastest={engine: round(min(found), 3) for engine, found in spans.items()},
            )


def make(path: str, case: Case) -> None:
    """Write the case's table."""
    table = Table.create(path, SCHEMA, properties={"delta.enableChangeDataFeed": True})
    for commit in range(case.commits):
        table.insert(rows(commit * case.rows, case.rows))
        if case.compact_every and (commit + 1) % case.compact_every == 0:
            compact(path)


def rows(start: int, count: int) -> pa.Table:
    """Consecutive keys, random numbers and repeating texts."""
    keys = np.arange(start, start + count)
    texts = pa.array([f"row {number}" for number in range(1000)]).take(pa.array(keys % 1000))
    return pa.table({"k": keys, "v": np.random.default_rng(start).random(count), "text": texts}, schema=SCHEMA)


def readers(spark: Any, path: str) -> dict[str, Callable[[], Any]]:
    """How each engine makes a frame of all changes."""
    from tidelog.streaming import changes

    delta = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    return {TIDELOG: lambda: changes(spark, path, after=0), DELTA_SPARK: lambda: delta.load(path)}


def in_turn(frames: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
    """The seconds from the call that makes a frame to the end of its write to a no-op."""
    spans: dict[str, list[float]] = {engine: [] for engine in frames}
    for repetition in range(_WARM_UP + repetitions):
        for engine, frame in frames.items():
            start = time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            if repetition >= _WARM_UP:
                spans[engine].append(time.perf_counter() - start)
    return spans


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    result = Report("feed", peer=DELTA_SPARK, engines=(TIDELOG, DELTA_SPARK))
    result.machine()
    measure(result, quick=arguments.quick, repetitions=arguments.repetitions)
    result.table()
