"""Reads, changes, the feed and batch writes on Spark Connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.jvm_reading.support import bag
from tests.streaming.jvm_reading.test_histories import KINDS, SCHEMA, STEPS
from tests.streaming.support import drain, run_to_end
from tidelog.log import Table
from tidelog.log.read.scan import RowReader
from tidelog.streaming import Feed, changes, read, register, spark_versions
from tidelog.streaming.executors.tasks import spark_schema


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one commit of each kind."""
    made = Table.create(str(tmp_path / "a table"), SCHEMA, **KINDS["feed-partitions"])
    for step in STEPS:
        step(made)
    return made.refresh()


def assert_same(frame: DataFrame, reader: RowReader) -> None:
    """The frame has exactly the rows and the schema of the reader."""
    assert frame.schema == spark_schema(reader.schema)
    assert bag(frame.toArrow(), reader.schema) == bag(reader.to_arrow(), reader.schema)


def test_read_and_changes_give_the_rows_of_the_table(connect: SparkSession, table: Table) -> None:
    for version in (2, 5, None):
        assert_same(read(connect, table.path, version=version), table.at(version=version).scan())
    assert_same(changes(connect, table.path), table.changes())
    assert_same(changes(connect, table.path, after=3, until=9), table.changes(after=3, until=9))
    selected: dict[str, Any] = {"where": "id > 2", "columns": ["text", "id"]}
    assert_same(read(connect, table.path, version=5, **selected), table.at(version=5).scan(**selected))
    net: dict[str, Any] = {"after": 1, "until": 6, "mode": "net", "keys": ["id", "day"]}
    assert_same(changes(connect, table.path, **net), table.changes(**net))


@pytest.mark.full
def test_later_commits_do_not_show(connect: SparkSession, table: Table) -> None:
    frame, empty = read(connect, table.path), read(connect, table.path, where="id = 12345")
    table.insert([{"id": 12345, "day": None, "text": "new", "more": 1}])
    assert frame.count() == 3
    assert empty.count() == 0
    assert read(connect, table.path).count() == 4


@pytest.mark.full
def test_the_format(connect: SparkSession, table: Table) -> None:
    register(connect)
    reader = connect.read.format("tidelog")
    rows = reader.option("versionAsOf", 2).load(table.path).toArrow()
    expected = table.at(version=2).scan()
    assert bag(rows, expected.schema) == bag(expected.to_arrow(), expected.schema)
    found = connect.sql(f"SELECT count(*) AS n FROM tidelog_read('{table.path}', version => 2)").collect()
    assert [row.n for row in found] == [9]
    with pytest.raises(PySparkException, match="TIDELOG_TABLE_NOT_FOUND"):
        reader.load("/no/such/table").count()


def test_batch_writes(connect: SparkSession, tmp_path: Path) -> None:
    register(connect)
    path = str(tmp_path / "written")
    frame = connect.range(100).selectExpr("id", "id % 3 AS part")
    frame.write.format("tidelog").mode("append").option("partitionBy", "part").save(path)
    frame.where("part = 1").write.format("tidelog").mode("overwrite").option("where", "part = 1").save(path)
    for _ in range(2):
        keyed = connect.range(3).selectExpr("id", "7L AS part").write.format("tidelog").mode("append")
        keyed.option("txnAppId", "job").option("txnVersion", 1).save(path)
    made = Table.open(path)
    assert sorted(made.scan().to_arrow()["id"].to_pylist()) == sorted([*range(100), 0, 1, 2])
    assert made.partition_by == ("part",)


class Noted:
    """A batch function that writes the numbers of each batch, and what `feed.last` says, into a file."""

    def __init__(self, file: Path, feed: Feed | None = None) -> None:
        self.file = file
        self.feed = feed

    def __call__(self, batch: DataFrame, number: int) -> None:
        last = self.feed.last if self.feed else None
        line = [number, sorted(row["n"] for row in batch.collect()), last.files if last else None]
        with self.file.open("a") as out:
            out.write(json.dumps(line) + "\n")

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.mark.full
def test_a_stream_of_the_format(connect: SparkSession, tmp_path: Path) -> None:
    register(connect)
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    for n in (1, 2, 3):
        table.insert([{"n": n}])
    noted = Noted(tmp_path / "batches")
    stream = connect.readStream.format("tidelog").option("maxFilesPerTrigger", 2).load(table.path)
    drain(stream, noted, tmp_path / "cp")
    table.insert([{"n": 4}])
    drain(stream, noted, tmp_path / "cp")
    # Spark below 4.2 does not tell a Python source that there is more: a query ends after the first part.
    rest = [[1, [3], None], [2, [4], None]] if spark_versions.SOURCES_TAKE_LIMITS else [[1, [3, 4], None]]
    assert noted.lines == [[0, [1, 2], None], *rest]


def test_a_feed(connect: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("n", pa.int64())]))
    for n in (1, 2, 3):
        table.insert([{"n": n}])
    limits: dict[str, Any] = {"max_files": 2} if spark_versions.SOURCES_TAKE_LIMITS else {}
    feed = Feed(connect, table.path, where="n <> 2", **limits)
    noted = Noted(tmp_path / "batches", feed)
    run_to_end(feed.foreachBatch(noted), tmp_path / "cp")
    table.insert([{"n": 4}])
    run_to_end(feed.foreachBatch(noted), tmp_path / "cp")
    assert [line[1] for line in noted.lines] == [[1, 3], [4]]
    assert [line[2] for line in noted.lines] == [2, 1], "the function sees what it was given"
    assert feed.last is None
