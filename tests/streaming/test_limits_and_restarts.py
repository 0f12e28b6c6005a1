"""A feed with limits that is stopped, killed and started again, on every Spark; and what only one below 4.2 does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.streaming.support import (
    BEFORE_LIMITS,
    NUMBERS,
    SINCE_CHANGES,
    changes_stream,
    drain_feed,
    feed,
    forget_last_commit,
    run_to_end,
    wait_until,
)
from tidelog.log import Table
from tidelog.log.errors import PrerequisiteError
from tidelog.streaming import Feed

pytestmark = pytest.mark.spark

BatchFunction = Callable[[DataFrame, int], None]
_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return put(Table.create(str(tmp_path / "table"), NUMBERS), 1, 2, 3)


def put(table: Table, *numbers: int) -> Table:
    for number in numbers:
        table.insert([{"n": number}])
    return table


def writer(spark: SparkSession, way: str, table: Table, function: BatchFunction) -> DataStreamWriter:
    """A query with one file in a micro-batch."""
    if way == "Feed":
        return Feed(spark, table.path, max_files=1).foreachBatch(function)
    stream = changes_stream if way == "changes" else feed
    return stream(spark, table.path, maxFilesPerTrigger=1).writeStream.foreachBatch(function)


def batches(spark: SparkSession, way: str, table: Table, checkpoint: Path, count: int) -> list[tuple[int, list[int]]]:
    """The numbers and rows of the micro-batches of a query that is stopped once it has run so many."""
    seen: list[tuple[int, list[int]]] = []

    def function(batch: DataFrame, number: int) -> None:
        seen.append((number, sorted(row["n"] for row in batch.select("n").collect())))

    query = writer(spark, way, table, function).option("checkpointLocation", str(checkpoint)).start()
    try:
        wait_until(lambda: len(seen) >= count or not query.isActive, "the batches have run")
        query.processAllAvailable()
    finally:
        query.stop()
    return seen


@pytest.mark.oldest
@pytest.mark.parametrize(
    "way",
    [
        "readStream",
        pytest.param("Feed", marks=pytest.mark.full),
        pytest.param("changes", marks=[SINCE_CHANGES, pytest.mark.full]),
    ],
)
def test_each_micro_batch_is_bounded_across_restarts(
    spark: SparkSession, table: Table, tmp_path: Path, way: str
) -> None:
    checkpoint = tmp_path / "cp"
    assert batches(spark, way, table, checkpoint, 3) == [(0, [1]), (1, [2]), (2, [3])]
    put(table, 4, 5)
    # The log of the checkpoint is complete: the first new batch is bounded, too.
    assert batches(spark, way, table, checkpoint, 2) == [(3, [4]), (4, [5])]
    put(table, 6, 7)
    # The last batch was not completed: it runs again as it was, and the next begins where it ended.
    assert forget_last_commit(checkpoint) == 4
    assert batches(spark, way, table, checkpoint, 3) == [(4, [5]), (5, [6]), (6, [7])]


@pytest.mark.oldest
@BEFORE_LIMITS
def test_available_now_is_one_micro_batch_with_everything(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    assert drain_feed(spark, table.path, tmp_path / "cp") == [[(1,), (2,), (3,)]]
    put(table, 4, 5)
    assert drain_feed(spark, table.path, tmp_path / "cp") == [[(4,), (5,)]]


@pytest.mark.oldest
@BEFORE_LIMITS
@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_a_feed_with_a_limit_refuses_triggers_that_end(spark: SparkSession, table: Table, trigger: str) -> None:
    limited = Feed(spark, table.path, max_rows=1).foreachBatch(lambda *_: None)
    with pytest.raises(PrerequisiteError, match=r"install pyspark 4\.2 or later.*tidelog\.streaming\.changes"):
        limited.trigger(**{trigger: True})
    assert limited.trigger(processingTime="1 second") is limited


@BEFORE_LIMITS
def test_a_feed_without_limits_runs_with_available_now(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    seen: list[int] = []
    function = Feed(spark, table.path).foreachBatch(lambda batch, _: seen.append(batch.count()))
    run_to_end(function, tmp_path / "cp")
    assert seen == [3]


@pytest.mark.oldest
@BEFORE_LIMITS
def test_sparks_wrapper_for_available_now_is_refused_before_the_checkpoint_changes(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "cp"
    assert drain_feed(spark, table.path, checkpoint) == [[(1,), (2,), (3,)]]
    put(table, 4)
    spark.conf.set(_WRAPPER, "true")
    try:
        with pytest.raises(StreamingQueryException, match="set it to false"):
            drain_feed(spark, table.path, checkpoint, maxFilesPerTrigger=1)
    finally:
        spark.conf.unset(_WRAPPER)
    assert drain_feed(spark, table.path, checkpoint) == [[(4,)]]
