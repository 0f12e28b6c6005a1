"""A client of Spark Connect without tidelog, on a server that has it: python registered_client.py URL FOLDER."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

URL, BASE = sys.argv[1:]
spark = SparkSession.builder.remote(URL).getOrCreate()


def rows(table: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in spark.table(table).collect())


def ended(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(120), "the query does not end"
    return query


def refused(call: Callable[[], object], *texts: str) -> None:
    with pytest.raises(PySparkException) as caught:
        call()
    assert all(text in str(caught.value) for text in texts), caught.value


def writer(checkpoint: str, **options: str) -> DataStreamWriter:
    made = spark.readStream.table("tidelog.raw.events").writeStream.format("tidelog").trigger(availableNow=True)
    return made.options(checkpointLocation=f"{BASE}/{checkpoint}", **options)


def outcomes(query: StreamingQuery) -> list[str]:
    """Of its batches. A query that waits longer shows the newest one again."""
    return list(dict.fromkeys(each["sink"]["metrics"]["outcome"] for each in query.recentProgress))


def by_name() -> None:
    spark.sql("CREATE TABLE tidelog.raw.events (id BIGINT, v STRING)").collect()
    spark.sql("INSERT INTO tidelog.raw.events VALUES (1, 'a'), (2, 'b')").collect()
    query = ended(writer("cp", mode="upsert", keys="id").toTable("tidelog.made.copy"))
    # On Spark Connect a progress has no sum of its sources.
    read = [source["numInputRows"] for each in query.recentProgress for source in each["sources"]]
    assert sum(read) == 2, query.recentProgress
    assert outcomes(query) == ["committed"]
    # As after a crash between the sink's commit and Spark's.
    Path(BASE, "cp/commits/0").unlink()
    spark.sql("INSERT INTO tidelog.raw.events VALUES (2, 'c'), (3, 'd')").collect()
    query = ended(writer("cp", mode="upsert", keys="id").toTable("tidelog.made.copy"))
    assert outcomes(query) == ["skipped", "committed"]
    assert rows("tidelog.made.copy") == [(1, "a"), (2, "c"), (3, "d")]


def by_path() -> None:
    ended(writer("cp-path").start(f"{BASE}/path"))
    assert spark.read.format("tidelog").load(f"{BASE}/path").count() == 4


def in_sparks_own_catalog() -> None:
    ended(writer("cp-own").toTable("own"))
    assert rows("own") == [(1, "a"), (2, "b"), (2, "c"), (3, "d")]
    feed = spark.readStream.option("changes", "append").table("own")
    assert feed.columns == ["id", "v", "_commit_version", "_commit_timestamp"]
    spark.sql("DROP TABLE own").collect()


def statements() -> None:
    spark.sql("UPDATE tidelog.made.copy SET v = 'z' WHERE id = 1").collect()
    spark.sql("DELETE FROM tidelog.made.copy WHERE id = 3").collect()
    assert rows("tidelog.made.copy") == [(1, "z"), (2, "c")]


def refusals() -> None:
    refused(lambda: writer("no", sinkNam="a").toTable("tidelog.made.no"), "did you mean 'sinkName'")
    refused(lambda: writer("no", mode="upsrt").toTable("no_table"), "did you mean 'upsert'")
    assert not Path(BASE, "lake/made/no").exists()
    assert not spark.catalog.tableExists("no_table")


by_name()
by_path()
in_sparks_own_catalog()
statements()
refusals()
assert "tidelog" not in sys.modules
spark.stop()
