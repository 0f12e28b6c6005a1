"""What Spark reads: columns, partitions, row groups and files that a query does not need are left out."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.log.support import live_files
from tests.streaming.jvm_reading.support import assert_same, is_read_by_tidelog, physical_plan
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, NotAppendOnlyError, PredicateError, TableNotFoundError
from tidelog.streaming import changes, read
from tidelog.streaming.executors.session import session_settings
from tidelog.streaming.jvm_reading import file_scan

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("text", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    for start in (0, 10):
        table.insert([{"id": n, "part": "ab"[n % 2], "text": str(n)} for n in range(start, start + 10)])
    return table


def number_of_files(frame: DataFrame) -> int:
    """The files that the scan of a frame really reads."""
    frame.collect()
    plan: Any = frame._jdf.queryExecution().executedPlan()
    plan = plan.finalPhysicalPlan() if "AdaptiveSparkPlan" in plan.nodeName() else plan
    leaves = plan.collectLeaves()
    return sum(leaves.apply(place).metrics().apply("numFiles").value() for place in range(leaves.size()))


def test_a_query_reads_only_what_it_needs(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path).filter("id > 1").select("id")
    plan = physical_plan(frame)
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,1)]" in plan
    assert "ReadSchema: struct<id:bigint>" in plan
    assert number_of_files(frame) == 4
    assert number_of_files(read(spark, table.path).filter("part = 'a'")) == 2
    assert number_of_files(changes(spark, table.path).filter("_commit_version > 1 AND part = 'b'")) == 1


def test_where_leaves_out_files_by_their_statistics(spark: SparkSession, table: Table) -> None:
    assert number_of_files(read(spark, table.path, where="id >= 12")) == 2
    assert number_of_files(changes(spark, table.path, where="id >= 12 AND part = 'a'")) == 1


def test_row_groups_are_left_out(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path).filter("id > 100").select("text")
    assert frame.collect() == []
    plan: Any = frame._jdf.queryExecution().executedPlan()
    plan = plan.finalPhysicalPlan() if "AdaptiveSparkPlan" in plan.nodeName() else plan
    assert plan.collectLeaves().apply(0).metrics().apply("numOutputRows").value() == 0


def test_nan_is_above_all_numbers_whoever_wrote_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """In Spark. Arrow leaves NaN out of a row group's bounds, by which Spark would skip it."""
    path = str(tmp_path / "table")
    Table.create(path, pa.schema([("id", pa.int64()), ("f", pa.float64()), ("s", pa.struct([("f", pa.float32())]))]))
    for start in (0, 3):
        numbers = [0.5, float("nan"), 0.5]
        rows = [(start + place, number, (number,)) for place, number in enumerate(numbers)]
        spark.createDataFrame(rows, "id long, f double, s struct<f: float>").coalesce(1).write.format("tidelog").mode(
            "append"
        ).save(path)
    for _ in range(2):
        for condition in ("f > 1", "f = double('nan')", "s.f > 1", "f <> 0.5"):
            assert {row.id for row in read(spark, path).filter(condition).select("id").collect()} == {1, 4}, condition
        compact(path)
    assert len(live_files(Table.open(path))) == 1


def test_no_columns(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path, columns=[])
    assert frame.columns == []
    assert frame.count() == 20
    assert "ReadSchema: struct<>" in physical_plan(read(spark, table.path).select())


def test_many_files_share_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), SCHEMA)
    for number in range(40):
        table.insert([{"id": number, "part": "a", "text": None}])
    assert read(spark, table.path).rdd.getNumPartitions() <= 4


def test_the_planner_knows_the_size_of_what_is_read(spark: SparkSession, table: Table) -> None:
    """So Spark broadcasts a small side of a join by itself."""
    sizes = {file.partition_values["part"]: 0 for file in live_files(table)}
    for file in live_files(table):
        sizes[file.partition_values["part"]] += file.size
    for frame, size in [
        (read(spark, table.path), sum(sizes.values())),
        (read(spark, table.path, where="part = 'a'"), sizes["a"]),
        (changes(spark, table.path), sum(sizes.values())),
    ]:
        statistics: Any = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().stats()
        assert statistics.sizeInBytes() == size


@pytest.mark.parametrize("statement", ["INSERT INTO rows_of_table", "INSERT OVERWRITE rows_of_table"])
@pytest.mark.parametrize("partition_by", [[], ["part"]], ids=["", "partitions"])
def test_nothing_is_written_through_a_view(
    spark: SparkSession, tmp_path: Path, partition_by: list[str], statement: str
) -> None:
    """Spark allows it for a view of files, and would write past the log, or delete the whole table."""
    table = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=partition_by)
    table.insert([{"id": 1, "part": "a", "text": "x"}])
    before = sorted(Path(table.path).rglob("*"))
    for frame in (read(spark, table.path), changes(spark, table.path)):
        frame.createOrReplaceTempView("rows_of_table")
        with pytest.raises(AnalysisException):
            spark.sql(f"{statement} SELECT * FROM rows_of_table LIMIT 0")
        with pytest.raises(AnalysisException):
            frame.limit(0).write.insertInto("rows_of_table", overwrite="OVERWRITE" in statement)
    spark.catalog.dropTempView("rows_of_table")
    assert sorted(Path(table.path).rglob("*")) == before


# --- settings of the session -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"spark.sql.files.ignoreMissingFiles": "true"},
        {"spark.sql.files.ignoreCorruptFiles": "true"},
        {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.adaptive.enabled": "false"},
    ],
    ids=["missing", "corrupt", "missing, not adaptive"],
)
def test_a_missing_or_damaged_file_is_an_error(spark: SparkSession, table: Table, setting: dict[str, str]) -> None:
    first, second = sorted(Path(table.path).rglob("*.parquet"))[:2]
    with session_settings(spark, setting):
        frame, feed = read(spark, table.path), changes(spark, table.path)
        content = bytearray(first.read_bytes())
        content[20] ^= 0xFF
        first.write_bytes(content)
        for damaged in (frame, feed):
            with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
                damaged.collect()
        first.unlink()
        second.unlink()
        for missing in (frame, feed):
            with pytest.raises(Py4JJavaError, match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
                missing.collect()


def test_settings_that_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("long", pa.int64()), ("when", pa.timestamp("us", "UTC")), ("wall", pa.timestamp("us"))])
    table = Table.create(str(tmp_path / "table"), schema, partition_by=["when"])
    table.insert(pa.table({"long": [1, 2], "when": [0, 1_000_000], "wall": [5, None]}, schema=schema))
    settings = {
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.mergeSchema": "true",
        "spark.sql.parquet.binaryAsString": "true",
        "spark.sql.parquet.int96TimestampConversion": "true",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
        "spark.sql.parquet.filterPushdown": "false",
        "spark.sql.sources.useV1SourceList": "",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "0",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }
    with session_settings(spark, settings):
        assert assert_same(read(spark, table.path), table.scan()) == 2
        assert assert_same(changes(spark, table.path), table.changes()) == 2
    assert spark.conf.get("spark.sql.caseSensitive") == "false"


def test_a_spark_without_the_internals(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another build of Spark can lack what the class needs: then tidelog's reader is used, and the log says so."""
    monkeypatch.setattr(file_scan, "_source", lambda: "public class ListedFiles extends Missing {}")
    monkeypatch.setattr(file_scan, "_compiled", {})
    with caplog.at_level(logging.WARNING):
        frame = read(spark, table.path)
    assert "slower" in caplog.text
    assert is_read_by_tidelog(frame)
    assert assert_same(frame, table.scan()) == 20


# --- errors ----------------------------------------------------------------------------------------------------------


def test_errors_before_any_task(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    table.delete("id = 1")
    with pytest.raises(NotAppendOnlyError):
        changes(spark, table.path, mode="append")
    with pytest.raises(PredicateError):
        read(spark, table.path, where="nothing = 1")
    with pytest.raises(ConfigurationError):
        read(spark, table.path, columns=["nothing"])
    with pytest.raises(ConfigurationError):
        read(spark, table.path, version=1, timestamp="2026-01-01T00:00:00Z")
    with pytest.raises(TableNotFoundError):
        changes(spark, str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="memory"):
        read(spark, Table.create("memory://jvm", SCHEMA).path)


def test_an_error_of_tidelog_s_reader_shows_its_code(spark: SparkSession, table: Table) -> None:
    frame = read(spark, table.path, where="id + 9223372036854775807 > 0")
    with pytest.raises(PySparkException, match="TIDELOG_PREDICATE"):
        frame.collect()
    feed = changes(spark, table.path, where="id + 1 > 0")
    for folder in Path(table.path).glob("part=*"):
        shutil.rmtree(folder)
    for file in Path(table.path).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(PySparkException, match="TIDELOG_HISTORY_RANGE"):
        feed.collect()


def test_a_file_that_lacks_a_required_column(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = Table.create(str(tmp_path / "table"), schema)
    table.insert([{"id": 1}])
    (file,) = Path(table.path).rglob("*.parquet")
    pq.write_table(pa.table({"other": [1]}), file)
    with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
        read(spark, table.path).collect()
