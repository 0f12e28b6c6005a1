"""A batch that a sink skips is computed if its query keeps state: the next batch reads what this one writes.

A crash between the sink's commit and Spark's own leaves a checkpoint without `commits/<n>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.lanes import full
from tests.streaming.sink.support import Reports
from tests.streaming.support import BatchFunction, Input, forget_last_commit, run_to_end
from tidelog.log import Table
from tidelog.streaming import Sink, Sinks, capture

pytestmark = pytest.mark.spark

_ROCKS = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
Query = Callable[[DataFrame], DataFrame]
MakeSink = Callable[[Path], Any]


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.fixture(params=[pytest.param(_ROCKS, id="rocksdb"), pytest.param({}, id="hdfs", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    small = {"spark.sql.shuffle.partitions": "2", "spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
    settings = {**request.param, **small}
    own = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in own.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy((F.col("n") % 2).alias("n")).agg(F.count("*").alias("count"))


def windows(rows: DataFrame) -> DataFrame:
    timed = rows.withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "1 second")
    return timed.groupBy(F.window("at", "5 seconds")).count().select(F.unix_seconds("window.start").alias("n"), "count")


def distinct(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["n"])


def many(rows: DataFrame) -> DataFrame:
    """So many bytes that a task waits until Python has read them."""
    longer = rows.select(F.explode(F.transform(F.sequence(F.lit(0), F.lit(999)), lambda k: k * 1_000 + F.col("n"))))
    longer = longer.toDF("n")
    return longer.dropDuplicates(["n"]).withColumn("text", F.repeat(F.lit("x"), 5_000))


def joined(rows: DataFrame) -> DataFrame:
    timed = rows.withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "1 second")
    other = timed.toDF("m", "then")
    return timed.join(other, F.expr("n = m AND then BETWEEN at AND at + INTERVAL 1 SECOND")).select("n")


def sums(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    before = state.getOption
    total = (before[0] if before else 0) + sum(int(frame["n"].sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"n": [key[0]], "count": [total]})


def by_pandas(rows: DataFrame) -> DataFrame:
    grouped = rows.withColumn("k", F.col("n") % 2).groupBy("k")
    return grouped.applyInPandasWithState(sums, "n long, count long", "total long", "update", "NoTimeout")


def of_upsert(folder: Path) -> Sink:
    return Sink(str(folder / "table"), mode="upsert", keys=["n"])


def of_append(folder: Path) -> Sink:
    return Sink(str(folder / "table"))


def of_letters(folder: Path) -> Sink:
    letters = Sink(str(folder / "dead"), name="dead")
    return Sink(str(folder / "table"), mode="upsert", keys=["n"], dead_letters=letters)


def of_sinks(folder: Path) -> Sinks:
    return Sinks(lambda _: of_upsert(folder), parked=str(folder / "parked"), by=F.lit("t"))


def of_parked(folder: Path) -> Sinks:
    """Of the only table, which refuses all."""
    return Sinks(lambda _: of_append(folder), parked=str(folder / "parked"), by=F.lit("no name"))


def of_two(folder: Path) -> BatchFunction:
    """Two in a row, without anything that keeps the rows for the second one."""
    first, second = Sink(str(folder / "log"), name="log"), of_upsert(folder)

    def both(batch: DataFrame, number: int) -> None:
        first(batch, number)
        second(batch, number)

    return both


def of_capture(folder: Path) -> BatchFunction:
    sink = capture.sink(str(folder / "table"), keys=["n"], dead_letters=str(folder / "dead"))

    def of_records(batch: DataFrame, number: int) -> None:
        source = F.struct(F.lit("postgresql").alias("connector"), F.lit(number + 1).alias("lsn")).alias("source")
        columns = [F.struct("n", "count").alias("after"), F.lit("c").alias("op"), source]
        value = F.to_json(F.struct(*columns)).alias("value")
        records = batch.select(value, F.lit(0).alias("partition"), F.lit(number).alias("offset"))
        sink(capture.debezium(records, schema="n long, count long", keys=["n"]), number)

    return of_records


def of_write(folder: Path) -> BatchFunction:
    """A write of a frame that says which batch it is."""

    def write(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("tidelog").mode("append").option("txnAppId", "app")
        writer.option("txnVersion", number).save(str(folder / "table"))

    return write


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("query", "mode", "make"),
    [
        (totals, "update", of_upsert),
        *full(
            (windows, "append", of_append),
            (distinct, "append", of_append),
            (joined, "append", of_append),
            (by_pandas, "update", of_upsert),
            (totals, "complete", of_upsert),
            (totals, "update", of_letters),
            (totals, "update", of_sinks),
            (totals, "update", of_parked),
            (totals, "update", of_two),
            (totals, "update", of_capture),
            (many, "append", of_write),
        ),
    ],
)
def test_a_query_with_state_goes_on_after_a_batch_that_is_skipped(
    spark: SparkSession, source: Input, tmp_path: Path, query: Query, mode: str, make: MakeSink
) -> None:
    def run() -> None:
        stream = query(source.stream(spark))
        run_to_end(stream.writeStream.foreachBatch(make(tmp_path)).outputMode(mode), tmp_path / "cp")

    source.put()
    run()
    for _ in range(2):
        forget_last_commit(tmp_path / "cp")
        run()
        source.put()
        run()
    names = [name for name in ("table", "parked") if (tmp_path / name).exists()]
    rows = [row for name in names for row in Table.open(str(tmp_path / name)).scan().to_arrow().to_pylist()]
    if query is totals and make is not of_parked:
        assert sorted(row["count"] for row in rows) == [15, 15]
    elif query is many:
        assert len(rows) == len({row["n"] for row in rows}) == 1_000 * len(source.numbers)
    elif query in (distinct, joined):
        assert sorted(row["n"] for row in rows) == sorted({row["n"] for row in rows})
        assert {row["n"] for row in rows} >= set(source.numbers[1:-2])  # the first is late for a watermark at 0
    elif query is windows:
        assert {row["n"]: row["count"] for row in rows} == dict.fromkeys(range(0, 25, 5), 5)
    elif query is by_pandas:
        assert sorted(row["count"] for row in rows) == [sum(range(0, 30, 2)), sum(range(1, 30, 2))]


def test_a_skipped_batch_without_state_is_not_computed(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    calls = spark.sparkContext.accumulator(0)

    def counted(n: int) -> int:
        calls.add(1)
        return n

    column = F.udf(counted, "long", useArrow=False).asNondeterministic()
    for skipped in (False, True):
        reports = Reports(of_append(tmp_path))
        source.put(0 if skipped else 1)
        run_to_end(source.stream(spark).withColumn("m", column("n")).writeStream.foreachBatch(reports), tmp_path / "cp")
        assert [report.skipped for report in reports.all] == [skipped]
        assert calls.value == 10
        forget_last_commit(tmp_path / "cp")
