"""The change feed in real queries. test_source.py tests what needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from tests.streaming.support import (
    IN_JVM,
    NUMBERS,
    PATIENCE_S,
    SINCE_LIMITS,
    drain,
    drain_feed,
    feed,
    rewrite_all,
    wait_until,
)
from tidelog.log import Table
from tidelog.streaming import spark_versions

pytestmark = pytest.mark.spark

PARTS = pa.schema([("part", pa.date32()), ("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "table"), NUMBERS)


def put(table: Table, *numbers: int) -> None:
    table.insert([{"n": number} for number in numbers])


class Running:
    """A query that keeps running, with the numbers of each micro-batch so far."""

    def __init__(self, stream: DataFrame, checkpoint: Path) -> None:
        self.batches: list[list[int]] = []
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = writer.start()

    def _take(self, batch: DataFrame, _: int) -> None:
        self.batches.append(sorted(row["n"] for row in batch.collect()))

    def wait_for(self, batches: int) -> None:
        wait_until(lambda: len(self.batches) >= batches or not self.query.isActive, f"there are {batches} batches")


@SINCE_LIMITS
def test_available_now_ends_at_the_newest_version_and_a_restart_continues(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    put(table, 1)
    put(table, 2)
    seen: list[list[int]] = []

    def also_writes(batch: DataFrame, _: int) -> None:
        seen.append([row["n"] for row in batch.collect()])
        put(table, 100 + len(seen))

    stream = feed(spark, table.path, maxFilesPerTrigger=1)
    drain(stream, also_writes, tmp_path / "cp")
    assert seen == [[1], [2]]
    rewrite_all(table)
    assert drain_feed(spark, table.path, tmp_path / "cp", maxFilesPerTrigger=1) == [[(101,)], [(102,)]]


class IdleCount(StreamingQueryListener):
    """Counts the triggers that ran no micro-batch."""

    def __init__(self) -> None:
        self.count = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002, N802 - Spark's signature
        self.count += 1

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def wait_for_two_more(self) -> None:
        """The second trigger certainly began after this call."""
        enough = self.count + 2
        wait_until(lambda: self.count >= enough, "the query is idle")


@pytest.fixture
def idle(spark: SparkSession) -> Iterator[IdleCount]:
    """Queries report each idle trigger, but at most 50 a second."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    listener = IdleCount()
    spark.conf.set(name, "20ms")
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)
    spark.conf.unset(name)


def test_compactions_run_no_micro_batch_and_delay_no_rows(
    spark: SparkSession, table: Table, tmp_path: Path, idle: IdleCount
) -> None:
    """While only compactions are committed, the query is idle. The next rows come in a batch without them."""
    put(table, 1)
    put(table, 2)
    running = Running(feed(spark, table.path), tmp_path / "cp")
    try:
        running.wait_for(1)
        for _ in range(12):
            rewrite_all(table)
            idle.wait_for_two_more()
        assert running.batches == [[1, 2]]
        assert running.query.isActive
        put(table, 3)
        rewrite_all(table)
        running.wait_for(2)
        # Spark's count includes batches without rows.
        assert running.query.lastProgress
        progress = running.query.recentProgress
        assert max(entry["batchId"] for entry in progress if entry["numInputRows"]) <= 1
    finally:
        running.query.stop()
    assert running.batches == [[1, 2], [3]]
    offsets = sorted(int(file.name) for file in (tmp_path / "cp" / "offsets").iterdir() if file.name.isdigit())
    assert offsets == [0, 1]


@SINCE_LIMITS
def test_limit_columns_where_and_commit_columns_on_a_partitioned_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), PARTS, partition_by=["part"])
    days = [f"2026-01-0{day}" for day in (1, 2, 3)]
    for version in (1, 2, 3):
        table.insert(
            pa.table(
                {
                    "part": pa.array(days).cast(pa.date32()),
                    "n": [version] * 3,
                    "text": [f"{day[-1]}-{version}" for day in days],
                }
            )
        )
    batches = drain_feed(
        spark,
        table.path,
        tmp_path / "cp",
        maxFilesPerTrigger=2,
        changes="append",
        after=1,
        columns="text, part, _commit_version, _commit_timestamp",
        where="part <= '2026-01-02'",
    )
    assert [len(batch) for batch in batches] == [2, 2]
    rows = [row.asDict() for batch in batches for row in batch]
    assert [row["text"] for row in rows] == ["1-2", "2-2", "1-3", "2-3"]
    assert [str(row["part"]) for row in rows] == ["2026-01-01", "2026-01-02"] * 2
    assert [row["_commit_version"] for row in rows] == [2, 2, 3, 3]
    assert list(rows[0]) == ["text", "part", "_commit_version", "_commit_timestamp"]
    for row in rows:
        assert row["_commit_timestamp"].timestamp() == table.at(version=row["_commit_version"]).timestamp.timestamp()


@pytest.mark.full
def test_latest_is_resolved_when_the_query_first_starts(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Spark records the start with an empty first batch, so a restart does not move it."""
    put(table, 1)
    assert drain_feed(spark, table.path, tmp_path / "cp", startingVersion="latest") == [[]]
    put(table, 2)
    assert drain_feed(spark, table.path, tmp_path / "cp", startingVersion="latest") == [[(2,)]]


def test_a_starting_timestamp_and_a_given_schema(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    put(table, 1)
    moment = table.refresh().at().timestamp.isoformat()
    put(table, 2)
    stream = spark.readStream.format("tidelog").schema("n int").option("after", moment).load(table.path)
    rows: list[Any] = []
    drain(stream, lambda batch, _: rows.extend(batch.collect()), tmp_path / "cp")
    assert rows == [(2,)]
    assert stream.schema.simpleString() == "struct<n:int>"


def changes_of(batches: list[list[Any]]) -> list[list[tuple[str, int, int]]]:
    return [[(row["_change_type"], row["_commit_version"], row["n"]) for row in batch] for batch in batches]


@SINCE_LIMITS
def test_the_table_as_it_is_then_every_change(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Without a gap or an overlap, also where the commits before the snapshot are expired."""
    table.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    put(table, 1, 2)
    put(table, 3)
    table.delete("n = 2")
    table.checkpoint()
    assert table.expire(older_than=timedelta(0)).commits == 4
    version = table.refresh().version
    options = {"initialSnapshot": "true", "changes": "cdc"}
    first = drain_feed(spark, table.path, tmp_path / "cp", maxFilesPerTrigger=1, **options)
    assert changes_of(first) == [[("insert", version, 1)], [("insert", version, 3)]]
    table.delete("n = 1")
    put(table, 4)
    rewrite_all(table)
    rest = drain_feed(spark, table.path, tmp_path / "cp", **options)
    assert changes_of(rest) == [[("delete", version + 1, 1), ("insert", version + 2, 4)]]
    assert drain_feed(spark, table.path, tmp_path / "cp", **options) == []


@SINCE_LIMITS
def test_progress_shows_how_far_the_stream_is_complete(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    put(table, 1)
    table.delete("n = 1")
    put(table, 2)
    newest = table.at().timestamp
    writer = feed(spark, table.path, skipChangeCommits="true").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    progress = query.lastProgress
    assert progress is not None
    end = json.loads(progress.json)["sources"][0]["endOffset"]
    assert end["version"] == 3
    assert end["skippedCommits"] == 1
    assert datetime.fromisoformat(end["completeUntil"]) == newest


@pytest.mark.full
def test_new_columns_stop_the_query_and_a_restart_continues(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    put(table, 1)
    loaded = feed(spark, table.path)
    running = Running(loaded, tmp_path / "cp")
    try:
        running.wait_for(1)
        put(table, 2)
        table.add_columns([pa.field("note", pa.string())])
        table.insert([{"n": 3, "note": "new"}])
        wait_until(lambda: not running.query.isActive, "the query has stopped")
    finally:
        running.query.stop()
    assert running.batches == [[1], [2]]
    message = str(running.query.exception())
    assert "TIDELOG_SCHEMA_CHANGED: version 3 of" in message
    assert "restart the query with the same checkpoint" in message
    # Without a new load, the query would leave the column out.
    again = Running(loaded, tmp_path / "cp")
    wait_until(lambda: not again.query.isActive, "the query has stopped")
    assert "TIDELOG_SCHEMA_CHANGED: version 4 of" in str(again.query.exception())
    assert again.batches == []
    assert drain_feed(spark, table.path, tmp_path / "cp") == [[(3, "new")]]


@pytest.mark.full
def test_a_wider_type_stops_the_query_and_a_restart_continues(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32())])
    table = Table.create(str(tmp_path / "table"), schema, properties={"delta.enableTypeWidening": True})
    table.insert([{"n": 1}])
    running = Running(feed(spark, table.path), tmp_path / "cp")
    try:
        running.wait_for(1)
        table.insert([{"n": 2}])
        rows = pa.table({"n": pa.array([2**40], pa.int64())})
        transaction = table.begin()
        assert transaction.evolve(rows.schema)
        transaction.insert(rows).commit()
        wait_until(lambda: not running.query.isActive, "the query has stopped")
    finally:
        running.query.stop()
    assert running.batches == [[1], [2]]
    assert "n was int32 and is int64; load the table again" in str(running.query.exception())
    assert drain_feed(spark, table.path, tmp_path / "cp") == [[(2**40,)]]
    # A query that begins now has the wide type for all commits.
    batches = drain_feed(spark, table.path, tmp_path / "new", startingVersion=0)
    assert sorted(row.n for batch in batches for row in batch) == [1, 2, 2**40]


# --- errors, as Spark shows them -------------------------------------------------------------------------------------


def fails(spark: SparkSession, table: Table, checkpoint: Path, **options: str | int) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        drain_feed(spark, table.path, checkpoint, **options)
    return str(caught.value)


def test_a_recreated_table_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "old"), NUMBERS)
    put(table, 1)
    drain_feed(spark, table.path, tmp_path / "cp")
    Path(table.path).rename(tmp_path / "away")
    another = Table.create(table.path, NUMBERS)
    put(another, 2)
    put(another, 3)
    message = fails(spark, another, tmp_path / "cp")
    assert "TIDELOG_TABLE_REPLACED: the stream's checkpoint belongs to another table" in message
    assert "start the stream with a new checkpoint, or put the old table back" in message


def test_an_option_for_batch_reads_only(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    message = fails(spark, table, tmp_path / "cp", endingVersion=1)
    assert "TIDELOG_CONFIGURATION: the option 'endingVersion' is for batch reads only; leave it out" in message


def shown_files(text: str) -> list[str]:
    """The files of tidelog in the tracebacks of a text."""
    shown = [Path(line.split('"')[1]) for line in text.splitlines() if line.strip().startswith("File ")]
    return [file.name for file in shown if "tidelog" in file.parts]


def test_spark_shows_the_feed_s_error_on_its_own_line_before_any_traceback(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    put(table, 1)
    table.delete("n = 1")
    if not (IN_JVM or spark_versions.SOURCES_TAKE_LIMITS):
        # Such a run is one micro-batch, and the first one ends before what it cannot show.
        assert drain_feed(spark, table.path, tmp_path / "cp") == [[(1,)]]
    message = fails(spark, table, tmp_path / "cp")
    if IN_JVM:
        first, *_ = message.splitlines()
        assert "terminated with exception: TIDELOG_NOT_APPEND_ONLY: version 2 of " in first
        assert shown_files(message) == []
        return
    introduction, line, *rest = message.splitlines()
    assert introduction.endswith('format("tidelog") failed')
    assert line.startswith("TIDELOG_NOT_APPEND_ONLY: version 2 of ")
    assert "Traceback (most recent call last):" in rest
    assert set(shown_files(message)) == {"errors_first.py"}
