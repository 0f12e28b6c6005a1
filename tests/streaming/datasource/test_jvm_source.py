"""What the class of the JVM behind `format("tidelog")` has to itself; the other files run over both sources."""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from collections.abc import Mapping
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.streaming.support import (
    JVM_SOURCE,
    NUMBERS,
    drain,
    drain_feed,
    feed,
    read,
    run_to_end,
    wait_until,
)
from tidelog.log import Table
from tidelog.streaming import Feed, TidelogDataSource, register, spark_versions
from tidelog.streaming.datasource import file_partitions, frames, jvm_source
from tidelog.streaming.datasource.jvm_classes import JvmClasses
from tidelog.streaming.jvm_reading import jvm_rows

pytestmark = [pytest.mark.spark, JVM_SOURCE]

ONLY_N = "n,-_change_type,-_commit_version,-_commit_timestamp"
EVERY = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("list", pa.list_(pa.int64())),
        ("place", pa.struct([("city", pa.string())])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "n": n,
        "s": ["a'b", "z", "", "\\x"][n % 4],
        "d": [dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(2026, 1, n + 1)][n % 3],
        "at": [dt.datetime(1500, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, n, tzinfo=dt.UTC)][n % 2],
        "m": Decimal(n) / 4,
        "f": [float("nan"), 1.5, -0.0][n % 3],
        "b": bool(n % 2),
        "list": [n],
        "place": {"city": f"c{n % 2}"},
    }
    for n in range(12)
]
CONDITIONS = [
    "n > 3 AND n <= 7",
    "n IN (1, 2, 99)",
    "NOT (n = 4) OR s = 'z'",
    "n <=> NULL",
    's = "a\'b"',
    "s >= 'a' AND s <> 'z'",
    r"s = '\\x'",
    "d = DATE '1582-10-04'",
    "d > DATE '2026-01-05'",
    "d <= DATE '1582-10-15'",
    "at < TIMESTAMP '2026-01-01 00:06:00Z'",
    "at = TIMESTAMP '1500-01-01 00:00:00Z'",
    "m >= 1.25",
    "f = double('NaN')",
    "f > 1",
    "NOT (f < 2)",
    "b AND n > 2",
    "list = array(3L)",
    "place.city = 'c1'",
    "d IS NOT NULL AND s LIKE 'a%'",
    "n IS NULL",
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path / "table"), NUMBERS)


def put(table: Table, *numbers: int) -> None:
    table.insert([{"n": number} for number in numbers])


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Table:
    table = Table.create(str(tmp_path_factory.mktemp("every") / "table"), EVERY)
    for start in range(0, 12, 3):
        table.insert(pa.Table.from_pylist(ROWS[start : start + 3], schema=EVERY))
    table.insert([{"n": None, "s": None}])
    return table


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_pushed_filter_keeps_every_row_that_spark_keeps(spark: SparkSession, every: Table, condition: str) -> None:
    frame = read(spark, every.path)
    local = spark.createDataFrame(frame.rdd, frame.schema)  # nothing can be pushed into it
    expected = sorted(row["n"] or -1 for row in local.where(condition).collect())
    assert sorted(row["n"] or -1 for row in frame.where(condition).collect()) == expected


@pytest.mark.parametrize("java_8_api", ["true", "false"])
def test_filters_leave_out_files(
    spark: SparkSession, every: Table, monkeypatch: pytest.MonkeyPatch, java_8_api: str
) -> None:
    asked: list[str | None] = []
    rows = jvm_rows.snapshot_rows

    def noted(*arguments: Any) -> DataFrame:
        asked.append(arguments[-1])
        return rows(*arguments)

    monkeypatch.setattr(frames, "snapshot_rows", noted)
    spark.conf.set("spark.sql.datetime.java8API.enabled", java_8_api)
    try:
        frame = read(spark, every.path)
        for condition in ("n > 9", "d = DATE '2026-01-12'", "at = TIMESTAMP '2026-01-01 00:11:00Z'", "m = 2.75"):
            assert frame.where(condition).count() == (2 if condition == "n > 9" else 1)
            scan = Table.open(every.path).scan(asked[-1])
            assert scan.files.num_rows == 1, asked[-1]
    finally:
        spark.conf.unset("spark.sql.datetime.java8API.enabled")


@pytest.mark.parametrize("count", [2, 60, pytest.param(150, marks=pytest.mark.full)])
def test_a_long_chain_of_conditions(spark: SparkSession, every: Table, count: int) -> None:
    """One that is longer than a predicate may be is left to Spark."""
    frame = read(spark, every.path)
    either = reduce(or_, [F.col("n") == number for number in range(count)])
    both = reduce(and_, [F.col("n") > -number for number in range(1, count)])
    assert (frame.where(either).count(), frame.where(both).count()) == (min(count, 12), 12)
    assert frame.where(F.col("n").isin(list(range(count * 10)))).count() == 12


def test_a_query_reads_only_its_columns(spark: SparkSession, every: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    rows = jvm_rows.snapshot_rows

    def noted(*arguments: Any) -> DataFrame:
        asked.append(arguments[3])
        return rows(*arguments)

    monkeypatch.setattr(frames, "snapshot_rows", noted)
    frame = read(spark, every.path)
    assert frame.agg(F.max("n")).collect() == [(11,)]
    assert frame.count() == 13
    assert asked == [["n"], ["n"]]


def test_all_scans_of_a_query_read_one_version(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table, 1)
    opened = file_partitions.table_to_read

    def then_one_more(options: Any) -> Any:
        found = opened(options)
        put(table, 0)
        return found

    frame = read(spark, table.path)
    both = frame.selectExpr("count(*) AS a").crossJoin(frame.selectExpr("count(*) AS b"))
    changed = read(spark, table.path, changes="append").selectExpr("count(*) AS c")
    monkeypatch.setattr(frames, "table_to_read", then_one_more)
    [row] = both.crossJoin(changed).collect()
    assert (row["a"], row["b"], row["c"]) == (1, 1, 1)


def test_a_batch_function_reads_what_it_has_written(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    seen: list[int] = []
    put(table, 1)
    put(table, 2)

    def function(batch: DataFrame, _: int) -> None:
        for _ in range(2):
            batch.write.format("tidelog").mode("append").save(target)
            seen.append(read(spark, target).count())

    drain(feed(spark, table.path), function, tmp_path / "cp")
    assert seen == [2, 4]


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_that_found_nothing_keeps_its_start(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    put(table, 1)
    assert drain_feed(spark, table.path, tmp_path / "cp", after="latest") in ([], [[]])
    put(table, 2)
    assert drain_feed(spark, table.path, tmp_path / "cp", after="latest") == [[(2,)]]


def test_a_restart_does_not_need_what_its_last_batch_has_read(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """Spark plans the last finished micro-batch again when a query starts."""
    put(table, 1)
    table.delete("n = 1")
    assert drain_feed(spark, table.path, tmp_path / "cp", changes="cdc", columns=ONLY_N) == [[(1,), (1,)]]
    table.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    table.checkpoint()
    assert table.expire(older_than=dt.timedelta(0)).earliest_version == 3
    put(table, 2)
    assert drain_feed(spark, table.path, tmp_path / "cp", changes="cdc", columns=ONLY_N) == [[(2,)]]


@pytest.mark.full
def test_a_query_of_the_python_source_goes_on(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """And back: the checkpoints of both are the same."""

    class PythonSource(TidelogDataSource):
        @classmethod
        def name(cls) -> str:
            return "tidelog_in_python"

    spark.dataSource.register(PythonSource)
    batches: list[list[int]] = []

    def function(batch: DataFrame, _: int) -> None:
        batches.append(sorted(row["n"] for row in batch.collect()))

    for number, name in enumerate(["tidelog_in_python", "tidelog", "tidelog_in_python", "tidelog"]):
        put(table, number)
        drain(spark.readStream.format(name).load(table.path), function, tmp_path / "cp")
    assert batches == [[0], [1], [2], [3]]


def test_the_stop_of_a_query_is_no_error(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    for number in range(5):
        put(table, number)
        writer = feed(spark, table.path).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "cp")).start()
        if number % 2:
            wait_until(lambda query=query: query.lastProgress is not None, "a micro-batch has run")  # type: ignore[misc]
        query.stop()
        assert query.exception() is None


def test_a_row_with_a_vector_is_read_by_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": True}
    table = Table.create(str(tmp_path / "vectors"), NUMBERS, properties=properties)
    put(table, *range(10))
    put(table, *range(10, 20))
    table.delete("n % 3 = 0")
    progress: list[Mapping[str, Any]] = []
    writer = feed(spark, table.path, initialSnapshot="true").writeStream.format("memory").queryName("live")
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).start()
    try:
        query.processAllAvailable()
        progress += [json.loads(one.json) for one in query.recentProgress]
    finally:
        query.stop()
    live = [n for n in range(20) if n % 3]
    assert sorted(row["n"] for row in spark.table("live").collect()) == live
    assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [len(live)]


# --- Feed -------------------------------------------------------------------------------------------------------------


def test_the_frames_of_a_feed_take_filters_and_columns(spark: SparkSession, every: Table, tmp_path: Path) -> None:
    plans: list[str] = []

    def function(batch: DataFrame, _: int) -> None:
        frame: Any = batch.where("n > 9").select("s")
        plans.append(frame._jdf.queryExecution().executedPlan().toString())

    run_to_end(Feed(spark, every.path).foreachBatch(function), tmp_path / "cp")
    [plan] = plans
    assert "GreaterThan(n,9)" in plan
    assert "ReadSchema: struct<n:bigint,s:string>" in plan


def test_two_queries_of_one_feed_run_at_once(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    rows: dict[int, list[int]] = {0: [], 1: []}

    def start(number: int) -> Any:
        def function(batch: DataFrame, _: int) -> None:
            rows[number] += [row["n"] for row in batch.collect()]

        return feed_.foreachBatch(function).option("checkpointLocation", str(tmp_path / str(number))).start()

    feed_ = Feed(spark, table.path)
    queries = [start(number) for number in rows]
    try:
        for number in range(10):
            put(table, number)
        wait_until(lambda: all(len(found) >= 10 for found in rows.values()), "both have read all rows")
    finally:
        for query in queries:
            query.stop()
    assert [sorted(found) for found in rows.values()] == [list(range(10))] * 2


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_all_sessions_and_threads_know_the_format(spark: SparkSession, table: Table) -> None:
    put(table, 1)
    assert read(spark.newSession(), table.path).count() == 1
    jvm: Any = spark._jvm
    before = JvmClasses(jvm).load("tidelog.DefaultSource")
    register(spark)
    assert before.equals(
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass("tidelog.DefaultSource")
    )


def test_a_read_in_one_session_leaves_the_frames_of_another_alone(spark: SparkSession, table: Table) -> None:
    put(table, 1)
    other = spark.newSession()
    before = RDD.toDF
    assert read(other, table.path).count() == 1
    assert RDD.toDF is before


def test_a_query_that_ended_leaves_no_thread(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm_source, "_LAST_ANSWER_S", 0.1)
    put(table, 1)

    def run(number: int) -> None:
        writer = feed(spark, table.path).writeStream.format("noop")
        run_to_end(writer, tmp_path / str(number))

    run(0)
    before = threading.active_count()
    for number in range(1, 6):
        run(number)
    wait_until(lambda: threading.active_count() <= before + 1, "the threads of the queries have ended")


def test_a_plan_hides_storage_options(spark: SparkSession, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    put(table, 1)
    options = {"storageOption.key": "hidden-in-plans"}
    frame = spark.read.format("tidelog").options(**options).load(table.path)
    frame.explain(extended=True)
    if spark_versions.INSTALLED >= (4, 2):  # older ones show the options of a stream
        spark.readStream.format("tidelog").options(**options).load(table.path).explain(extended=True)
    with pytest.raises(PySparkException) as caught:
        spark.range(1).write.format("tidelog").mode("append").options(**options, no="x").save(table.path)
    assert "hidden-in-plans" not in capsys.readouterr().out + str(caught.value)


def test_a_spark_that_does_not_take_the_class(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def not_found(*_: Any) -> Any:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr(JvmClasses, "load", not_found)
    with caplog.at_level(logging.WARNING):
        assert not jvm_source.install(spark)
    assert "its rows pass through Python" in caplog.text


def test_without_pinned_threads_the_format_is_the_python_source(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm_source, "ClientServer", int)
    assert not jvm_source.install(spark)


@pytest.mark.parametrize("kind", ["frame", "view", "catalog"])
def test_another_table_in_its_place_is_an_error(spark: SparkSession, table: Table, kind: str) -> None:
    """Spark would misread rows whose types have changed, or crash."""
    put(table, 1)
    loaded = read(spark, table.path)
    if kind == "view":
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW replaced USING tidelog OPTIONS (path '{table.path}')")
        loaded = spark.table("replaced")
    elif kind == "catalog":
        loaded = spark.sql(f"SELECT * FROM tidelog.`{table.path}`")
    Table.drop(table.path)
    Table.create(table.path, pa.schema([("n", pa.string())])).insert([{"n": "a text that is long enough"}])
    with pytest.raises(PySparkException, match=r"TIDELOG_SCHEMA_MISMATCH: column 'n' of .* is string now, and was"):
        loaded.collect()
    assert read(spark, table.path).count() == 1
