"""The sink with each of Spark's triggers: every batch is one commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.streaming.support import PATIENCE_S, Input, numbers_in, wait_until
from tidelog.log import Table
from tidelog.streaming import BatchReport, Sink

pytestmark = pytest.mark.spark


class NumberStream:
    """A stream of numbers into a table, with the report of each batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.source = Input(folder / "input")
        self.path, self.checkpoint = str(folder / "table"), str(folder / "cp")
        self.reports: list[BatchReport] = []

    def start(self, **trigger: Any) -> StreamingQuery:
        sink = Sink(self.path)

        def function(batch: DataFrame, number: int) -> None:
            sink(batch, number)
            assert sink.last
            self.reports.append(sink.last)

        writer = self.source.stream(self.spark).writeStream.foreachBatch(function)
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, **trigger: Any) -> None:
        query = self.start(**trigger)
        try:
            assert query.awaitTermination(PATIENCE_S), "the query did not end"
        finally:
            query.stop()

    @property
    def commits(self) -> list[tuple[int, int | None, int]]:
        return [(report.batch_id, report.version, report.rows) for report in self.reports]


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> NumberStream:
    return NumberStream(spark, tmp_path)


def check_rows(numbers: NumberStream) -> None:
    """Each row is in the table once, and each commit except the first is a reported batch."""
    assert numbers_in(numbers.path) == numbers.source.numbers
    assert [version for _, version, _ in numbers.commits] == list(range(1, Table.open(numbers.path).version + 1))
    assert not any(report.skipped or report.rebased_over for report in numbers.reports)


def test_trigger_once(numbers: NumberStream) -> None:
    """One batch with everything that has arrived, regardless of limits."""
    for _ in range(2):
        numbers.source.put(3)
        numbers.run(once=True)
    check_rows(numbers)
    assert numbers.commits == [(0, 1, 30), (1, 2, 30)]


def test_trigger_available_now(numbers: NumberStream) -> None:
    """Several batches, as the limits say; a run that finds nothing has no batch."""
    for num_files in (3, 0, 1):
        numbers.source.put(num_files)
        numbers.run(availableNow=True)
    check_rows(numbers)
    assert numbers.commits == [(0, 1, 10), (1, 2, 10), (2, 3, 10), (3, 4, 10)]


@pytest.mark.parametrize("trigger", [{"processingTime": "200 milliseconds"}, {}], ids=["processing-time", "default"])
def test_trigger_processing_time(numbers: NumberStream, trigger: dict[str, str]) -> None:
    """Files become batches as they arrive, in one query and in the next one."""
    for num_files in (2, 1):
        numbers.source.put(num_files)
        query = numbers.start(**trigger)
        try:
            wait_until(lambda: len(numbers.reports) >= numbers.source.count, "the files are committed")
            numbers.source.put()
            wait_until(lambda: len(numbers.reports) >= numbers.source.count, "the file that arrived later is committed")
            query.processAllAvailable()
        finally:
            query.stop()
    check_rows(numbers)
    assert numbers.commits == [(number, number + 1, 10) for number in range(5)]


def test_a_stream_can_change_its_trigger(numbers: NumberStream) -> None:
    """The checkpoint stays, so the sink's name still belongs to the query."""
    numbers.source.put(2)
    numbers.run(availableNow=True)
    numbers.source.put(2)
    numbers.run(once=True)
    numbers.source.put()
    query = numbers.start(processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    check_rows(numbers)
    assert numbers.commits == [(0, 1, 10), (1, 2, 10), (2, 3, 20), (3, 4, 10)]
