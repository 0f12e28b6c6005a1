"""An executor of `concurrent.futures` whose calls run on Spark's executors, for compactions beyond one machine.

Each call is a Spark job with one task. Threads of this process wait for the jobs, so that several run at once. Like the
other tasks of this folder, one can run twice; its value is that of one run.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.log.errors import WorkerLostError
from tidelog.log.system import REAL_SYSTEM
from tidelog.streaming.executors.session import is_connect, require_session, use_this_interpreter
from tidelog.streaming.executors.tasks import run_on_rows

# A waiting thread costs almost nothing, and this is more than one compaction has in work at a time.
_THREADS = 64
# How long a shutdown waits for a cancelled job before it cancels it again, because the job may not have begun yet.
_CANCEL_AGAIN_S = 1.0
# Spark's messages have the lines of several stacks; the reason is among the first.
_SHOWN_CHARACTERS = 1000
# Most of a value is the row map of a clustered group: 16 bytes for each row, or 4 when they are packed.
_CODEC = "zstd"

_Value = TypeVar("_Value")


class SparkExecutor(Executor):
    """Runs each call as a task on Spark's executors; for the `executor` of a compaction.

    The tasks rewrite groups of files and verify them; this process plans and commits. A task holds a few hundred MB
    outside the JVM, so on YARN and Kubernetes give executors enough `spark.executor.memoryOverhead` for all their
    cores. The driver receives the row map of each clustered group, about 4 bytes a row.

    If Spark runs a task again or twice, one run counts; `vacuum` deletes the files of the others. An error of tidelog
    in a task is raised with its own type at once. After any other failure Spark tries the task again
    (`spark.task.maxFailures`), and in the end the call raises a WorkerLostError.

    Args:
        spark: A Spark session, classic or Spark Connect. The Python of its executors needs tidelog, and they must reach
            the table.

    Raises:
        ConfigurationError: `spark` is not a Spark session.
        PrerequisiteError: Java or Spark is missing or too old.

    Example:
        with SparkExecutor(spark) as executor:
            compact("s3://bucket/events", "major", executor=executor)
    """

    # For `compact`, which refuses tables in memory then.
    in_other_processes = True

    def __init__(self, spark: SparkSession) -> None:
        require_session(spark)
        self._spark = spark
        self._context = None if is_connect(spark) else spark.sparkContext
        if self._context is not None:
            use_this_interpreter(self._context)
        self._threads = ThreadPoolExecutor(_THREADS, "tidelog-spark")
        self._futures: set[Future[Any]] = set()
        self._tag = f"tidelog-{REAL_SYSTEM.uuid()}"
        self._cancelled = False

    def submit(self, fn: Callable[..., _Value], /, *args: Any, **kwargs: Any) -> Future[_Value]:
        """Run `fn(*args, **kwargs)` in a task. Function, arguments and value must be picklable."""
        future = self._threads.submit(self._value_of, partial(fn, *args, **kwargs))
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as its base class has it
        """Take no further calls. With `cancel_futures` also cancel calls that wait or run, with their Spark jobs.

        A call that ran then raises a WorkerLostError.
        """
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            self._cancelled = True
            self._cancel(until_done=wait)
        self._threads.shutdown(wait=wait)

    def _cancel(self, *, until_done: bool) -> None:
        running = set(self._futures)
        while running:
            if self._context is None:
                self._spark.interruptTag(self._tag)
            else:
                self._context.cancelJobsWithTag(self._tag)
            if not until_done:
                return
            running = set(wait(running, timeout=_CANCEL_AGAIN_S).not_done)

    def _value_of(self, call: Callable[[], _Value]) -> _Value:
        """Run a job in this thread, one of the pool."""
        if self._cancelled:
            raise WorkerLostError("the SparkExecutor was shut down before the task began")
        try:
            self._tag_jobs()
            [packed] = run_on_rows(self._spark.range(0, 1, 1, 1), partial(_packed_value, call))
        except (PySparkException, Py4JError) as error:
            raise WorkerLostError(
                f"Spark did not finish a task: {_reason(error)}",
                advice="nothing of it was committed; look at the executors' logs, and compact again",
            ) from error
        value: _Value = pickle.loads(pa.decompress(*packed, codec=_CODEC))  # noqa: S301 - our own task made it
        return value

    def _tag_jobs(self) -> None:
        """Let the jobs of this thread be cancelled."""
        if self._context is None:
            self._spark.addTag(self._tag)
        else:
            # SparkSession.interruptTag, which both kinds of session have, leaves such jobs of a classic one running.
            self._context.addJobTag(self._tag)


def _packed_value(call: Callable[[], _Value], batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    """The value of a call, packed, and its size unpacked; for the only task of a job."""
    for _ in batches:
        pass
    content = pickle.dumps(call())
    yield pa.compress(content, codec=_CODEC, asbytes=True), len(content)


def _reason(error: Exception) -> str:
    """What Spark says, without Java's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("at "))[:_SHOWN_CHARACTERS]
