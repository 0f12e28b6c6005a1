"""Helpers of the Spark tests: input folders, streams that run until they are drained, and checks on tables."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.base import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.log.support import live_files, put_foreign, remove
from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.errors import TidelogError
from tidelog.log.state import files
from tidelog.streaming import spark_versions

# The source behind `format("tidelog")`: the class of the JVM, or with TESTS_SOURCE=python that of Spark Connect.
IN_JVM = os.environ.get("TESTS_SOURCE", "jvm") != "python"
JVM_SOURCE = pytest.mark.skipif(not IN_JVM, reason="a class of the JVM can do this")
PYTHON_SOURCE = pytest.mark.skipif(IN_JVM, reason="a Python source is so; TESTS_SOURCE=python runs it")
SINCE_LIMITS = pytest.mark.skipif(
    not (IN_JVM or spark_versions.SOURCES_TAKE_LIMITS), reason="Spark 4.2 and later tell a Python source its limits"
)
BEFORE_LIMITS = pytest.mark.skipif(
    IN_JVM or spark_versions.SOURCES_TAKE_LIMITS, reason="Spark below 4.2 does not tell a Python source its limits"
)

SINCE_CHANGES = pytest.mark.skipif(
    not (IN_JVM and spark_versions.CATALOGS_HAVE_CHANGES), reason="Spark 4.2 and later ask a catalog for changes"
)

BatchFunction = Callable[[DataFrame, int], None]
Error = TypeVar("Error", bound=TidelogError)

NUMBERS = pa.schema([("n", pa.int64())])
# A stream in these tests works for some tenths of a second; a machine under load can take this many seconds.
PATIENCE_S = 120
_STARTS = 11


class Input:
    """A folder of parquet files that a stream reads; each file is one batch unless `stream` says otherwise.

    File k holds the numbers 10k to 10k + 9, so that a lost or doubled batch is easy to see. `count` is the number of
    files, `newest` how many the last `put` added.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.newest = 0
        folder.mkdir(parents=True)

    def put(self, num_files: int = 1) -> Input:
        self.newest = num_files
        for _ in range(num_files):
            first = self.count * 10
            self.put_table(pa.table({"n": pa.array(range(first, first + 10), pa.int64())}))
        return self

    def put_table(self, table: pa.Table) -> Input:
        """Add a file in one step, newer than all before it: Spark reads files in the order of their modification."""
        hidden = self.folder / f".{self.count}"
        pq.write_table(table, hidden)
        stamp = 1_700_000_000 + self.count
        os.utime(hidden, (stamp, stamp))
        hidden.rename(self.folder / f"{self.count:06d}.parquet")
        self.count += 1
        return self

    @property
    def numbers(self) -> list[int]:
        return list(range(self.count * 10))

    def stream(self, spark: SparkSession, *, schema: str = "n long", max_files: int | None = 1) -> DataFrame:
        reader = spark.readStream.schema(schema)
        if max_files is not None:
            reader = reader.option("maxFilesPerTrigger", max_files)
        return reader.parquet(str(self.folder))


def drain(stream: DataFrame, function: BatchFunction, checkpoint: Path) -> None:
    """Run a query over everything that has arrived, as a scheduled job does; raises the query's error."""
    run_to_end(stream.writeStream.foreachBatch(function), checkpoint)


def run_to_end(writer: DataStreamWriter, checkpoint: Path, *, once: bool = False) -> None:
    """Run a query with Trigger.AvailableNow, or Trigger.Once; raises the query's error."""
    trigger = writer.trigger(once=True) if once else writer.trigger(availableNow=True)
    query = started(trigger.option("checkpointLocation", str(checkpoint)))
    try:
        assert query.awaitTermination(PATIENCE_S), "the query does not end"
    finally:
        query.stop()


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query; on Spark Connect again if its Python process takes longer than the 10 s that Spark waits."""
    for _ in range(_STARTS):
        try:
            return writer.start()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    return writer.start()


def refused(stream: DataFrame, sink: BatchFunction, checkpoint: Path, kind: type[Error]) -> Error:
    """Run the query and return the sink's error, whose code and text Spark must show."""
    caught: list[TidelogError] = []

    def function(batch: DataFrame, number: int) -> None:
        try:
            sink(batch, number)
        except TidelogError as error:
            caught.append(error)
            raise

    with pytest.raises(StreamingQueryException) as raised:
        drain(stream, function, checkpoint)
    (error,) = caught
    assert type(error) is kind
    assert f"{error.code}: {error.message}; {error.advice}" in str(raised.value)
    assert error.advice
    return error


def last_committed_batch(checkpoint: Path) -> int:
    return max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())


def forget_last_commit(checkpoint: Path) -> int:
    """Leave the checkpoint as a crash does between the sink's commit and Spark's own; return the batch's number."""
    number = last_committed_batch(checkpoint)
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
    return number


def restore(checkpoint: Path, copy: Path) -> None:
    """Replace the checkpoint with a copy."""
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)


class NoClaims(dict[Any, Any]):
    """Replaces `batch._claims`, so that sinks do not see each other's claims, as in separate processes."""

    def get(self, *_: object) -> None:
        return None


def drain_feed(spark: SparkSession, path: Path | str, checkpoint: Path, **options: str | int) -> list[list[Any]]:
    """The rows of a change feed, one list for each micro-batch."""
    batches: list[list[Any]] = []
    drain(feed(spark, path, **options), lambda batch, _: batches.append(batch.collect()), checkpoint)
    return batches


def feed(spark: SparkSession, path: Path | str, **options: str | int) -> DataFrame:
    return spark.readStream.format("tidelog").options(**options).load(str(path))


def changes_stream(spark: SparkSession, path: Path | str, **options: str | int) -> DataFrame:
    """The same rows as of `feed` with `changes=cdc`, by `readStream.changes`."""
    stream: DataFrame = spark.readStream.options(**options).changes(f"tidelog.`{path}`")
    return stream


def read(spark: SparkSession, path: Path | str, **options: str | int) -> DataFrame:
    return spark.read.format("tidelog").options(**options).load(str(path))


def numbers_in(path: Path | str) -> list[int]:
    """The column `n` of the table at `path`, sorted, with repetitions."""
    return sorted(Table.open(str(path)).scan().to_arrow()["n"].to_pylist())


def footprint(path: Path) -> tuple[int, Sequence[Path]]:
    """The newest version and every file of the table, which a refused batch must not change."""
    return Table.open(str(path)).version, sorted(file for file in path.rglob("*") if file.is_file())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds; `what` describes it in the error if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.02)


def rewrite_all(table: Table) -> int:
    """Commit a compaction of all files of each partition, needed or not; returns its version."""
    transaction = table.begin()
    adds = files.to_adds(table.at().files())
    partitions = {tuple(sorted(add.partition_values.items())) for add in adds}
    groups = [
        PlannedGroup(
            dict(partition), tuple(add for add in adds if tuple(sorted(add.partition_values.items())) == partition)
        )
        for partition in sorted(partitions, key=str)
    ]
    moves = [rewrite(transaction.writer, transaction.schema, group, 0) for group in groups]
    outcome = transaction.stage_moves(moves, operation_class=OperationClass.MINOR).commit()
    assert isinstance(outcome, Committed)
    return outcome.version


def foreign_delete(table: Table) -> None:
    """Another engine takes a file away, and later adds it again."""
    first = live_files(table)[0]
    put_foreign(table, msgspec.structs.replace(remove(first), partition_values=None))
    table.refresh()
    put_foreign(table, first)
    table.refresh()
