"""Folders that Spark, pandas, Polars and DuckDB wrote become tables that every reader reads and every writer writes."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.interop.delta_spark import DeltaSpark
from tests.interop.readers import assert_same_everywhere
from tests.streaming.support import Input, forget_last_commit
from tidelog.compaction_daemon import compact
from tidelog.log import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.full]

DAYS = (dt.date(2026, 1, 30), dt.date(2026, 1, 31))
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("day", pa.date32()),
        ("city", pa.string()),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {
            "n": n,
            "s": None if n % 3 == 0 else f"text {n}",
            "x": math.nan if n == 4 else n / 2,
            "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n),
            "tags": [str(n), None] if n % 2 else None,
            "day": DAYS[n % 2],
            "city": None if n % 4 == 0 else f"São Paulo/{n % 4} %",
        }
        for n in range(12)
    ],
    SCHEMA,
)
# Without the features that delta-rs cannot write.
OLD = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}
PARTITIONS = ["day", "city"]


def by_spark(spark: SparkSession, rows: pa.Table, path: Path, kind: str = "TIMESTAMP_MICROS") -> None:
    name = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(name, kind)
    try:
        spark.createDataFrame(rows).write.partitionBy(*PARTITIONS).parquet(str(path))
    finally:
        spark.conf.unset(name)


def by_pandas(_: SparkSession, rows: pa.Table, path: Path) -> None:
    # With Arrow's types, because pandas' own make NaN of null.
    rows.to_pandas(types_mapper=pd.ArrowDtype).to_parquet(path, partition_cols=PARTITIONS, coerce_timestamps="us")


def by_polars(_: SparkSession, rows: pa.Table, path: Path) -> None:
    pl.DataFrame(rows).write_parquet(path, partition_by=PARTITIONS)


def by_duckdb(_: SparkSession, rows: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.execute(f"COPY rows TO '{path}' (FORMAT parquet, PARTITION_BY (day, city))")


WRITERS: Mapping[str, Callable[[SparkSession, pa.Table, Path], None]] = {
    "spark": by_spark,
    "spark, int96": lambda spark, rows, path: by_spark(spark, rows, path, "INT96"),
    "pandas": by_pandas,
    "polars": by_polars,
    "duckdb": by_duckdb,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_reader_and_writer_goes_on(writer: str, spark: SparkSession, delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    WRITERS[writer](spark, ROWS, path)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*.parquet")}
    above = delta.sql(f"SELECT n FROM parquet.`{path}` WHERE x > 100")
    table = Table.convert(str(path), partition_by=PARTITIONS, properties=OLD)
    assert table.schema.equals(SCHEMA), table.schema
    assert_same_everywhere(table.path, ROWS, delta)
    # NaN is above all numbers for Spark, unless a file's own bounds leave it out. The table's must not do so.
    assert delta.sql(f"SELECT n FROM delta.`{path}` WHERE x > 100") == above

    delta.append(str(path), f"SELECT 100L AS n, s, x, at, tags, day, city FROM delta.`{path}` WHERE n = 1")
    write_deltalake(DeltaTable(path), ROWS.slice(1, 1), mode="append")
    table.refresh().delete("n = 1")
    table.update("n = 100", {"n": "1"})
    assert_same_everywhere(table.path, ROWS, delta)
    assert compact(table, "major").did_anything
    assert_same_everywhere(table.path, ROWS, delta)
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_rows_that_a_file_sink_did_not_commit_are_left_out(
    spark: SparkSession, delta: DeltaSpark, tmp_path: Path
) -> None:
    """A batch whose files are written, and whose log entry is not, is written again by the next run."""
    source = Input(tmp_path / "input").put(3)
    path, checkpoint = tmp_path / "sink", tmp_path / "cp"

    def run() -> None:
        stream = source.stream(spark).writeStream.option("checkpointLocation", str(checkpoint))
        stream.trigger(availableNow=True).start(str(path), format="parquet").awaitTermination()

    run()
    newest = max(int(file.name) for file in (path / "_spark_metadata").iterdir() if file.name.isdigit())
    (path / "_spark_metadata" / str(newest)).unlink()
    (path / "_spark_metadata" / f".{newest}.crc").unlink()
    forget_last_commit(checkpoint)
    run()
    assert len(list(path.glob("*.parquet"))) == 4
    assert pa.parquet.read_table([*path.glob("*.parquet")]).num_rows > len(source.numbers)
    table = Table.convert(str(path))
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == source.numbers
    assert table.transactions == {"_spark_metadata": newest}
    assert_same_everywhere(table.path, table.scan().to_arrow(), delta)
