"""The change feed as a stream, side by side with delta-spark's stream on the same table in one Spark.

Each run is a query with Trigger.AvailableNow and a new checkpoint, to a no-op. The engines take turns.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidelog.log import Table
from tidelog.streaming import Feed, register

FORMAT, FEED, DELTA = "tidelog", "tidelog_feed", "delta_spark"
_PATIENCE_S = 120


@dataclass(slots=True)
class Runs:
    """Seconds of one engine's runs: the whole run, and Spark's addBatch of all micro-batches."""

    total_s: list[float] = field(default_factory=list)
    add_batch_s: list[float] = field(default_factory=list)
    micro_batches: list[int] = field(default_factory=list)


def _nothing(frame: DataFrame, _: int) -> None:
    frame.write.format("noop").mode("append").save()


def _by_format(spark: SparkSession, path: str) -> Any:
    return spark.readStream.format("tidelog").load(path).writeStream.format("noop")


def _by_feed(spark: SparkSession, path: str) -> Any:
    return Feed(spark, path).foreachBatch(_nothing)


def _by_delta(spark: SparkSession, path: str) -> Any:
    stream = spark.readStream.format("delta").option("skipChangeCommits", "true")
    return stream.option("maxFilesPerTrigger", 10_000).load(path).writeStream.format("noop")


_ENGINES: Mapping[str, Callable[[SparkSession, str], Any]] = {FORMAT: _by_format, FEED: _by_feed, DELTA: _by_delta}


def available_now(spark: SparkSession, path: str, repeats: int) -> dict[str, Runs]:
    """Run each engine `repeats` times, after one run to warm up."""
    register(spark)
    found = {engine: Runs() for engine in _ENGINES}
    for number in range(repeats + 1):
        for engine, stream in _ENGINES.items():
            total_s, progress = _run(stream(spark, path))
            if number:
                runs = found[engine]
                runs.total_s.append(total_s)
                runs.add_batch_s.append(sum(entry["durationMs"].get("addBatch", 0) for entry in progress) / 1000)
                runs.micro_batches.append(len(progress))
    return found


def _run(writer: Any) -> tuple[float, list[Any]]:
    checkpoint = tempfile.mkdtemp(prefix="tidelog-bench-")
    try:
        began = time.perf_counter()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        if not query.awaitTermination(_PATIENCE_S):
            query.stop()
            raise TimeoutError(f"a run takes more than {_PATIENCE_S} s")
        return time.perf_counter() - began, list(query.recentProgress)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def latency(spark: SparkSession, folder: Path, commits: int, interval_s: float) -> list[float]:
    """Seconds from a commit to the batch function that gets its row, one commit each interval, trigger 0."""
    table = Table.create(str(folder / "latency"), _schema())
    arrived: dict[int, float] = {}

    def take(frame: DataFrame, _: int) -> None:
        now = time.perf_counter()
        for row in frame.select("n").collect():
            arrived.setdefault(row["n"], now)

    writer = Feed(spark, table.path).foreachBatch(take).option("checkpointLocation", str(folder / "latency-cp"))
    query = writer.trigger(processingTime="0 seconds").start()
    committed: dict[int, float] = {}
    try:
        pause = threading.Event()
        for number in range(commits):
            table.insert([{"n": number}])
            committed[number] = time.perf_counter()
            pause.wait(interval_s)
        deadline = time.monotonic() + _PATIENCE_S
        while len(arrived) < commits and query.isActive and time.monotonic() < deadline:
            pause.wait(0.05)
    finally:
        query.stop()
    # The first batch also starts the query.
    return [arrived[number] - committed[number] for number in range(1, commits)]


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("n", pa.int64())])


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
