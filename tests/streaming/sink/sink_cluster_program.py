"""Write a stream to a table in its own Spark, in which tasks fail, executors are killed, or tasks are slow.

python sink_cluster_program.py MASTER FOLDER WRITER FAULT...

MASTER can be `two-hosts`: Spark runs the second copy of a task only on another host, and a local-cluster is one host.
For each fault, a stream reads FOLDER/input and writes to FOLDER/<fault>/table. A fault happens once, and then leaves a
file in FOLDER/<fault>/marks.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.cluster_session import cluster_session
from tidelog.log import Table
from tidelog.streaming import Sink
from tidelog.streaming.executors import jvm_files

PATIENCE_S = 400
EXECUTORS = 2


@dataclass(frozen=True)
class Faults:
    """Passes the rows of a task on, and lets the fault happen after the last row."""

    folder: Path
    kind: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        yield from batches
        # After a shuffle, so few rows are one task.
        chosen = task == (0 if self.kind == "fails-partitioned" else 1)
        if self.kind == "lost":
            self._lose_the_executor_of_a_finished_task(task)
        elif chosen and self._is_first("provoked"):
            self._provoke()
        elif chosen and attempt > 0:
            self._mark("again")

    def _provoke(self) -> None:
        if self.kind.startswith("fails"):
            raise OSError("simulated: the disk is full")
        if self.kind == "killed":
            os.kill(executor_process(), signal.SIGKILL)
            time.sleep(PATIENCE_S)
        if self.kind == "straggles":
            self._wait_for("again")
            # Both copies of the task are about to end; Spark decides which one counts.
            time.sleep(0.1)

    def _lose_the_executor_of_a_finished_task(self, task: int) -> None:
        """Task 0 records its executor; task 1 waits until the file of task 0 is complete and kills that executor."""
        if task == 0 and self._is_first("victim"):
            self._mark("process", str(executor_process()))
        if task == 1 and self._is_first("killer"):
            self._wait_for("process")
            self._wait_for("../table/data/*/part-00000*")
            time.sleep(1)
            victim = int((self.folder / "marks" / "process").read_text())
            assert victim != executor_process()
            os.kill(victim, signal.SIGKILL)
            self._mark("provoked")

    def _is_first(self, name: str) -> bool:
        try:
            (self.folder / "marks" / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _mark(self, name: str, text: str = "") -> None:
        written = self.folder / "marks" / f".{name}"
        written.write_text(text)
        written.rename(self.folder / "marks" / name)

    def _wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        folder = self.folder / "marks"
        if pattern.startswith("../"):
            folder, pattern = self.folder, pattern[3:]
        while not list(folder.glob(pattern)):
            assert time.monotonic() < deadline, f"timed out waiting for {pattern}"
            time.sleep(0.02)


def executor_process() -> int:
    """The process id of the executor's JVM: the parent of the daemon that forked this Python worker."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    process = int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
    assert "java" in Path(f"/proc/{process}/cmdline").read_text()
    return process


def session(master: str, folder: Path, *, speculation: bool) -> SparkSession:
    settings = {
        "spark.sql.shuffle.partitions": "2",
        # One task for each file, and several Arrow batches for each task.
        "spark.sql.files.maxPartitionBytes": str(4 * 2**20),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
        # Otherwise a task sorts its rows by partition before it opens the first file.
        "spark.sql.maxConcurrentOutputFileWriters": "10",
        "spark.speculation": str(speculation).lower(),
        "spark.speculation.interval": "50ms",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.speculation.quantile": "0.4",
        "spark.speculation.multiplier": "1.1",
    }
    return cluster_session(master, str(folder / "local"), **settings)


def wait_for_executors(spark: SparkSession) -> None:
    java_context: Any = spark.sparkContext._jsc
    deadline = time.monotonic() + PATIENCE_S
    # The driver counts as an executor.
    while len(java_context.sc().statusTracker().getExecutorInfos()) <= EXECUTORS:
        assert time.monotonic() < deadline, "the executors did not start"
        time.sleep(0.1)


@contextmanager
def in_the_writers_stage(faults: Faults) -> Iterator[None]:
    """Let the faults happen after the shuffle by partition, which the stream's own functions cannot reach."""
    save = jvm_files._save

    def saved(frame: DataFrame, *arguments: Any) -> None:
        save(frame.mapInArrow(faults, frame.schema), *arguments)

    with mock.patch.object(jvm_files, "_save", saved):
        yield


def run(spark: SparkSession, folder: Path, writer: str, fault: str) -> None:
    (folder / fault / "marks").mkdir(parents=True)
    faults = Faults(folder / fault, fault)
    stream = spark.readStream.schema("n long, part string").option("maxFilesPerTrigger", 2)
    rows = stream.parquet(str(folder / "input"))
    is_partitioned = fault == "fails-partitioned"
    if not is_partitioned:
        rows = rows.mapInArrow(faults, rows.schema)
    # Without a table the sink first checks whether the batch has rows, and the fault would happen in that job.
    schema = pa.schema([("n", pa.int64()), ("part", pa.string())])
    table = Table.create(str(folder / fault / "table"), schema, partition_by=["part"] if is_partitioned else [])
    wait_for_executors(spark)
    writing = rows.writeStream.foreachBatch(Sink(table.path, writer=writer))
    writing = writing.option("checkpointLocation", str(folder / fault / "cp")).trigger(availableNow=True)
    with in_the_writers_stage(faults) if is_partitioned else nullcontext():
        assert writing.start().awaitTermination(PATIENCE_S), "the query did not end"


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """Start a standalone cluster of two workers on two loopback addresses; yields the master's URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    deploy = "org.apache.spark.deploy"
    worker = [f"{deploy}.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        start(stack, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for_port(port)
        for host in ("127.0.0.2", "127.0.0.3"):
            start(stack, *worker, "--host", host, "--work-dir", str(folder / host), url)
        yield url


def start(stack: ExitStack, *command: str) -> None:
    """Start a Spark process that ends with the stack."""
    program = f"{os.environ['SPARK_HOME']}/bin/spark-class"
    process = subprocess.Popen([program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait, PATIENCE_S)
    stack.callback(process.terminate)


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "the master did not start"
            time.sleep(0.1)
        else:
            return


def main(master: str, folder: str, writer: str, *faults: str) -> None:
    with two_hosts(Path(folder)) if master == "two-hosts" else nullcontext(master) as url:
        spark = session(url, Path(folder), speculation="straggles" in faults)
        for fault in faults:
            began = time.monotonic()
            run(spark, Path(folder), writer, fault)
            print(fault, round(time.monotonic() - began, 1), flush=True)
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
