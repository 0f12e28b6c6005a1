"""Run row changes and a compaction in a separate Spark where every task fails once, in the middle of its writing.

python cluster_program.py MASTER TABLE
"""

from __future__ import annotations

import sys

from pyspark import TaskContext

from tests.streaming.cluster_session import cluster_session
from tidelog.log import Table
from tidelog.log.state.loader import load
from tidelog.log.storage import open_store
from tidelog.log.system import System
from tidelog.streaming import SparkTable
from tidelog.streaming.executors import tasks


class FailsOnce(System):
    """Fails the first attempt of each task after it has written a file, which is when it reads the clock."""

    def now_ms(self) -> int:
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            raise OSError("the disk is full")
        return super().now_ms()


def main(master: str, path: str) -> None:
    spark = cluster_session(master, f"{path}.spark")
    tasks.TASK_FILES = 2
    store = open_store(path)
    changed = SparkTable(spark, Table(store, load(store), FailsOnce()))
    changed.update("k < 30", {"v": "k + 1000"})
    new = [(k, "ab"[k % 2], k, None) for k in range(50, 60)]
    frame = spark.createDataFrame(new, "k long, part string, v int, price decimal(10,2)")
    changed.overwrite(frame.coalesce(1), where="part = 'a' OR part = 'b'")
    changed.delete("k IN (51, 58)")
    changed.compact("major", purge=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
