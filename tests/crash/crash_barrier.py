"""What kills a process at one point of a batch: a barrier for all scenarios, and the function that has the points.

On Spark Connect the batch function runs in another process than the program, one for each query, so a barrier is a
folder with a file for each scenario that has arrived, and all that a function needs is picklable.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tests.crash.sink_scenarios import (
    AFTER_COMMIT,
    AFTER_SINK,
    BEFORE_COMMIT,
    BEFORE_WRITING,
    BETWEEN_FILES,
    Scenario,
    folder_of,
)
from tidelog.log.data.writer import DataWriter
from tidelog.log.storage.local import Disk
from tidelog.streaming import Sink
from tidelog.streaming.executors import frame_files, jvm_files, spark_upsert
from tidelog.streaming.executors.session import is_connect
from tidelog.streaming.sink import batch_rows

TIMEOUT_S = 450
_COMMIT = re.compile(r"(?!0{20})\d{20}\.json")


class CrashBarrier:
    """Holds each scenario at the point until all have arrived, and kills them then.

    `folder` is where they arrive. `whole_group`: kill the process group, else the processes that hold a scenario.
    """

    def __init__(self, point: str, folder: Path, count: int, *, whole_group: bool) -> None:
        self.point = point
        self._folder = folder
        self._count = count
        self._whole_group = whole_group
        self._armed = threading.local()

    def arm(self, scenario: Scenario | None) -> None:
        """From now on this thread stops at the point; None disarms it."""
        self._armed.scenario = scenario

    def pass_by(self, point: str) -> None:
        """A thread is at this point: hold it if it is the one."""
        scenario: Scenario | None = getattr(self._armed, "scenario", None)
        if scenario is not None and point == self.point:
            self.arrive(scenario)

    def arrive(self, scenario: Scenario) -> None:
        (self._folder / scenario.name).touch()
        deadline = time.monotonic() + TIMEOUT_S
        while len(arrived(self._folder)) < self._count:
            assert time.monotonic() < deadline, f"only {arrived(self._folder)} arrived"
            time.sleep(0.02)
        if self._whole_group:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

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


def arrived(folder: Path) -> list[str]:
    """The scenarios that have arrived."""
    return sorted(file.name for file in folder.iterdir())


@functools.cache
def installed_barrier(point: str, folder: Path, count: int, *, whole_group: bool) -> CrashBarrier:
    """The barrier of this process, with the points in tidelog's functions."""
    barrier = CrashBarrier(point, folder, count, whole_group=whole_group)
    for rows in (batch_rows.CollectedRows, batch_rows.FrameRows):
        barrier.wrap(rows, "stage", before=BEFORE_WRITING)
    barrier.wrap(DataWriter, "write_file", after=BETWEEN_FILES)
    barrier.wrap(jvm_files, "_taken_up", before=BETWEEN_FILES)
    barrier.wrap(frame_files, "require_counted", before=BETWEEN_FILES)
    barrier.wrap(spark_upsert, "run", before=BETWEEN_FILES)
    barrier.wrap_commit()
    return barrier


class BatchFunction:
    """The batch function of a scenario. A point is always in the last call of a sink."""

    def __init__(
        self,
        scenario: Scenario,
        base: Path,
        killed_batch: int,
        barrier: Callable[[], CrashBarrier],
        checkpoint: Path | None,
    ) -> None:
        self._scenario = scenario
        self._base = base
        self._killed_batch = killed_batch
        self._barrier = barrier
        named = None if checkpoint is None else str(checkpoint)
        self._sinks = [
            Sink(str(self._folder(call.table)), checkpoint=named, **call.arguments()) for call in scenario.calls
        ]

    def __call__(self, batch: DataFrame, number: int) -> None:
        scenario, barrier = self._scenario, self._barrier()
        for call, sink in zip(scenario.calls, self._sinks, strict=True):
            is_last = call is scenario.calls[-1]
            rows = batch.where(call.where(number))
            if scenario.blocks_task:
                rows = _two_tasks(rows)
            barrier.arm(scenario if is_last and number == self._killed_batch else None)
            if is_last and number == self._killed_batch and scenario.blocks_task and barrier.point == BETWEEN_FILES:
                barrier.arm(None)
                rows = _with_blocked_task(rows, self._folder(call.table), barrier, scenario)
            sink(rows, number)
        barrier.pass_by(AFTER_SINK)

    def _folder(self, table: str) -> Path:
        return folder_of(self._base, "tables", table)


def _two_tasks(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "id")


def _with_blocked_task(rows: DataFrame, folder: Path, barrier: CrashBarrier, scenario: Scenario) -> DataFrame:
    """The rows of two tasks, of which the second blocks.

    The scenario has arrived when the first task's file is complete and the second task's file is begun. Python in a
    task, as on Spark Connect, begins a file when it has all rows.
    """
    before = set(folder.rglob("*.parquet"))
    begins_late = is_connect(rows.sparkSession)

    def watch() -> None:
        while True:
            new = set(folder.rglob("*.parquet")) - before
            done = [file for file in new if "_temporary" not in file.parts]
            if done and (begins_late or len(done) < len(new)):
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
