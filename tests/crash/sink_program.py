"""Run the streams of a group of scenarios up to one point of a batch, wait until all have arrived, then SIGKILL itself.

python -m tests.crash.sink_program GROUP BASE BATCH POINT      or, to run to the end of the input:      ... BASE -1 ""

The functions of tidelog at that point are wrapped here. The signal goes to the whole process group, so the JVM is
killed as well; Spark's Python workers end when their pipes close. A point is always in the last call of a batch
function.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.crash.sink_scenarios import (
    AFTER_COMMIT,
    AFTER_SINK,
    BEFORE_COMMIT,
    BEFORE_WRITING,
    BETWEEN_FILES,
    GROUPS,
    SPARK_SCHEMA,
    Scenario,
    folder_of,
)
from tidelog.log.data.writer import DataWriter
from tidelog.log.storage.disk import Disk
from tidelog.streaming import Sink
from tidelog.streaming.executors import jvm_files, spark_upsert
from tidelog.streaming.sink import batch_rows

TIMEOUT_S = 450
_COMMIT = re.compile(r"(?!0{20})\d{20}\.json")


class CrashBarrier:
    """Holds each scenario's thread at the point, and kills the process group when the last one has arrived."""

    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._count = count
        self._armed = threading.local()
        self._lock = threading.Lock()
        self.arrived: set[str] = set()

    def arm(self, scenario: Scenario | None) -> None:
        """From now on this thread stops at the point; None disarms it."""
        self._armed.scenario = scenario

    def pass_by(self, point: str) -> None:
        """A thread is at this point: hold it if it is the one."""
        scenario: Scenario | None = getattr(self._armed, "scenario", None)
        if scenario is not None and point == self._point:
            self.arrive(scenario)
            time.sleep(TIMEOUT_S)

    def arrive(self, scenario: Scenario) -> None:
        with self._lock:
            self.arrived.add(scenario.name)
            if len(self.arrived) == self._count:
                os.killpg(os.getpgid(0), signal.SIGKILL)

    def wrap(self, owner: object, name: str, *, before: str | None = None, after: str | None = None) -> None:
        """Wrap a function of tidelog, before or after which there is a point."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if before:
                self.pass_by(before)
            result = original(*arguments, **named)
            if after:
                self.pass_by(after)
            return result

        setattr(owner, name, wrapped)

    def wrap_commit(self) -> None:
        """Wrap the link that gives a commit file its name, except for the first one, which creates the table."""
        link = Disk.link

        def wrapped(disk: Disk, source: Path, target: Path) -> None:
            is_commit = bool(_COMMIT.fullmatch(target.name))
            if is_commit:
                self.pass_by(BEFORE_COMMIT)
            link(disk, source, target)
            if is_commit:
                self.pass_by(AFTER_COMMIT)

        setattr(Disk, "link", wrapped)  # noqa: B010 - mypy takes the assignment for another signature


def installed_barrier(point: str, count: int) -> CrashBarrier:
    barrier = CrashBarrier(point, count)
    for rows in (batch_rows.CollectedRows, batch_rows.FrameRows):
        barrier.wrap(rows, "stage", before=BEFORE_WRITING)
    barrier.wrap(DataWriter, "write_file", after=BETWEEN_FILES)
    barrier.wrap(jvm_files, "_taken_up", before=BETWEEN_FILES)
    barrier.wrap(spark_upsert, "run", before=BETWEEN_FILES)
    barrier.wrap_commit()
    return barrier


def batch_function(
    scenario: Scenario, base: Path, barrier: CrashBarrier, killed_batch: int
) -> Callable[[DataFrame, int], None]:
    sinks = [Sink(str(folder_of(base, "tables", call.table)), **call.arguments()) for call in scenario.calls]

    def function(batch: DataFrame, number: int) -> None:
        for call, sink in zip(scenario.calls, sinks, strict=True):
            is_last = call is scenario.calls[-1]
            rows = batch.where(call.where(number))
            if scenario.blocks_task:
                rows = _two_tasks(rows)
            barrier.arm(scenario if is_last and number == killed_batch else None)
            if is_last and number == killed_batch and scenario.blocks_task and barrier._point == BETWEEN_FILES:
                barrier.arm(None)
                rows = _with_blocked_task(rows, folder_of(base, "tables", call.table) / "data", barrier, scenario)
            sink(rows, number)
        barrier.pass_by(AFTER_SINK)

    return function


def _two_tasks(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "id")


def _with_blocked_task(rows: DataFrame, folder: Path, barrier: CrashBarrier, scenario: Scenario) -> DataFrame:
    """The rows of two tasks, of which the second blocks.

    The scenario has arrived when the first task's file is complete and the second task's file is begun.
    """
    before = set(folder.rglob("*.parquet"))

    def watch() -> None:
        while True:
            new = set(folder.rglob("*.parquet")) - before
            done = [file for file in new if "_temporary" not in file.parts]
            if done and len(done) < len(new):
                barrier.arrive(scenario)
                return
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    return rows.mapInArrow(_block_second_task, rows.schema)


def _block_second_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context
    for rows in batches:
        if context.partitionId() == 1:
            # Enough rows to fill all buffers, so that Spark gets some and begins the file.
            yield from [rows] * 2000
            time.sleep(TIMEOUT_S)
        yield rows


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        # The process is short-lived, so compiling costs more than it saves.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(group: str, base: str, killed_batch: str, point: str) -> None:
    scenarios = GROUPS[group]
    spark = session()
    barrier = installed_barrier(point, len(scenarios))
    queries = [start(spark, scenario, Path(base), barrier, int(killed_batch)) for scenario in scenarios]
    deadline = time.monotonic() + TIMEOUT_S
    while any(query.isActive for query in queries):
        failed = [query.exception() for query in queries if not query.isActive and query.exception()]
        if failed or time.monotonic() > deadline:
            sys.exit(f"at {point!r} of batch {killed_batch} only {sorted(barrier.arrived)} arrived: {failed}")
        time.sleep(0.05)
    failed = [query.exception() for query in queries if query.exception()]
    if failed:
        sys.exit(str(failed))
    print("drained", flush=True)


def start(
    spark: SparkSession, scenario: Scenario, base: Path, barrier: CrashBarrier, killed_batch: int
) -> StreamingQuery:
    stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(base / "input"))
    writer = stream.writeStream.foreachBatch(batch_function(scenario, base, barrier, killed_batch))
    checkpoint = folder_of(base, "checkpoints", scenario.name)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
