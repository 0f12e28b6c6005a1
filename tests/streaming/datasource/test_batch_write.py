"""`df.write.format("tidelog")` in a real Spark: one commit for each write, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full, full_but
from tests.streaming.support import JVM_SOURCE, PATIENCE_S, PYTHON_SOURCE, footprint, numbers_in, read
from tidelog.log import OperationClass, Table
from tidelog.log.errors import StoreUnavailableError
from tidelog.streaming.datasource import frames

pytestmark = pytest.mark.spark

MISMATCH = "TIDELOG_SCHEMA_MISMATCH"
SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


def frame(spark: SparkSession, first: int, last: int, tasks: int = 2) -> DataFrame:
    """The numbers from `first` up to but excluding `last`: even ones in partition a, odd ones in b."""
    return spark.range(first, last, 1, tasks).selectExpr("id as n", "if(id % 2 = 0, 'a', 'b') as part")


def append(data: DataFrame, path: Path | str, **options: str | int) -> None:
    data.write.format("tidelog").mode("append").options(**options).save(str(path))


def overwrite(data: DataFrame, path: Path | str, **options: str | int) -> None:
    data.write.format("tidelog").mode("overwrite").options(**options).save(str(path))


def data_files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts]


@pytest.mark.oldest
def test_an_append_creates_the_table_and_is_one_commit(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path)
    table = Table.open(str(path))
    assert (table.version, table.partition_by) == (1, ())
    assert table.schema == SCHEMA
    append(frame(spark, 10, 30, tasks=4), path)
    assert numbers_in(path) == list(range(30))
    assert read(spark, path).count() == 30
    (second, first, _) = table.refresh().history()
    assert (first.operation_class, second.operation_class) == (OperationClass.INSERT, OperationClass.INSERT)
    assert (second.metrics["numFiles"], second.metrics["numOutputRows"]) == ("4", "20")
    assert len(data_files(path)) == 6


def test_an_overwrite_replaces_the_table(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path)
    overwrite(frame(spark, 50, 55), path)
    assert numbers_in(path) == list(range(50, 55))
    table = Table.open(str(path))
    assert table.version == 2
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    assert table.at(version=1).scan().count() == 10
    overwrite(frame(spark, 0, 0), path)
    assert numbers_in(path) == []
    assert table.refresh().version == 3


def test_an_overwrite_creates_the_table(spark: SparkSession, path: Path) -> None:
    overwrite(frame(spark, 0, 10), path)
    assert numbers_in(path) == list(range(10))


def test_an_empty_frame_appends_nothing(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path)
    before = footprint(path)
    append(frame(spark, 0, 10).where("n < 0"), path)
    append(spark.createDataFrame([], "n long, part string"), path)
    assert footprint(path) == before
    overwrite(frame(spark, 0, 0), path)
    empty = footprint(path)
    overwrite(frame(spark, 0, 0), path)
    assert footprint(path) == empty


def test_partitions(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path, partitionBy=" part ")
    table = Table.open(str(path))
    assert table.partition_by == ("part",)
    assert table.at().num_files == 4

    overwrite(frame(spark, 20, 24).where("part = 'a'"), path, where="part = 'a'")
    assert numbers_in(path) == [1, 3, 5, 7, 9, 20, 22]
    overwrite(frame(spark, 30, 34).where("part = 'b'"), path, partitionOverwriteMode="Dynamic")
    assert numbers_in(path) == [20, 22, 31, 33]
    overwrite(frame(spark, 0, 0), path, partitionOverwriteMode="dynamic")
    assert numbers_in(path) == [20, 22, 31, 33]
    overwrite(frame(spark, 40, 44), path, partitionBy="part", partitionOverwriteMode="static")
    assert numbers_in(path) == [40, 41, 42, 43]
    assert table.refresh().partition_by == ("part",)


def test_columns_are_matched_by_name_and_cast_safely(spark: SparkSession, path: Path) -> None:
    schema = pa.schema([("extra", pa.string()), ("N", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    Table.create(str(path), schema)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        append(spark.range(3).selectExpr("timestamp'2026-03-08 01:30:00' as at", "cast(id as smallint) as n"), path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    rows = Table.open(str(path)).scan().to_arrow().to_pylist()
    assert sorted(row["N"] for row in rows) == [0, 1, 2]
    assert {(row["extra"], row["at"].isoformat()) for row in rows} == {(None, "2026-03-08T06:30:00+00:00")}


def test_a_write_with_a_key_happens_once(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path, txnAppId="job", txnVersion=3)
    # More unread rows than fit into the buffers between Spark and its Python workers.
    append(frame(spark, 0, 500_000), path, txnAppId="job", txnVersion=3)
    assert numbers_in(path) == list(range(10))
    for _ in range(2):
        overwrite(frame(spark, 30, 40), path, txnAppId="job", txnVersion=4)
    assert numbers_in(path) == list(range(30, 40))
    table = Table.open(str(path))
    assert (table.version, dict(table.transactions)) == (2, {"job": 4})


def test_an_empty_write_records_its_key(spark: SparkSession, path: Path) -> None:
    overwrite(frame(spark, 0, 0), path, txnAppId="job", txnVersion=1)
    append(frame(spark, 0, 0), path, txnAppId="other", txnVersion=1)
    append(frame(spark, 0, 10), path)
    overwrite(frame(spark, 0, 0), path, txnAppId="job", txnVersion=1)
    assert numbers_in(path) == list(range(10))
    assert Table.open(str(path)).transactions == {"job": 1, "other": 1}


def test_a_table_can_be_overwritten_with_its_own_rows(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path)
    overwrite(read(spark, path).where("n < 4"), path)
    assert numbers_in(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("option", full_but(["replaceWhere"], ["replaceWhere", "where"]))
def test_rows_that_match_a_predicate_are_overwritten(spark: SparkSession, path: Path, option: str) -> None:
    append(frame(spark, 0, 10), path, partitionBy="part")
    overwrite(frame(spark, 3, 5), path, **{option: "n BETWEEN 2 AND 6"})
    assert numbers_in(path) == [0, 1, 3, 4, 7, 8, 9]
    version = Table.open(str(path)).version
    with pytest.raises(PySparkException, match="rows are outside where='n < 3'"):
        overwrite(frame(spark, 2, 4), path, **{option: "n < 3"})
    assert (Table.open(str(path)).version, numbers_in(path)) == (version, [0, 1, 3, 4, 7, 8, 9])


@pytest.mark.parametrize(
    ("mode", "select", "options", "message"),
    [
        ("append", ["*", "1 as more"], {}, f"{MISMATCH}: the data has a column 'more'"),
        ("append", ["*"], {"partitionBy": "n"}, "TIDELOG_CONFIGURATION: .* is partitioned by .'part'., not by .'n'."),
        ("append", ["*"], {"where": "part = 'a'"}, "the option 'where' is for overwriting only; leave it out"),
        ("overwrite", ["*"], {"where": "n = 1", "replaceWhere": "n = 1"}, "'where' and 'replaceWhere' say the same"),
        *full(
            ("append", ["part as n", "part"], {}, f"{MISMATCH}: column 'n' is int64 in the table but string"),
            ("overwrite", ["n", "array(1) as part"], {}, f"{MISMATCH}: column 'part' is string in the table"),
            ("append", ["*"], {"replaceWhere": "n = 1"}, "option 'replaceWhere' is for overwriting only; leave it out"),
            ("overwrite", ["*"], {"where": "no = 1"}, "TIDELOG_PREDICATE: there is no column 'no'"),
        ),
    ],
)
def test_mistakes_are_found_before_any_task_runs(
    spark: SparkSession, path: Path, mode: str, select: list[str], options: dict[str, str], message: str
) -> None:
    Table.create(str(path), SCHEMA, partition_by=["part"])
    before = footprint(path)
    failing = spark.range(10).selectExpr("cast(raise_error('a task ran') as long) as n", "'a' as part")
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        failing.selectExpr(*select).write.format("tidelog").mode(mode).options(**options).save(str(path))
    assert footprint(path) == before


@pytest.mark.full
def test_unsuitable_tables(spark: SparkSession, path: Path) -> None:
    Table.create(str(path), SCHEMA, properties={"delta.appendOnly": True})
    with pytest.raises(PySparkException, match="TIDELOG_APPEND_ONLY"):
        overwrite(frame(spark, 0, 1), path)
    with pytest.raises(PySparkException, match="is in this process's memory, which Spark's executors cannot reach"):
        append(frame(spark, 0, 1), "memory://batch-write")
    with pytest.raises(PySparkException, match=r'Spark did not pass a table path; use \.save\("/path/to/table"\)'):
        frame(spark, 0, 1).write.format("tidelog").mode("append").save()


@JVM_SOURCE
@pytest.mark.oldest
def test_the_default_mode_makes_a_table_and_fails_if_there_is_one(spark: SparkSession, path: Path) -> None:
    frame(spark, 0, 3).write.format("tidelog").partitionBy("part").save(str(path))
    with pytest.raises(PySparkException, match="TIDELOG_TABLE_EXISTS: there is already a table at") as caught:
        frame(spark, 3, 6).write.format("tidelog").save(str(path))
    assert 'write with .mode("append") to add the rows' in str(caught.value)
    frame(spark, 3, 6).write.format("tidelog").mode("ignore").save(str(path))
    table = Table.open(str(path))
    assert (table.version, table.partition_by, numbers_in(path)) == (1, ("part",), [0, 1, 2])


@JVM_SOURCE
def test_the_mode_ignore_writes_a_table_that_is_not_there(spark: SparkSession, path: Path) -> None:
    frame(spark, 0, 3).write.format("tidelog").mode("ignore").save(str(path))
    assert numbers_in(path) == [0, 1, 2]


@JVM_SOURCE
def test_a_partition_column_can_have_a_comma_in_its_name(spark: SparkSession, path: Path) -> None:
    rows = spark.sql("SELECT 1L AS n, 'x' AS `a,b`")
    rows.write.format("tidelog").mode("append").partitionBy("a,b").save(str(path))
    assert Table.open(str(path)).partition_by == ("a,b",)


@JVM_SOURCE
def test_a_store_that_does_not_answer_is_asked_again_by_spark() -> None:
    class Flaky:
        def write(self, _: object) -> None:
            raise StoreUnavailableError("throttled", advice="wait", path="x")

    task: Any = frames._Task(Flaky())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="TIDELOG_STORE_UNAVAILABLE: throttled"):
        list(task(iter(())))


@PYTHON_SOURCE
@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_spark_refuses_other_modes(spark: SparkSession, path: Path, mode: str) -> None:
    with pytest.raises(AnalysisException, match='Please use either the "Append" or "Overwrite" mode'):
        frame(spark, 0, 1).write.format("tidelog").mode(mode).save(str(path))
    assert not path.exists()


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        (["n * 1000000000000 as n", "part"], {}, "TIDELOG_SCHEMA_MISMATCH: column 'n' is int32 in the table but int64"),
        (["*"], {"where": "part = 'a'"}, "TIDELOG_CONFIGURATION: 5 of 10 rows are outside where=.part = 'a'."),
    ],
)
def test_mistakes_that_only_a_task_finds_leave_nothing(
    spark: SparkSession, path: Path, select: list[str], options: dict[str, str], message: str
) -> None:
    """The first task has already written its files."""
    narrow = pa.schema([("n", pa.int32()), ("part", pa.string())])
    Table.create(str(path), narrow, partition_by=["part"]).insert([{"n": 1, "part": "a"}])
    before = footprint(path)
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        overwrite(frame(spark, 0, 10).selectExpr(*select), path, **options)
    assert footprint(path) == before


def test_a_failed_task_changes_nothing(spark: SparkSession, path: Path) -> None:
    """A file can remain until a vacuum, since another task can run on for a moment after the job has failed."""
    append(frame(spark, 0, 10), path)
    with pytest.raises(PySparkException, match="the disk is full"):
        append(frame(spark, 0, 10).selectExpr("if(n = 9, raise_error('the disk is full'), n) as n"), path)
    assert Table.open(str(path)).version == 1
    assert numbers_in(path) == list(range(10))


def with_concurrent_change(data: DataFrame, path: Path, statement: str) -> DataFrame:
    """The frame; while its job runs, `statement` changes the table."""

    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 0 in batch["n"].to_pylist():
                exec(statement, {"table": Table.open(str(path)), "pa": pa})
            yield batch

    return data.mapInArrow(function, data.schema)


def test_a_conflict_reaches_the_user_and_leaves_no_files(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path)
    files = data_files(path)
    change = "table.set_properties({'delta.appendOnly': True})"
    with pytest.raises(
        PySparkException, match=r"TIDELOG_METADATA_CHANGED: .* the winner changed the property delta\.appendOnly"
    ):
        append(with_concurrent_change(frame(spark, 0, 10), path, change), path)
    assert Table.open(str(path)).version == 2
    assert data_files(path) == files


def test_harmless_concurrent_commits_do_not_conflict(spark: SparkSession, path: Path) -> None:
    append(frame(spark, 0, 10), path)
    change = "table.add_columns([pa.field('more', pa.int32())]); table.insert([{'n': -1}])"
    append(with_concurrent_change(frame(spark, 0, 10), path, change), path)
    assert numbers_in(path) == sorted([-1, *range(10), *range(10)])
    overwrite(with_concurrent_change(frame(spark, 0, 10), path, "table.insert([{'n': -2}])"), path)
    assert numbers_in(path) == list(range(10))


@PYTHON_SOURCE
@pytest.mark.parametrize(
    ("trigger", "given"), [({"availableNow": True}, True), ({"processingTime": "1 second"}, False)], ids=str
)
def test_a_stream_writer_is_refused_with_the_line_to_use(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any], given: bool
) -> None:
    path, checkpoint = tmp_path / "table", tmp_path / "cp"
    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.format("tidelog").option("checkpointLocation", str(checkpoint)).trigger(**trigger)
    sink = path if given else "/path"
    line = f'df.writeStream.foreachBatch(Sink("{sink}", checkpoint="{checkpoint}")).option("checkpointLocation", '
    line += f'"{checkpoint}").start()'

    def run() -> None:
        query = writer.start(str(path)) if given else writer.start()
        query.awaitTermination(PATIENCE_S)  # a Python source is asked when the query runs

    with pytest.raises(PySparkException) as caught:
        run()
    assert f"it could not write each batch exactly once; use {line}" in str(caught.value)
    assert not path.exists()
