"""Two streams write into one table while the daemon compacts it and a consumer follows it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.streaming.sink.support import Reports
from tests.streaming.support import NUMBERS, PATIENCE_S, BatchFunction, Input, feed, numbers_in, wait_until
from tidelog.log import OperationClass, Table
from tidelog.streaming import Sink

pytestmark = [pytest.mark.spark, pytest.mark.crash]

# Not the command `tidelog`, which the environments of other Sparks do not have.
PROGRAM = (sys.executable, "-c", "from tidelog.cli import main; main()")
FILES = 15
RIGHT = 1000  # number of the right stream's first file, so that its rows start at 10,000


class Consumer:
    """A batch function that keeps the rows of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, batch: DataFrame, _: int) -> None:
        # Within a micro-batch rows come in no particular order.
        self.batches.append(sorted(row["n"] for row in batch.collect()))

    @property
    def rows(self) -> list[int]:
        return [n for batch in self.batches for n in batch]


@contextmanager
def daemon(path: str) -> Iterator[list[dict[str, Any]]]:
    """The compaction daemon in another process; after the block, the list has the steps that it reported."""
    steps: list[dict[str, Any]] = []
    process = subprocess.Popen(
        [*PROGRAM, "daemon", path, "--interval", "0.05", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield steps
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    steps += [json.loads(line) for line in out.splitlines()]


@contextmanager
def running(queries: list[StreamingQuery]) -> Iterator[None]:
    """Stop the queries after the block."""
    try:
        yield
    finally:
        for query in queries:
            query.stop()


def start(stream: DataFrame, function: BatchFunction, checkpoint: Path) -> StreamingQuery:
    return stream.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint)).start()


def test_two_streams_the_daemon_and_a_consumer_work_on_one_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    left, right = Input(tmp_path / "left"), Input(tmp_path / "right")
    right.count = RIGHT
    writers = [Reports(Sink(path, name="left")), Reports(Sink(path, name="right"))]
    consumer = Consumer()
    # The consumer and the daemon need an existing table.
    Table.create(path, NUMBERS)

    with daemon(path) as compactions:
        queries = [
            start(feed(spark, path, maxFilesPerTrigger=4), consumer, tmp_path / "cp-feed"),
            start(left.stream(spark), writers[0], tmp_path / "cp-left"),
            start(right.stream(spark), writers[1], tmp_path / "cp-right"),
        ]
        with running(queries):
            chance = random.Random(1)
            while left.count < FILES or right.count < RIGHT + FILES:
                chance.choice([left, right]).put()
            expected = [*left.numbers, *range(10 * RIGHT, right.count * 10)]
            wait_until(
                lambda: len(consumer.rows) >= len(expected) or not all(query.isActive for query in queries),
                "the consumer has as many rows as were written",
            )
            # The daemon works on until it has caught up.
            wait_until(lambda: Table.open(path).at().num_files < FILES // 2, "the files are compacted")
            assert [query.exception() for query in queries] == [None] * 3
    assert len(compactions) >= 2

    assert numbers_in(path) == expected
    check_consumer(consumer, left, expected)
    check_commits(Table.open(path), writers, compactions, expected)


def check_consumer(consumer: Consumer, left: Input, expected: list[int]) -> None:
    """The consumer got each row once, the batches of a stream in order, and no batch for a compaction."""
    assert sorted(consumer.rows) == expected
    assert [n for n in consumer.rows if n < 10 * RIGHT] == left.numbers
    assert all(consumer.batches[1:]), "a micro-batch without a row"


def check_commits(table: Table, writers: list[Reports], compactions: list[dict[str, Any]], expected: list[int]) -> None:
    """Each commit is a batch or a compaction, and each batch was committed at the first attempt."""
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == expected
    minor = {record.version for record in table.history() if record.operation_class is OperationClass.MINOR}
    assert minor == {step["version"] for step in compactions if step["files_removed"]}
    batches = [report for writer in writers for report in writer.all]
    assert {report.version for report in batches} | minor | {0} == set(range(table.version + 1))
    assert sum(report.rows for report in batches) == len(expected)
    assert not any(report.skipped for report in batches)
