"""Queries that a sink refuses: their checkpoint is in the table's folder, or their output mode repeats rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from tests.lanes import full
from tests.streaming.support import BatchFunction, Input, drain, numbers_in, refused, run_to_end
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import Sink, Sinks, capture

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


def require_nothing_written(folder: Path) -> None:
    assert not list(folder.rglob("_delta_log"))


@pytest.mark.parametrize("checkpoint", ["base/link/a/cp", "base", *full(("base/table/cp",), ("base/table",))])
def test_a_checkpoint_in_the_folder_of_the_table_is_refused(
    spark: SparkSession, source: Input, tmp_path: Path, checkpoint: str
) -> None:
    (tmp_path / "base" / "table").mkdir(parents=True)
    (tmp_path / "base" / "link").symlink_to(tmp_path / "base" / "table")
    path, place = f"file://{tmp_path}/base/table/", tmp_path / checkpoint
    error = refused(source.put().stream(spark), Sink(path), place, ConfigurationError)
    assert str(tmp_path / "base" / "table") in error.message
    assert "checkpointLocation" in error.advice
    with pytest.raises(ConfigurationError, match="checkpoint"):
        Sink(path, checkpoint=str(place))
    require_nothing_written(tmp_path)


def test_a_checkpoint_that_was_moved_out_goes_on(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    drain(source.put().stream(spark), Sink(str(path)), tmp_path / "cp")
    (tmp_path / "cp").rename(path / "cp")
    refused(source.put().stream(spark), Sink(str(path)), path / "cp", ConfigurationError)
    (path / "cp").rename(tmp_path / "moved")
    drain(source.stream(spark), Sink(str(path)), tmp_path / "moved")
    assert numbers_in(path) == source.numbers


@pytest.mark.full
def test_no_other_table_of_the_sink_may_have_the_checkpoint(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    table, other, inside = str(tmp_path / "table"), str(tmp_path / "other"), tmp_path / "other" / "cp"
    captured = capture.sink(table, keys=["n"], dead_letters=other)

    def of_capture(batch: DataFrame, number: int) -> None:
        captured(capture.debezium(batch, schema="n long", keys=["n"]), number)

    sinks: list[BatchFunction] = [
        Sink(table, mode="upsert", keys=["n"], dead_letters=Sink(other, name="dead")),
        of_capture,
        Sinks(lambda _: Sink(table), parked=other, by=F.lit("t")),
    ]
    rows = source.put().stream(spark)
    records = rows.select(F.lit("{}").alias("value"), F.lit(0).alias("partition"), F.col("n").alias("offset"))
    for sink in sinks:
        refused(records if sink is of_capture else rows, sink, inside, ConfigurationError)


def counts(source: Input, spark: SparkSession) -> DataFrame:
    return source.stream(spark).groupBy((F.col("n") % 3).alias("k")).count()


def test_complete_mode_is_refused_by_a_sink_that_appends(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    source.put()
    caught: list[ConfigurationError] = []

    def function(batch: DataFrame, number: int) -> None:
        try:
            Sink(str(tmp_path / "table"))(batch, number)
        except ConfigurationError as error:
            caught.append(error)
            batch.count()  # what Spark expects of a query with state

    run_to_end(counts(source, spark).writeStream.outputMode("complete").foreachBatch(function), tmp_path / "cp")
    (error,) = caught
    assert "outputMode('complete')" in error.message
    assert "mode='upsert'" in error.advice
    assert "mode='overwrite-partitions'" in error.advice
    assert "append_complete=True" in error.advice
    require_nothing_written(tmp_path)


@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        ("complete", {"mode": "upsert", "keys": ["k"]}),
        *full(
            ("complete", {"mode": "overwrite-partitions", "partition_by": ["k"]}),
            ("update", {"mode": "upsert", "keys": ["k"]}),
        ),
    ],
)
def test_modes_that_go_together(
    spark: SparkSession, source: Input, tmp_path: Path, mode: str, arguments: dict[str, Any]
) -> None:
    source.put(3)
    sink = Sink(str(tmp_path / "table"), **arguments)
    run_to_end(counts(source, spark).writeStream.outputMode(mode).foreachBatch(sink), tmp_path / "cp")
    rows = Table.open(str(tmp_path / "table")).scan().to_arrow().to_pylist()
    assert {row["k"]: row["count"] for row in rows} == {0: 10, 1: 10, 2: 10}
    assert len(rows) == 3


@pytest.mark.full
def test_results_are_appended_if_the_caller_says_so(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """A function can leave out what was there before, or keep every result under the number of its batch."""
    source.put(2)
    latest = Sink(str(tmp_path / "latest"), name="latest", append_complete=True)
    history = Sink(str(tmp_path / "history"), append_complete=True)

    def function(batch: DataFrame, number: int) -> None:
        latest(batch.where(F.col("k") == number), number)
        history(batch.withColumn("batch", F.lit(number)), number)

    run_to_end(counts(source, spark).writeStream.outputMode("complete").foreachBatch(function), tmp_path / "cp")
    rows = Table.open(str(tmp_path / "latest")).scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["count"]) for row in rows) == [(0, 4), (1, 7)]
    rows = Table.open(str(tmp_path / "history")).scan().to_arrow().to_pylist()
    found = sorted((row["batch"], row["k"], row["count"]) for row in rows)
    assert found == [(0, 0, 4), (0, 1, 3), (0, 2, 3), (1, 0, 7), (1, 1, 7), (1, 2, 6)]


@pytest.mark.full
def test_many_tables_in_complete_mode(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """Each table is judged by its own sink, and records are parked in any case."""
    source.put()

    def make(name: str) -> Sink:
        return Sink(str(tmp_path / name)) if name == "0" else Sink(str(tmp_path / name), mode="upsert", keys=["k"])

    sinks = Sinks(make, parked=str(tmp_path / "parked"), by="k")
    run_to_end(counts(source, spark).writeStream.outputMode("complete").foreachBatch(sinks), tmp_path / "cp")
    assert {name: "outputMode('complete')" in reason for name, reason in sinks.failed.items()} == {"0": True}
    assert Table.open(str(tmp_path / "parked")).scan(columns=["k", "count"]).to_arrow().to_pylist() == [
        {"k": 0, "count": 4}
    ]
    assert [Table.open(str(tmp_path / name)).scan().count() for name in ("1", "2")] == [1, 1]


@pytest.mark.full
def test_update_mode_appends_what_changed(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    source.put(2)
    sink = Sink(str(tmp_path / "table"))
    run_to_end(counts(source, spark).writeStream.outputMode("update").foreachBatch(sink), tmp_path / "cp")
    rows = Table.open(str(tmp_path / "table")).scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["count"]) for row in rows) == [(0, 4), (0, 7), (1, 3), (1, 7), (2, 3), (2, 6)]


@pytest.mark.full
def test_records_that_are_refused_are_kept_in_complete_mode(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    """They go to tables that only take appends."""
    null = F.when(F.col("k") > 0, F.col("k")).alias("k")
    source.put()
    sink = Sink(
        str(tmp_path / "table"), mode="upsert", keys=["k"], dead_letters=Sink(str(tmp_path / "dead"), name="dead")
    )
    stream = counts(source, spark).select(null, "count")
    run_to_end(stream.writeStream.outputMode("complete").foreachBatch(sink), tmp_path / "cp")
    assert Table.open(str(tmp_path / "dead")).scan(columns=["count"]).to_arrow() == pa.table({"count": [4]})
