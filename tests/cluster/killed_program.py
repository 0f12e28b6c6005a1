"""Parts for `program.py` in which a task stops when it has written its rows, and waits to be killed.

Its functions are those of the main program, so that Spark sends them to the executors, which do not have this file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.cluster.program import PATIENCE_S, filled, main, numbers, part, put, run
from tidelog import Daemon, Sink, Table
from tidelog.compaction_daemon import DaemonConfig
from tidelog.streaming import SparkExecutor

Value = TypeVar("Value")


@part
def killed_stream(spark: SparkSession, folder: Path) -> None:
    put(folder / "in", 0, 100)
    stream = numbers(spark, folder / "in")
    Table.create(str(folder / "table"), pa.schema([("n", pa.int64()), ("p", pa.string())]))
    held = stream.mapInArrow(partial(held_rows, folder), stream.schema)
    run(held, Sink(str(folder / "table"), writer="spark"), folder)
    put(folder / "in", 100, 100)
    run(stream, Sink(str(folder / "table"), writer="spark"), folder)


@part
def killed_compaction(spark: SparkSession, folder: Path) -> None:
    events = filled(folder, 60)
    with SparkExecutor(spark) as executor:
        daemon = Daemon([events.path], config=DaemonConfig(), executor=HeldExecutor(executor, folder))
        step = daemon.step()
    assert step.tables[0].compaction.files_removed == 6, step


class HeldExecutor(Executor):
    """A SparkExecutor whose first task waits to be killed when its work is done."""

    in_other_processes = True

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor = executor
        self._folder = folder

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        return self._executor.submit(held_call, self._folder, partial(fn, *args, **kwargs))


def held_call(folder: Path, call: Callable[[], Value]) -> Value:
    value = call()
    hold(folder)
    return value


def held_rows(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        hold(folder)


def hold(folder: Path) -> None:
    """The first process that comes here leaves its number, and waits to be killed."""
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return
    (folder / ".held").write_text(str(os.getpid()))
    (folder / ".held").rename(folder / "held")
    time.sleep(2 * PATIENCE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
