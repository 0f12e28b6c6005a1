"""Streams into one kind of sink, in a separate process and Spark: `python -m benchmarks.sink_streams ARGUMENTS`.

It warms up and prints `ready`. Then it answers each line, a command as JSON, with one line of JSON.

The source is Spark's `rate-micro-batch` with two partitions, the same for each engine: the tasks make a fixed number of
numbers per batch, and compute a long, a string, a double and a timestamp from each. The no-op sink shows the cost of
this. A stream runs for a number of batches as fast as it can. On its next turn it continues from its checkpoint, and
replays the batch that the stop interrupted.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.peers import java_pid, spark_session

NOOP, PARQUET, PARQUET_FOREACHBATCH, DELTA_NATIVE, DELTA_FOREACHBATCH = PEERS = (
    *("noop", "parquet", "parquet_foreachbatch", "delta_native", "delta_foreachbatch"),
)
ANSWER = "answer: "
SMALL_ROWS = 1_000
# The processes of all engines run at once. This is enough for a million rows per batch.
MEMORY = "2g"
SETTINGS = {
    # Spark and delta-spark would write int96: twelve bytes and no statistics. tidelog never does.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Figures are taken after a run of up to this number of batches.
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    # Spark keeps little for its web page, so that this memory is full early in a long run.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
}
_COLUMNS = (
    "value AS id",
    "concat('customer ', value * 7919 % 100000) AS name",
    "value % 10000 * 0.25D AS price",
    "timestamp_millis(1700000000000 + value) AS ts",
)
_POLL_MS = 100

Totals: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class Spans:
    """The times of batches: adding the batch, the whole trigger, and phases by name if the engine reports them.

    `cpu_ms` is the CPU time of the Python and Java processes over all `batches` of a run, including those left out.
    """

    add_batch_ms: list[float] = field(default_factory=list)
    trigger_ms: list[float] = field(default_factory=list)
    phases_ms: dict[str, list[float]] = field(default_factory=dict)
    cpu_ms: float = 0.0
    batches: int = 0

    def add(self, other: Spans) -> None:
        """Add the times of one more run."""
        self.add_batch_ms += other.add_batch_ms
        self.trigger_ms += other.trigger_ms
        for name, spans in other.phases_ms.items():
            self.phases_ms.setdefault(name, []).extend(spans)
        self.cpu_ms += other.cpu_ms
        self.batches += other.batches


@dataclass(frozen=True, slots=True)
class Rows:
    """The number, sum and maximum of a table's rows, as found and as expected from the committed batches."""

    found: Totals
    expected: Totals

    @property
    def differences(self) -> int:
        """The number of rows lost or doubled, or 1 if only the number of rows is right."""
        return abs(self.found[0] - self.expected[0]) or int(self.found != self.expected)


class TidelogSink:
    """A `Sink` that records the times of its phases."""

    def __init__(self, path: str, writer: str) -> None:
        from tidelog.streaming import Sink

        self._sink = Sink(path, writer=writer)
        self.phases_ms: dict[str, array[float]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._sink(batch, number)
        assert self._sink.last
        for name, seconds in self._sink.last.seconds.items():
            self.phases_ms.setdefault(name, array("d")).append(seconds * 1000)


class Stream:
    """One stream of one engine into one table. The table and the checkpoint are in `folder`."""

    def __init__(self, session: SparkSession, engine: str, folder: Path, rows: int, writer: str) -> None:
        self._session = session
        self._engine = engine
        self._path = str(folder / "table")
        self._checkpoint = folder / "checkpoint"
        self._rows = rows
        self._sink = TidelogSink(self._path, writer) if engine == "tidelog" else None

    def run(self, batches: int, skip: int) -> Spans:
        """Run `skip` batches, which are left out, and `batches` more."""
        if self._sink:
            self._sink.phases_ms = {}
        cpu_ms = self._cpu_ms()
        query = self._writer.trigger(processingTime="0 seconds").start()
        try:
            # Through Java, since PySpark would make a Python object of each progress.
            while not query._jsq.awaitTermination(_POLL_MS) and len(query._jsq.recentProgress()) < skip + batches:
                pass
            spans = _spans(query._jsq, batches, skip)
        finally:
            query.stop()
        phases = self._sink.phases_ms if self._sink else {}
        spans.phases_ms = {name: list(found[skip : skip + batches]) for name, found in phases.items()}
        spans.cpu_ms = self._cpu_ms() - cpu_ms
        return spans

    def finish(self) -> Rows | None:
        """Complete the interrupted batch and check the rows. None for the no-op sink, which has no rows."""
        query = self._writer.trigger(availableNow=True).start()
        query.awaitTermination()
        if self._engine == NOOP:
            return None
        committed = 1 + max(int(file.name) for file in (self._checkpoint / "commits").iterdir() if file.name.isdigit())
        count = committed * self._rows
        return Rows(self._totals(), (count, count * (count - 1) // 2, count - 1))

    @cached_property
    def _writer(self) -> DataStreamWriter:
        source = self._session.readStream.format("rate-micro-batch")
        frame = source.option("rowsPerBatch", self._rows).option("numPartitions", 2).load().selectExpr(*_COLUMNS)
        writer = frame.writeStream.option("checkpointLocation", str(self._checkpoint))
        match self._engine:
            case "noop":
                return writer.foreachBatch(_write_nowhere)
            case "parquet":
                return writer.format("parquet").option("path", self._path)
            case "parquet_foreachbatch":
                return writer.foreachBatch(partial(_write_parquet, self._path))
            case "delta_native":
                return writer.format("delta").option("path", self._path)
            case "delta_foreachbatch":
                return writer.foreachBatch(partial(_write_delta, self._path))
            case _:
                assert self._sink, self._engine
                return writer.foreachBatch(self._sink)

    def _totals(self) -> Totals:
        if self._engine == "tidelog":
            import pyarrow.compute as pc

            from tidelog.log import Table

            ids = Table.open(self._path).scan(columns=["id"]).to_arrow()["id"]
            return len(ids), pc.sum(ids).as_py(), pc.max(ids).as_py()
        frame = self._session.read.format("delta" if self._engine.startswith("delta") else "parquet").load(self._path)
        row = frame.selectExpr("count(*)", "sum(id)", "max(id)").first()
        assert row
        return row[0], row[1], row[2]

    def _cpu_ms(self) -> float:
        fields = Path(f"/proc/{java_pid(self._session)}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK") + time.process_time() * 1000


class Engine:
    """The commands, by name."""

    def __init__(self, engine: str, folder: Path, writer: str, settings: Mapping[str, str]) -> None:
        self._engine = engine
        self._folder = folder
        self._writer = writer
        self._session = spark_session(
            delta=engine.startswith("delta"), memory=MEMORY, settings={**SETTINGS, **settings}
        )
        self._streams: dict[str, Stream] = {}

    def run(self, stream: str, rows: int, batches: int, skip: int) -> dict[str, Any]:
        """Run a stream, and create it if the name is new."""
        if stream not in self._streams:
            folder = self._folder / stream
            self._streams[stream] = Stream(self._session, self._engine, folder, rows, self._writer)
        return asdict(self._streams[stream].run(batches, skip))

    def finish(self, stream: str) -> dict[str, Any] | None:
        """Complete a stream and check its rows."""
        rows = self._streams.pop(stream).finish()
        return None if rows is None else asdict(rows)

    def memory(self) -> dict[str, float]:
        """The Python process's resident memory and the Java heap's live objects, in MB, while no stream runs."""
        gc.collect()
        jvm: Any = self._session._jvm
        # Objects freed by one collection can release others.
        for _ in range(3):
            jvm.java.lang.System.gc()
            time.sleep(0.3)
        runtime = jvm.java.lang.Runtime.getRuntime()
        return {"python_mb": _resident_mb(), "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / 1e6}


def _write_nowhere(batch: DataFrame, number: int) -> None:
    del number
    batch.write.format("noop").mode("append").save()


def _write_parquet(path: str, batch: DataFrame, number: int) -> None:
    """Neither exactly once nor durable: what Spark's writer takes for the rows alone."""
    del number
    batch.write.mode("append").parquet(path)


def _write_delta(path: str, batch: DataFrame, number: int) -> None:
    writer = batch.write.format("delta").mode("append")
    writer.option("txnAppId", "bench-sink").option("txnVersion", number).save(path)


def _spans(query: Any, batches: int, skip: int) -> Spans:
    """The times that Spark reports for the batches after the first `skip`."""
    found = list(query.recentProgress())
    chosen: Sequence[Mapping[str, int]] = [progress.durationMs() for progress in found[skip : skip + batches]]
    assert len(chosen) == batches, f"{len(found)} batches instead of {skip} + {batches}"
    return Spans(
        add_batch_ms=[durations["addBatch"] for durations in chosen],
        trigger_ms=[durations["triggerExecution"] for durations in chosen],
        batches=len(found),
    )


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(arguments: dict[str, Any]) -> None:
    warm_up_batches = arguments.pop("warm_up_batches")
    engine = Engine(folder=Path(arguments.pop("folder")), **arguments)
    engine.run("warm-up", SMALL_ROWS, warm_up_batches, 0)
    print(ANSWER + json.dumps("ready"), flush=True)
    commands: dict[str, Callable[..., object]] = {
        "run": engine.run,
        "finish": engine.finish,
        "memory": engine.memory,
    }
    for line in sys.stdin:
        name, given = json.loads(line)
        print(ANSWER + json.dumps(commands[name](**given)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
