"""What is wrong is told by a typed error whose message says what to do; nothing is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import NUMBERS, Input, drain, footprint, numbers_in, refused
from tidelog.log import Table
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    NotInStreamError,
    PathNotWritableError,
    SchemaMismatchError,
    StoreNotSupportedError,
    TidelogError,
)
from tidelog.streaming import Sink
from tidelog.streaming.sink import micro_batch

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


# --- when the sink is made -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"name": ""}, ConfigurationError, "a sink cannot be named ''; use up to 100 letters"),
        ({"name": "a/b"}, ConfigurationError, "a sink cannot be named 'a/b'"),
        ({"name": "x" * 101}, ConfigurationError, "use up to 100 letters, digits, dots, dashes, underscores"),
        ({"on_reset": "ignore"}, ConfigurationError, "on_reset cannot be 'ignore'; use one of error, adopt"),
        ({"properties": {"delta.nonsense": 1}}, ConfigurationError, "unknown table property 'delta.nonsense'; use one"),
        ({"properties": {"tidelog.minorSpan": "soon"}}, ConfigurationError, "it must be a duration such as '1 day'"),
        ({"path": "ftp://bucket/t"}, StoreNotSupportedError, "use a local path, file://, memory://, s3://"),
        (
            {"path": "hdfs://host/t"},
            StoreNotSupportedError,
            "is not a supported store: commits need one that creates a file only if it is absent",
        ),
    ],
)
def test_a_sink_that_cannot_work_is_not_made(arguments: dict[str, Any], kind: type[TidelogError], message: str) -> None:
    with pytest.raises(kind) as caught:
        Sink(**{"path": "/data/t", **arguments})
    assert message in str(caught.value)


# --- when it is called -----------------------------------------------------------------------------------------------


def test_a_sink_outside_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotInStreamError) as caught:
        Sink(str(tmp_path / "table"))(spark.range(3).toDF("n"), 0)
    assert "outside of a streaming query's own thread; use it as df.writeStream.foreachBatch(" in str(caught.value)
    assert not (tmp_path / "table").exists()


def test_a_sink_on_spark_connect(tmp_path: Path) -> None:
    class ConnectSession:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
            raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"})

    batch = cast("DataFrame", SimpleNamespace(sparkSession=ConnectSession()))
    with pytest.raises(NotInStreamError, match=r"on Spark Connect, .*; run the stream in a classic session"):
        Sink(str(tmp_path / "table"))(batch, 0)


def test_the_internal_call_that_tells_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """A pin: when this fails on a new Spark, `java_query` has to learn where the call has moved to."""
    checkpoint = tmp_path / "cp"
    roots: list[str] = []
    batches: list[micro_batch.MicroBatch] = []

    def function(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id
        roots.append(micro_batch._run_of(session, query_id).checkpoint)
        batches.append(micro_batch.identify(batch, number))

    # A source whose offsets tell the rows, so that they alone make the fingerprint.
    generated = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    drain(generated, function, checkpoint)
    (root,), (batch,) = roots, batches
    assert root.removeprefix("file:").replace("//", "") == str(checkpoint)
    assert f'"id":"{batch.query_id}"' in (checkpoint / "metadata").read_text()
    assert batch.fingerprint == micro_batch.fingerprint((checkpoint / "offsets" / "0").read_text(), lambda *_: "")
    assert batch.run_id
    assert batch.run_id != batch.query_id


def test_a_spark_that_moved_the_internal_call(spark: SparkSession) -> None:
    class Moved:
        def sharedState(self) -> Any:  # noqa: N802 - Spark's name
            raise Py4JError("Method sharedState([]) does not exist")

    session = cast("SparkSession", SimpleNamespace(_jsparkSession=Moved(), _jvm=spark._jvm))
    with pytest.raises(NotInStreamError) as caught:
        micro_batch._run_of(session, "00000000-0000-0000-0000-000000000001")
    assert "this Spark has moved the internal call that tidelog needs; use a pyspark that tidelog names" in str(
        caught.value
    )


def test_a_query_that_is_unknown(spark: SparkSession) -> None:
    with pytest.raises(NotInStreamError, match="checkpoint of the streaming query"):
        micro_batch._run_of(spark, "00000000-0000-0000-0000-000000000001")


# --- when it meets the table -----------------------------------------------------------------------------------------


def test_a_path_below_a_file(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    sink = Sink(str(tmp_path / "file" / "table"))
    error = refused(source.put().stream(spark), sink, tmp_path / "cp", PathNotWritableError)
    assert "check the path, its permissions and whether the file system is mounted read-only" in str(error)


def test_a_file_system_that_makes_no_folders(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    error = refused(source.put().stream(spark), Sink("/proc/tidelog/table"), tmp_path / "cp", PathNotWritableError)
    assert error.path == "/proc/tidelog/table"


def test_a_file_system_without_put_if_absent(
    spark: SparkSession, source: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_links)
        sink = Sink(str(tmp_path / "table"))
        error = refused(source.put().stream(spark), sink, tmp_path / "cp", StoreNotSupportedError)
    assert "has no hard links, so two writers could overwrite each other; put the table on a local disk" in str(error)


def test_a_damaged_log(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    drain(source.put().stream(spark), Sink(str(path)), tmp_path / "cp")
    (path / "_delta_log" / f"{1:020d}.json").write_text("{ not json")
    (path / "_delta_log" / f"{1:020d}.crc").unlink()
    error = refused(source.put().stream(spark), Sink(str(path)), tmp_path / "cp", CorruptLogError)
    assert "commit 1 of" in str(error)
    assert "restore the file in _delta_log from a backup" in str(error)


def test_a_ledger_that_would_expire(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = tmp_path / "table"
    Table.create(str(path), NUMBERS, properties={"delta.setTransactionRetentionDuration": "7 days"})
    error = refused(source.put().stream(spark), Sink(str(path)), tmp_path / "cp", ConfigurationError)
    assert "batches be written twice; remove that property" in str(error)
    sink = Sink(str(tmp_path / "new"), properties={"delta.setTransactionRetentionDuration": "7 days"})
    refused(source.stream(spark), sink, tmp_path / "cp-2", ConfigurationError)
    assert Table.open(str(path)).version == 0


def test_another_partitioning_than_the_table_s(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    Table.create(path, pa.schema([("n", pa.int64()), ("a", pa.int64())]), partition_by=["a"])
    stream = source.put().stream(spark).selectExpr("n", "n % 2 as a")
    error = refused(stream, Sink(path, partition_by=["n"]), tmp_path / "cp", ConfigurationError)
    assert "is partitioned by ['a'], not by ['n']; leave partition_by out" in str(error)
    for sink in (Sink(path), Sink(path, partition_by=["a"])):
        drain(stream, sink, tmp_path / "cp")
    assert numbers_in(path) == source.numbers


@pytest.mark.parametrize(
    ("columns", "column", "problem", "advice"),
    [
        (["n", "n as more"], "more", "'more' that the table does not have", "drop the column from the data"),
        (["cast(n as string) as n"], "n", "'n' is int64 in the table but string in the data", "cast it"),
        (["n + 0.5 as n"], "n", "'n' is int64 in the table but decimal", "cast it"),
        (["if(n = 3, null, n) as must", "n"], "must", "'must' cannot be null, but 1", "fill or drop those rows"),
        (["n"], "must", "lacks the column 'must', which cannot be null", "add the column to the data"),
    ],
)
def test_a_schema_that_does_not_fit(
    spark: SparkSession, source: Input, tmp_path: Path, columns: list[str], column: str, problem: str, advice: str
) -> None:
    path = tmp_path / "table"
    fields = [pa.field("n", pa.int64())]
    if column == "must":
        fields.append(pa.field("must", pa.int64(), nullable=False))
    Table.create(str(path), pa.schema(fields)).insert(pa.schema(fields).empty_table())
    before = footprint(path)
    stream = source.put().stream(spark).selectExpr(*columns)
    error = refused(stream, Sink(str(path)), tmp_path / "cp", SchemaMismatchError)
    assert error.column == column
    assert problem in error.message
    assert advice in error.advice
    assert footprint(path) == before


@pytest.mark.parametrize(
    ("columns", "partition_by", "message"),
    [
        (["n", "N as other"], ["missing"], "cannot partition by 'missing'"),
        (["n"], ["n"], "every column is a partition column"),
        (["n", "array(n) as a"], ["a"], "partition by a column that is not nested"),
        (["n", "interval 1 day as a"], [], "which a Delta table cannot hold; cast it to string, long"),
    ],
)
def test_a_table_that_cannot_be_made(
    spark: SparkSession, source: Input, tmp_path: Path, columns: list[str], partition_by: list[str], message: str
) -> None:
    sink = Sink(str(tmp_path / "table"), partition_by=partition_by)
    stream = source.put().stream(spark).selectExpr(*columns)
    error = refused(stream, sink, tmp_path / "cp", SchemaMismatchError)
    assert message in str(error)
    assert not (tmp_path / "table").exists()
