"""A program that kills itself: every scene's stream, up to a point of a batch that all of them wait at; then SIGKILL.

python -m tests.crash.sink_program BASE BATCH POINT      or, to use up what is there:      ... BASE -1 ""

The functions of the product at the point are wrapped here. The signal goes to the whole process group, so to the JVM
as well; Spark's Python workers find their pipes closed and end. A point lies in the last sink of a batch function.
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

from tests.crash.sink_scenes import (
    AFTER_COMMIT,
    AFTER_SINK,
    BEFORE_COMMIT,
    BEFORE_WRITING,
    BETWEEN_FILES,
    SCENES,
    SPARK_SCHEMA,
    Scene,
    folder_of,
)
from tidelog.log.data.writer import DataWriter
from tidelog.log.storage import local
from tidelog.streaming import Sink
from tidelog.streaming.executors import jvm_files, spark_upsert
from tidelog.streaming.sink import batch_rows

PATIENCE_S = 450
_COMMIT = re.compile(r"(?!0{20})\d{20}\.json")


class Gallows:
    """Holds each scene's thread at the point; kills all when the last one has come."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._armed = threading.local()
        self._lock = threading.Lock()
        self.waiting: set[str] = set()

    def arm(self, scene: Scene | None) -> None:
        """From now on this thread stops at the point; None takes it back."""
        self._armed.scene = scene

    def passes(self, point: str) -> None:
        """Called by a thread at a point of its way."""
        scene: Scene | None = getattr(self._armed, "scene", None)
        if scene is not None and point == self._point:
            self.arrive(scene)
            time.sleep(PATIENCE_S)

    def arrive(self, scene: Scene) -> None:
        with self._lock:
            self.waiting.add(scene.name)
            if len(self.waiting) == len(SCENES):
                os.killpg(os.getpgid(0), signal.SIGKILL)

    def guard(self, owner: object, name: str, *, before: str | None = None, after: str | None = None) -> None:
        """Wrap a function of the product that lies at a point."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if before:
                self.passes(before)
            result = original(*arguments, **named)
            if after:
                self.passes(after)
            return result

        setattr(owner, name, wrapped)

    def guard_commit(self) -> None:
        """The link that gives a commit its name; not the first one, which makes the table."""
        link = local._link

        def wrapped(temporary: Path, target: Path) -> None:
            is_commit = bool(_COMMIT.fullmatch(target.name))
            if is_commit:
                self.passes(BEFORE_COMMIT)
            link(temporary, target)
            if is_commit:
                self.passes(AFTER_COMMIT)

        local._link = wrapped


def guarded(point: str) -> Gallows:
    gallows = Gallows(point)
    for rows in (batch_rows.CollectedRows, batch_rows.FrameRows):
        gallows.guard(rows, "stage", before=BEFORE_WRITING)
    gallows.guard(DataWriter, "write_file", after=BETWEEN_FILES)
    gallows.guard(jvm_files, "_taken_up", before=BETWEEN_FILES)
    gallows.guard(spark_upsert, "run", before=BETWEEN_FILES)
    gallows.guard_commit()
    return gallows


def function_of(scene: Scene, base: Path, gallows: Gallows, doomed: int) -> Callable[[DataFrame, int], None]:
    sinks = [Sink(str(folder_of(base, "tables", part.table)), **part.arguments()) for part in scene.parts]

    def function(batch: DataFrame, number: int) -> None:
        for part, sink in zip(scene.parts, sinks, strict=True):
            is_last = part is scene.parts[-1]
            rows = batch.where(part.where(number))
            if scene.halts_tasks:
                rows = _of_two_tasks(rows)
            gallows.arm(scene if is_last and number == doomed else None)
            if is_last and number == doomed and scene.halts_tasks and gallows._point == BETWEEN_FILES:
                gallows.arm(None)
                rows = _held_up(rows, folder_of(base, "tables", part.table) / "data", gallows, scene)
            sink(rows, number)
        gallows.passes(AFTER_SINK)

    return function


def _of_two_tasks(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "id")


def _held_up(rows: DataFrame, folder: Path, gallows: Gallows, scene: Scene) -> DataFrame:
    """The rows of two tasks, the second of which waits; the scene has come to its point when the first one's is there,
    and the second one's file is begun.
    """
    there = set(folder.rglob("*.parquet"))

    def watch() -> None:
        while True:
            new = set(folder.rglob("*.parquet")) - there
            done = [file for file in new if "_temporary" not in file.parts]
            if done and len(done) < len(new):
                gallows.arrive(scene)
                return
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    return rows.mapInArrow(_wait_in_the_second, rows.schema)


def _wait_in_the_second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context
    for rows in batches:
        if context.partitionId() == 1:
            # So many that Spark's side gets some of them, past all buffers, and begins its file.
            yield from [rows] * 2000
            time.sleep(PATIENCE_S)
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
        # A short life: compiling well would cost more than it gives.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(base: str, doomed: str, point: str) -> None:
    spark = session()
    gallows = guarded(point)
    queries = [started(spark, scene, Path(base), gallows, int(doomed)) for scene in SCENES]
    deadline = time.monotonic() + PATIENCE_S
    while any(query.isActive for query in queries):
        failed = [query.exception() for query in queries if not query.isActive and query.exception()]
        if failed or time.monotonic() > deadline:
            sys.exit(f"at {point!r} of batch {doomed} wait only {sorted(gallows.waiting)}: {failed}")
        time.sleep(0.05)
    failed = [query.exception() for query in queries if query.exception()]
    if failed:
        sys.exit(str(failed))
    print("drained", flush=True)


def started(spark: SparkSession, scene: Scene, base: Path, gallows: Gallows, doomed: int) -> StreamingQuery:
    stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(base / "input"))
    writer = stream.writeStream.foreachBatch(function_of(scene, base, gallows, doomed))
    checkpoint = folder_of(base, "checkpoints", scene.name)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
