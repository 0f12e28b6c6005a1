"""What ends a query in a real Spark: each error has a code that survives Spark's wrapping."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.streaming.support import NUMBERS, PATIENCE_S, SINCE_LIMITS, run_to_end
from tests.streaming.ways import WAYS, follow
from tidelog import Feed
from tidelog.log import Table

NOW = timedelta(0)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    # Nobody writes to it for long, so a clean-up can take everything.
    return Table.create(str(tmp_path / "table"), NUMBERS, properties={"tidelog.maxTransactionTime": "0 seconds"})


def put(table: Table, *numbers: int) -> None:
    table.insert([{"n": number} for number in numbers])


def expire(table: Table) -> None:
    """Only the newest versions remain."""
    table.checkpoint()
    assert table.expire(older_than=NOW).commits > 0


@pytest.mark.parametrize("way", full_but(["format"], WAYS))
def test_an_expired_start(spark: SparkSession, table: Table, tmp_path: Path, way: str) -> None:
    """Of a stream that begins, and of one that continues."""
    put(table, 1)
    assert follow(spark, way, table, tmp_path / "cp") == [[1]]
    put(table, 2)
    put(table, 3)
    expire(table)
    with pytest.raises(StreamingQueryException, match="TIDELOG_HISTORY_RANGE: the changes after version 1 up to "):
        follow(spark, way, table, tmp_path / "cp")
    with pytest.raises(StreamingQueryException, match="TIDELOG_HISTORY_RANGE: the changes from version 0 up to "):
        follow(spark, way, table, tmp_path / "new")


@pytest.mark.parametrize("way", full_but(["format"], WAYS))
def test_a_table_that_was_dropped_and_created_again(
    spark: SparkSession, table: Table, tmp_path: Path, way: str
) -> None:
    """The new table has the version at which the stream stands, and later ones."""
    put(table, 1)
    follow(spark, way, table, tmp_path / "cp")
    Table.drop(table.path)
    another = Table.create(table.path, NUMBERS)
    for n in range(4):
        put(another, n)
    with pytest.raises(StreamingQueryException, match="TIDELOG_TABLE_REPLACED: the stream's checkpoint belongs to"):
        follow(spark, way, another, tmp_path / "cp")


@SINCE_LIMITS
def test_new_columns_stop_a_feed_and_a_new_query_continues(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    put(table, 1)
    put(table, 2)
    feed = Feed(spark, table.path, max_files=1)
    rows: list[dict[str, object]] = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(batch.drop("_commit_version", "_commit_timestamp").toArrow().to_pylist())
        if len(rows) == 1:
            table.add_columns([pa.field("note", pa.string())])
            table.insert([{"n": 3, "note": "new"}])

    query = feed.foreachBatch(take).option("checkpointLocation", str(tmp_path / "cp")).start()
    try:
        with pytest.raises(StreamingQueryException, match="TIDELOG_SCHEMA_CHANGED: version 3 of "):
            query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    assert rows == [{"n": 1}, {"n": 2}]
    run_to_end(feed.foreachBatch(take), tmp_path / "cp")
    assert rows[2:] == [{"n": 3, "note": "new"}]
