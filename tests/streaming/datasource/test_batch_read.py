"""`spark.read.format("tidelog")` in a real Spark: snapshots and intervals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.compaction_daemon.support import delete_rows
from tests.streaming.support import JVM_SOURCE, PYTHON_SOURCE, read, rewrite_all
from tidelog.log import Table
from tidelog.streaming import register

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("part", pa.int32()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Version v (1 to 4) adds the number v to both partitions; version 5 is a compaction, version 6 adds again."""
    made = Table.create(str(tmp_path_factory.mktemp("read") / "table"), SCHEMA, partition_by=["part"])
    for version in (1, 2, 3, 4):
        made.insert([{"part": part, "n": version, "tags": [str(part), None]} for part in (0, 1)])
    assert rewrite_all(made) == 5
    made.insert([{"part": 0, "n": 6, "tags": []}])
    return made.refresh()


def moment(table: Table, version: int, *, plus_ms: int = 0) -> str:
    return (table.at(version=version).timestamp + dt.timedelta(milliseconds=plus_ms)).isoformat()


def numbers(spark: SparkSession, table: Table, **options: str | int) -> list[int]:
    return sorted(row["n"] for row in read(spark, table.path, **options).collect())


def test_the_newest_snapshot(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path)
    assert frame.schema.simpleString() == "struct<part:int,n:bigint,tags:array<string>>"
    assert frame.count() == 9
    assert sorted(row["n"] for row in frame.collect()) == [1, 1, 2, 2, 3, 3, 4, 4, 6]
    assert {(row["part"], tuple(row["tags"])) for row in frame.collect()} == {
        (0, ("0", None)),
        (1, ("1", None)),
        (0, ()),
    }
    assert frame.where("n = 6").groupBy("part").count().collect() == [(0, 1)]


def test_queries_over_one_frame_do_not_affect_each_other(spark: SparkSession, table: Table) -> None:
    """Spark 4.2 keeps pushed filters with the loaded table, where the next query finds them (decision 20)."""
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = read(spark, table.path)
        low, high = frame.where("n < 2"), frame.where("n > 3").selectExpr("n AS m")
        assert low.crossJoin(high).count() == 6
        assert (low.count(), high.count(), frame.count()) == (2, 3, 9)
        assert frame.where("n > 5 OR n < 2").count() == 3
    finally:
        spark.conf.unset(setting)


def test_an_older_snapshot(spark: SparkSession, table: Table) -> None:
    assert numbers(spark, table, versionAsOf=2) == [1, 1, 2, 2]
    assert numbers(spark, table, versionAsOf=0) == []
    assert numbers(spark, table, versionAsOf=5) == numbers(spark, table, versionAsOf=4)
    assert numbers(spark, table, timestampAsOf=moment(table, 3)) == [1, 1, 2, 2, 3, 3]
    assert numbers(spark, table, timestampAsOf=moment(table, 2, plus_ms=-1)) in ([1, 1], [])


def test_an_interval(spark: SparkSession, table: Table) -> None:
    """`after` is exclusive, Delta's starts and the ends are inclusive. The compaction adds nothing."""
    assert numbers(spark, table, after=2, endingVersion=4) == [3, 3, 4, 4]
    assert numbers(spark, table, startingVersion=3, endingVersion=4) == [3, 3, 4, 4]
    assert numbers(spark, table, startingTimestamp=moment(table, 3), endingVersion=4) == [3, 3, 4, 4]
    assert numbers(spark, table, after=3) == [4, 4, 6]
    assert numbers(spark, table, after=4, endingVersion=5) == []
    assert numbers(spark, table, after="earliest", endingVersion=1) == [1, 1]
    assert numbers(spark, table, after="latest") == []
    assert numbers(spark, table, changes="append") == [1, 1, 2, 2, 3, 3, 4, 4, 6]
    between = {"after": moment(table, 1), "endingTimestamp": moment(table, 3)}
    assert numbers(spark, table, **between) == [2, 2, 3, 3]
    assert numbers(spark, table, after=moment(table, 3), endingVersion=6) == [4, 4, 6]


@pytest.mark.oldest
def test_the_commit_columns_of_an_interval(spark: SparkSession, table: Table) -> None:
    options: dict[str, str | int] = {"changes": "append", "after": 3, "columns": "n,_commit_version,-_commit_timestamp"}
    frame = read(spark, table.path, **options, where="part = 0")
    assert frame.schema.simpleString() == "struct<n:bigint,_commit_version:bigint>"
    assert sorted(frame.collect()) == [(4, 4), (6, 6)]


@contextmanager
def session_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        register(spark)


def test_a_timestamp_without_a_zone_is_read_in_the_sessions(spark: SparkSession, table: Table) -> None:
    with session_zone(spark, "America/New_York"):
        register(spark)
        third = table.at(version=3).timestamp.astimezone(ZoneInfo("America/New_York"))
        for text in (third.replace(tzinfo=None).isoformat(), third.isoformat()):
            assert numbers(spark, table, timestampAsOf=text) == [1, 1, 2, 2, 3, 3]
            assert numbers(spark, table, after=text) == [4, 4, 6]
            assert numbers(spark, table, changes="append", endingTimestamp=text) == [1, 1, 2, 2, 3, 3]


@PYTHON_SOURCE
def test_a_zone_that_changed_after_register_is_an_error_where_it_matters(spark: SparkSession, table: Table) -> None:
    third = table.at(version=3).timestamp
    with session_zone(spark, "America/New_York"):
        assert numbers(spark, table, timestampAsOf=third.isoformat()) == [1, 1, 2, 2, 3, 3]
        message = (
            r"time zone changed from UTC to America/New_York after register\(spark\).*call register\(spark\) again"
        )
        for name in ("timestampAsOf", "startingTimestamp"):
            with pytest.raises(PySparkException, match=message):
                numbers(spark, table, **{name: third.replace(tzinfo=None).isoformat()})


@JVM_SOURCE
def test_a_timestamp_without_a_zone_is_read_in_the_zone_of_the_moment(spark: SparkSession, table: Table) -> None:
    third = table.at(version=3).timestamp
    with session_zone(spark, "America/New_York"):
        local = third.astimezone(ZoneInfo("America/New_York")).replace(tzinfo=None)
        assert numbers(spark, table, timestampAsOf=local.isoformat()) == [1, 1, 2, 2, 3, 3]


def test_columns_and_where(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path, columns="n", where="part = 1 and tags is not null and n between 2 and 3")
    assert frame.columns == ["n"]
    assert sorted(frame.collect()) == [(2,), (3,)]


def test_a_given_schema(spark: SparkSession, table: Table) -> None:
    frame = spark.read.format("tidelog").schema("n int, part string").option("versionAsOf", 1).load(table.path)
    assert sorted(frame.collect()) == [(1, "0"), (1, "1")]


def test_a_table_joined_with_itself(spark: SparkSession, table: Table) -> None:
    now, then = read(spark, table.path), read(spark, table.path, versionAsOf=2)
    assert now.join(then, ["part", "n"], "left_anti").count() == 5


def test_rows_in_a_deletion_vector_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("n", pa.int64())]))
    table.insert([{"n": n} for n in range(10)])
    delete_rows(table, [0, 3, 9])
    assert numbers(spark, table) == [1, 2, 4, 5, 6, 7, 8]
    assert numbers(spark, table, versionAsOf=1) == list(range(10))


def test_errors_as_spark_shows_them(spark: SparkSession, table: Table) -> None:
    """test_source.py has the other errors."""
    with pytest.raises(
        Exception, match="TIDELOG_CONFIGURATION: the option 'mergeSchema' of Delta is not supported; leave"
    ):
        read(spark, table.path, mergeSchema="true")
    with pytest.raises(Exception, match="TIDELOG_HISTORY_RANGE: version 99 is not in the log; the available versions"):
        read(spark, table.path, versionAsOf=99).collect()
