"""The parts `stream` and `latency` of `benchmarks.feed`: the change feed as a stream, beside delta-spark's.

In `stream`, each run is a query with Trigger.AvailableNow and a new checkpoint, to a no-op; the engines take turns on
the same tables in one Spark. A batch function costs something by itself, so the peer of one is delta-spark with one. In
`latency`, one row is committed each second to a running stream, and a batch function notes its arrival.
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

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import feed_batch
from benchmarks.harness import DELTA_SPARK, TIDELOG, Goal, Report
from benchmarks.peers import spark_session
from tidelog.log import Table
from tidelog.streaming import Feed, register

FORMAT, FUNCTION, FEED = "format", "format in a batch function", "Feed"
DELTA, DELTA_FUNCTION = "delta", "delta in a batch function"
# With what each is compared: a batch function costs something by itself.
_PEERS = {FORMAT: DELTA, FUNCTION: DELTA_FUNCTION, FEED: DELTA_FUNCTION}
_AS_FAST = Goal(1.0)
_MEDIAN_S, _P99_S = Goal(0.06, of=TIDELOG), Goal(0.15, of=TIDELOG)
_PATIENCE_S = 120
# Spark's usual class lets Hadoop start `chmod` and `readlink` for each file of a checkpoint on a disk.
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_PROCESSES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(slots=True)
class Runs:
    """Seconds of one engine's runs: the whole run, and Spark's addBatch of all micro-batches."""

    total_s: list[float] = field(default_factory=list)
    add_batch_s: list[float] = field(default_factory=list)
    micro_batches: list[int] = field(default_factory=list)


_Stream = Callable[[Callable[[DataFrame, int], None]], Any]


def _nothing(frame: DataFrame, _: int) -> None:
    frame.write.format("noop").mode("append").save()


def _by_format(spark: SparkSession, path: str) -> Any:
    return spark.readStream.format("tidelog").load(path).writeStream.format("noop")


def _by_function(spark: SparkSession, path: str) -> Any:
    return spark.readStream.format("tidelog").load(path).writeStream.foreachBatch(_nothing)


def _by_feed(spark: SparkSession, path: str) -> Any:
    return Feed(spark, path).foreachBatch(_nothing)


def _delta(spark: SparkSession, path: str) -> Any:
    # Without a start, delta-spark reads the newest snapshot, whose files a compaction may have made fewer.
    stream = spark.readStream.format("delta").option("startingVersion", 0)
    return stream.option("maxFilesPerTrigger", 10_000).load(path).writeStream


def _by_delta(spark: SparkSession, path: str) -> Any:
    return _delta(spark, path).format("noop")


def _by_delta_function(spark: SparkSession, path: str) -> Any:
    return _delta(spark, path).foreachBatch(_nothing)


_ENGINES: Mapping[str, Callable[[SparkSession, str], Any]] = {
    FORMAT: _by_format,
    FUNCTION: _by_function,
    FEED: _by_feed,
    DELTA: _by_delta,
    DELTA_FUNCTION: _by_delta_function,
}


def measure(report: Report, *, quick: bool = False, repetitions: int = 5, session: Any = None) -> None:
    """Measure the streams; the figures are medians in seconds. Each line has the number of micro-batches."""
    spark = session or spark_session(memory="4g")
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(feed_batch.QUICK if quick else feed_batch.CASES):
            path = str(Path(folder) / str(number))
            feed_batch.make(path, case)
            found = available_now(spark, path, 1 if quick else repetitions)
            for engine in (FORMAT, FUNCTION, FEED):
                own, peer = found[engine], found[_PEERS[engine]]
                batches = {name: max(runs.micro_batches) for name, runs in found.items()}
                report.figure(
                    f"stream, {engine}, addBatch: {case.name}",
                    "s",
                    _medians(own.add_batch_s, peer.add_batch_s),
                    _AS_FAST,
                    peer=DELTA_SPARK,
                    micro_batches=batches,
                    without_a_batch_function=statistics.median(found[DELTA].add_batch_s),
                )
                report.figure(
                    f"stream, {engine}, whole run: {case.name}",
                    "s",
                    _medians(own.total_s, peer.total_s),
                    _AS_FAST,
                    peer=DELTA_SPARK,
                )


def measure_latency(report: Report, *, quick: bool = False, session: Any = None) -> None:
    """Measure the time from a commit to the batch function, with Spark's usual checkpoint and with a plainer one."""
    spark = session or spark_session(memory="4g")
    try:
        _measure_latency(report, spark, "latency", quick=quick)
        spark.conf.set(_CHECKPOINTS, _WITHOUT_PROCESSES)
        _measure_latency(report, spark, "latency, checkpoint without processes", quick=quick)
    finally:
        spark.conf.unset(_CHECKPOINTS)


def _measure_latency(report: Report, spark: SparkSession, case: str, *, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, stream in ((FORMAT, _rows_by_format), (FEED, _rows_by_feed)):
            table = Table.create(str(Path(folder) / name), pa.schema([("n", pa.int64())]))
            waited = latency(stream(spark, table.path), table, Path(folder) / f"{name}-cp", 3 if quick else 60)
            report.figure(f"{case}, {name}, median", "s", {TIDELOG: statistics.median(waited)}, _MEDIAN_S)
            report.figure(f"{case}, {name}, p99", "s", {TIDELOG: percentile(waited, 0.99)}, _P99_S)


def _medians(own: list[float], peer: list[float]) -> dict[str, float]:
    return {TIDELOG: statistics.median(own), DELTA_SPARK: statistics.median(peer)}


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


def _rows_by_format(spark: SparkSession, path: str) -> _Stream:
    register(spark)
    return spark.readStream.format("tidelog").load(path).writeStream.foreachBatch


def _rows_by_feed(spark: SparkSession, path: str) -> _Stream:
    return Feed(spark, path).foreachBatch


def latency(stream: _Stream, table: Table, checkpoint: Path, commits: int) -> list[float]:
    """Seconds from each commit to the batch function that gets its row: one commit a second, triggers without pause.

    They are those of a running stream. The first batch compiles code for a second or more, and rows that were committed
    meanwhile would wait for its end. So the row 0 is not counted, and the others follow once it has arrived.
    """
    arrived: dict[int, float] = {}

    def take(frame: DataFrame, _: int) -> None:
        now = time.perf_counter()
        for row in frame.select("n").collect():
            arrived.setdefault(row["n"], now)

    writer = stream(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    committed: dict[int, float] = {}
    pause = threading.Event()

    def await_rows(count: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while len(arrived) < count and query.isActive and time.monotonic() < deadline:
            pause.wait(0.05)

    try:
        table.insert([{"n": 0}])
        await_rows(1)
        for number in range(1, commits + 1):
            table.insert([{"n": number}])
            committed[number] = time.perf_counter()
            pause.wait(1)
        await_rows(commits + 1)
    finally:
        query.stop()
    return [arrived[number] - committed[number] for number in range(1, commits + 1)]


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
