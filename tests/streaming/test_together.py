"""Two streams write into one table while the daemon compacts it and a consumer follows it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.streaming.support import NUMBERS, PATIENCE_S, Input, feed, numbers_in, wait_until
from tidelog.log import OperationClass, Table
from tidelog.streaming import BatchReport, Sink

pytestmark = [pytest.mark.spark, pytest.mark.crash]

PROGRAM = str(Path(sys.executable).parent / "tidelog")
FILES = 15


def test_two_streams_the_daemon_and_a_consumer_at_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    left, right = Input(tmp_path / "left"), Input(tmp_path / "right")
    right.count = 1000  # so that its numbers begin at 10,000
    sinks = {"left": Sink(path, name="left"), "right": Sink(path, name="right")}
    # The consumer and the daemon want a table to be there.
    Table.create(path, NUMBERS)
    reports: dict[str, list[BatchReport]] = {name: [] for name in sinks}
    consumed: list[list[int]] = []

    def writes(name: str) -> StreamingQuery:
        def function(batch: DataFrame, number: int) -> None:
            sinks[name](batch, number)
            last = sinks[name].last
            assert last
            reports[name].append(last)

        stream = {"left": left, "right": right}[name].stream(spark)
        writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / f"cp-{name}"))
        return writer.start()

    def consumes(batch: DataFrame, _: int) -> None:
        consumed.append([row["n"] for row in batch.collect()])

    daemon = subprocess.Popen(
        [PROGRAM, "daemon", path, "--interval", "0.05", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    following = feed(spark, path, maxFilesPerTrigger=4).writeStream.foreachBatch(consumes)
    queries = [
        following.option("checkpointLocation", str(tmp_path / "cp-feed")).start(),
        writes("left"),
        writes("right"),
    ]
    try:
        chance = random.Random(1)
        while left.count < FILES or right.count < 1000 + FILES:
            chance.choice([left, right]).put()
        expected = [*left.numbers, *range(10_000, right.count * 10)]
        wait_until(
            lambda: sum(map(len, consumed)) >= len(expected) or not all(query.isActive for query in queries),
            "the consumer has seen as many rows as were written",
        )
        # The daemon goes on until it has caught up.
        wait_until(lambda: Table.open(path).at().num_files < FILES // 2, "the files are compacted")
        assert [query.exception() for query in queries] == [None] * 3
    finally:
        for query in queries:
            query.stop()
        daemon.send_signal(signal.SIGTERM)
        out, err = daemon.communicate(timeout=PATIENCE_S)
    assert (daemon.returncode, err) == (0, "")
    compactions = [json.loads(line) for line in out.splitlines()]
    assert len(compactions) >= 2

    assert numbers_in(path) == expected
    # Each row came to the consumer once, the rows of each stream in order, none for a compaction.
    assert sorted(n for batch in consumed for n in batch) == expected
    assert [n for batch in consumed for n in batch if n < 10_000] == left.numbers
    assert all(consumed[1:]), "a micro-batch without a row"
    table = Table.open(path)
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == expected
    # No commit but the batches' and the daemon's; every batch went through at its first attempt.
    minor = {record.version for record in table.history() if record.operation_class is OperationClass.MINOR}
    assert minor == {line["version"] for line in compactions if line["files_removed"]}
    batches = [report for name in sinks for report in reports[name]]
    assert {report.version for report in batches} | minor | {0} == set(range(table.version + 1))
    assert sum(report.rows for report in batches) == len(expected)
    assert not any(report.skipped for report in batches)
