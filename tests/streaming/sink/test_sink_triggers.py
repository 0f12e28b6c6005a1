"""The sink under each of Spark's triggers: a batch is a commit, whatever starts it."""

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


class Sinking:
    """A table that a stream of numbers is written to, with the report of each batch."""

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
            assert query.awaitTermination(PATIENCE_S), "the query does not end"
        finally:
            query.stop()

    @property
    def commits(self) -> list[tuple[int, int | None, int]]:
        return [(report.batch_id, report.version, report.rows) for report in self.reports]


@pytest.fixture
def sinking(spark: SparkSession, tmp_path: Path) -> Sinking:
    return Sinking(spark, tmp_path)


def check_rows(sinking: Sinking) -> None:
    """Each row is there once, and each commit but the table's first is a batch that was reported."""
    assert numbers_in(sinking.path) == sinking.source.numbers
    assert [version for _, version, _ in sinking.commits] == list(range(1, Table.open(sinking.path).version + 1))
    assert not any(report.skipped or report.rebased_over for report in sinking.reports)


def test_once(sinking: Sinking) -> None:
    """One batch of all that is there, whatever the limits are."""
    for _ in range(2):
        sinking.source.put(3)
        sinking.run(once=True)
    check_rows(sinking)
    assert sinking.commits == [(0, 1, 30), (1, 2, 30)]


def test_available_now(sinking: Sinking) -> None:
    """As many batches as the limits make of what is there; a run that finds nothing is no batch."""
    for num_files in (3, 0, 1):
        sinking.source.put(num_files)
        sinking.run(availableNow=True)
    check_rows(sinking)
    assert sinking.commits == [(0, 1, 10), (1, 2, 10), (2, 3, 10), (3, 4, 10)]


@pytest.mark.parametrize("trigger", [{"processingTime": "200 milliseconds"}, {}], ids=["processing-time", "default"])
def test_processing_time(sinking: Sinking, trigger: dict[str, str]) -> None:
    """Batches come as the files do, in one query and in the next one."""
    for num_files in (2, 1):
        sinking.source.put(num_files)
        query = sinking.start(**trigger)
        try:
            wait_until(lambda: len(sinking.reports) >= sinking.source.count, "the files are there")
            sinking.source.put()
            wait_until(lambda: len(sinking.reports) >= sinking.source.count, "the file put meanwhile is there")
            query.processAllAvailable()
        finally:
            query.stop()
    check_rows(sinking)
    assert sinking.commits == [(number, number + 1, 10) for number in range(5)]


def test_from_one_trigger_to_another(sinking: Sinking) -> None:
    """The checkpoint goes on, and with it the sink's name."""
    sinking.source.put(2)
    sinking.run(availableNow=True)
    sinking.source.put(2)
    sinking.run(once=True)
    sinking.source.put()
    query = sinking.start(processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    check_rows(sinking)
    assert sinking.commits == [(0, 1, 10), (1, 2, 10), (2, 3, 20), (3, 4, 10)]
