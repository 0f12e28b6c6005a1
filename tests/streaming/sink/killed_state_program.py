"""Queries with state into tidelog tables, in a process that dies between the sinks' commits and Spark's.

    python -m tests.streaming.sink.killed_state_program FOLDER PROVIDER DIE_AFTER QUERY...

Each query reads FOLDER/input. After DIE_AFTER micro-batches, once all queries have committed that many, the JVM and
this process are killed; 0 stands for never. Then the queries run to their end, and beside each one runs another without
tidelog that never dies: it says in FOLDER/calm what the right rows are.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, Row, StructField, StructType

from examples.shared.small_spark import small_spark
from tests.streaming.support import BatchFunction
from tidelog.streaming import Sink
from tidelog.streaming.datasource import stream_sinks

_STORES = "org.apache.spark.sql.execution.streaming.state"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = {
    _PROVIDER: f"{_STORES}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
PROVIDERS: dict[str, dict[str, str]] = {
    "hdfs": {_PROVIDER: f"{_STORES}.HDFSBackedStateStoreProvider"},
    "rocksdb": _ROCKS,
    "rocksdb-2": {**_ROCKS, "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"},
}
_COUNTS = "n long, count long"


def timed(rows: DataFrame) -> DataFrame:
    """The rows with a time that goes on by a second for each number."""
    return rows.withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "15 seconds")


def windows(rows: DataFrame) -> DataFrame:
    counts = timed(rows).groupBy(F.window("at", "5 seconds")).count()
    return counts.select(F.unix_seconds("window.start").alias("n"), "count")


def sessions(rows: DataFrame) -> DataFrame:
    grouped = timed(rows.where("n % 10 < 7")).groupBy(F.session_window("at", "2 seconds"), F.expr("n % 10 < 5"))
    counts = grouped.count()
    return counts.select(F.unix_seconds("session_window.start").alias("n"), "count")


def totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy((F.col("n") % 3).alias("n")).count()


def distinct(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["n"])


def distinct_within(rows: DataFrame) -> DataFrame:
    return timed(rows).dropDuplicatesWithinWatermark(["n"]).select("n")


def joined(rows: DataFrame) -> DataFrame:
    """Every third number has none that it is joined with."""
    left, right = timed(rows), timed(rows.where("n % 3 > 0")).toDF("m", "then")
    return left.join(right, F.expr("n = m AND then BETWEEN at AND at + INTERVAL 1 SECOND"), "left").select("n", "m")


def _sums(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    before = state.getOption
    total = (before[0] if before else 0) + sum(int(frame["n"].sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"n": [key[0]], "count": [total]})


def pandas_state(rows: DataFrame) -> DataFrame:
    grouped = rows.withColumn("k", F.col("n") % 3).groupBy("k")
    return grouped.applyInPandasWithState(_sums, _COUNTS, "total long", "update", "NoTimeout")


class _Totals(StatefulProcessor):
    """Sums up the numbers of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", StructType([StructField("total", LongType())]))

    def _added(self, more: int) -> int:
        held = self._total.get()
        total = (held[0] if held else 0) + more
        self._total.update((total,))
        return total

    def close(self) -> None:
        pass


class _OfFrames(_Totals):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's
        yield pd.DataFrame({"n": [key[0]], "count": [self._added(sum(int(frame["n"].sum()) for frame in rows))]})


class _OfRows(_Totals):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's
        yield Row(n=key[0], count=self._added(sum(row["n"] for row in rows)))


def transform(rows: DataFrame) -> DataFrame:
    grouped = rows.withColumn("k", F.col("n") % 3).groupBy("k")
    return grouped.transformWithStateInPandas(_OfFrames(), _COUNTS, "Update", "None")


def transform_rows(rows: DataFrame) -> DataFrame:
    grouped: Any = rows.withColumn("k", F.col("n") % 3).groupBy("k")
    changed: DataFrame = grouped.transformWithState(_OfRows(), _COUNTS, "Update", "None")
    return changed


def append(place: str) -> Sink:
    return Sink(f"{place}/table")


def upsert(place: str) -> Sink:
    return Sink(f"{place}/table", mode="upsert", keys=["n"])


def overwrite(place: str) -> Sink:
    return Sink(f"{place}/table", mode="overwrite-partitions", partition_by=["n"])


def two(place: str) -> BatchFunction:
    """Two sinks in a row. The first one's rows are not kept for the other one."""
    first, second = Sink(f"{place}/log", name="log"), upsert(place)

    def both(batch: DataFrame, number: int) -> None:
        first(batch, number)
        second(batch, number)

    return both


def named(place: str) -> dict[str, str]:
    """As `upsert`, without a batch function."""
    return {"path": f"{place}/table", "mode": "upsert", "keys": "n"}


# A batch function, or the options of `writeStream.format("tidelog")`.
Target = BatchFunction | dict[str, str]
# The query, Spark's output mode, and what takes its batches.
QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str, Callable[[str], Target]]] = {
    "windows": (windows, "append", append),
    "windows-update": (windows, "update", upsert),
    "sessions": (sessions, "append", append),
    "distinct": (distinct, "append", append),
    "within": (distinct_within, "append", append),
    "joined": (joined, "append", append),
    "pandas": (pandas_state, "update", upsert),
    "totals": (totals, "update", upsert),
    "complete": (totals, "complete", overwrite),
    "two": (totals, "update", two),
    "named": (totals, "update", named),
    # Only RocksDB has what these need.
    "transform": (transform, "update", upsert),
    "transform-rows": (transform_rows, "update", upsert),
}


class Dying:
    """A function that passes batches on, until it has committed its last one and the process can die."""

    def __init__(self, function: Callable[..., Any], die_after: int) -> None:
        self._function, self._left = function, die_after
        self._is_done, self._never = Event(), Event()

    def __call__(self, *batch: Any) -> Any:
        answer = self._function(*batch)
        self._left -= 1
        if not self._left:
            self._is_done.set()
            self._never.wait()
        return answer

    def wait(self, query: StreamingQuery) -> None:
        """Wait until the last batch is committed. Raises the error of the query."""
        while not self._is_done.wait(0.05):
            if not query.isActive:
                query.awaitTermination()
                raise AssertionError(f"the query has ended before its last batch: {query.lastProgress}")


_write = stream_sinks.write_batch


def die(java: int) -> None:
    """Kill the JVM, so that Spark's commits do not come, and this process."""
    os.kill(java, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def noted(folder: Path) -> BatchFunction:
    """Write each batch into a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)

    def note(batch: DataFrame, number: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        (folder / str(number)).write_text(json.dumps(rows))

    return note


def main(folder: str, provider: str, die_after: int, names: list[str]) -> None:
    """Run the queries."""
    base = Path(folder)
    spark = small_spark(base / "scratch", "state", PROVIDERS[provider])
    spark.sparkContext.setLogLevel("OFF")
    java: int = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    # One after another: Spark waits 10 s for a process of Python's, and fails the query if that takes longer.
    for name in names:
        query, mode, make = QUERIES[name]
        target, checkpoint = make(f"{base}/{name}"), f"{base}/{name}/cp"
        if die_after:
            dying = Dying(_write if isinstance(target, dict) else target, die_after)
            if isinstance(target, dict):
                setattr(stream_sinks, "write_batch", dying)  # noqa: B010 - mypy takes the assignment for another signature
            else:
                target = dying
            dying.wait(started(spark, base / "input", query, mode, target, checkpoint))
            continue
        started(spark, base / "input", query, mode, target, checkpoint).awaitTermination()
        calm = noted(base / "calm" / name)
        started(spark, base / "input", query, mode, calm, f"{base}/calm-cp/{name}").awaitTermination()
    if die_after:
        die(java)


def started(
    spark: SparkSession,
    source: Path,
    query: Callable[[DataFrame], DataFrame],
    mode: str,
    target: Target,
    checkpoint: str,
) -> StreamingQuery:
    """A query with one file a batch."""
    rows = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = query(rows).writeStream.outputMode(mode)
    writer = writer.format("tidelog").options(**target) if isinstance(target, dict) else writer.foreachBatch(target)
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
