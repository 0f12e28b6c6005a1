"""Changes into a real PostgreSQL: each batch once, whatever dies, and all types exactly."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from examples.cdc.postgres import DATABASE, USER, Postgres
from examples.cdc.shop import Connection
from tests.streaming.support import BatchFunction, forget_last_commit, run_to_end
from tidelog.log import Table
from tidelog.log.errors import CheckpointResetError, ConfigurationError, PrerequisiteError
from tidelog.streaming import Feed, capture
from tidelog.streaming.executors.plain_frame import arrow_schema

pytestmark = pytest.mark.spark

ALL_TYPES = {
    "id": ("CAST(1 AS BIGINT)", "bigint PRIMARY KEY", "1"),
    "flag": ("true", "boolean", "true"),
    "tiny": ("-7Y", "smallint", "-7"),
    "whole": ("2147483647", "integer", "2147483647"),
    "long": ("-9223372036854775808L", "bigint", "-9223372036854775808"),
    "single": ("FLOAT('1.1')", "real", "1.1"),
    "double": ("DOUBLE('0.1')", "double precision", "0.1"),
    "large": ("DOUBLE('1.7976931348623157E308')", "double precision", "1.7976931348623157e+308"),
    "nan": ("DOUBLE('NaN')", "double precision", "NaN"),
    "infinite": ("DOUBLE('-Infinity')", "double precision", "-Infinity"),
    "price": ("CAST('-12345678901234567890123456789012345.678' AS DECIMAL(38, 3))", "numeric",
              "-12345678901234567890123456789012345.678"),
    "zero": ("CAST(0 AS DECIMAL(38, 10))", "numeric", "0.0000000000"),
    "text": ("'a \"b\"\\\\N \\t\\r\\n|🌊'", "text", 'a "b"\\N \t\r\n|🌊'),
    "empty": ("''", "text", ""),
    "content": ("X'00FF5C'", "bytea", "\\x00ff5c"),
    "day": ("DATE'1969-12-31'", "date", "1969-12-31"),
    "at": ("TIMESTAMP'2024-03-10 02:30:00.123456 UTC'", "timestamptz", "2024-03-10 02:30:00.123456+00"),
    "at_utc": ("TIMESTAMP'2024-03-10 02:30:00 UTC'", "timestamp", "2024-03-10 02:30:00"),
    "plain": ("TIMESTAMP_NTZ'1900-01-01 00:00:00.000001'", "timestamp", "1900-01-01 00:00:00.000001"),
    "numbers": ("ARRAY(1.10BD, NULL)", "numeric(5,2)[]", "{1.10,NULL}"),
    "texts": ("ARRAY('a,\"b\\\\', '', NULL)", "text[]", '{"a,\\"b\\\\","",NULL}'),
    "grid": ("ARRAY(ARRAY(1, 2), ARRAY(3, 4))", "integer[]", "{{1,2},{3,4}}"),
    "list": ("ARRAY('x')", "jsonb", '["x"]'),
    "days": ("MAP('k', 1.50BD)", "jsonb", '{"k": "1.50"}'),
    "parts": ("NAMED_STRUCT('x', X'01', 'y', CAST(NULL AS INT))", "jsonb", '{"x": "AQ==", "y": null}'),
    "nothing": ("CAST(NULL AS STRING)", "text", None),
}  # fmt: skip


class Followed:
    """A table with a change feed, the table of PostgreSQL that follows it, and the checkpoint between them."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.checkpoint = folder / "cp"
        schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
        properties = {"tidelog.primaryKey": "n"}
        self.table = Table.create(str(folder / "source"), schema, properties=properties)
        self.sql("DROP TABLE IF EXISTS numbers, tidelog_positions")
        self.sql("CREATE TABLE numbers (n bigint PRIMARY KEY, name text CHECK (name <> 'bad'), own text DEFAULT 'x')")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(text.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def sink(self, **more: Any) -> capture.PostgresSink:
        return capture.PostgresSink(self.server.connect, "numbers", keys=["n"], **more)

    def run(self, spark: SparkSession, function: BatchFunction, **more: Any) -> None:
        run_to_end(Feed(spark, self.table.path, changes="cdc", **more).foreachBatch(function), self.checkpoint)

    def rows(self) -> list[tuple[Any, ...]]:
        return self.sql("SELECT n, name FROM numbers ORDER BY n")

    def wanted(self) -> list[tuple[Any, ...]]:
        found = self.table.refresh().scan().to_arrow().sort_by("n").to_pylist()
        return [tuple(row.values()) for row in found]


@pytest.fixture
def followed(postgres_server: Postgres, tmp_path: Path) -> Followed:
    return Followed(postgres_server, tmp_path)


def test_a_table_of_postgresql_follows(spark: SparkSession, followed: Followed) -> None:
    table, sink = followed.table, followed.sink()
    table.insert([{"n": n, "name": f"n{n}"} for n in range(5)])
    table.upsert([{"n": 1, "name": "one"}, {"n": 9, "name": None}])
    table.delete("n = 2")
    followed.run(spark, sink)
    assert sink.last == capture.PostgresReport(0, upserted=5, deleted=0)
    assert followed.rows() == followed.wanted()
    followed.sql("UPDATE numbers SET own = 'mine' WHERE n = 1")
    table.upsert([{"n": 1, "name": "uno"}, {"n": 7, "name": "tab\tand\\N"}])
    table.update("n = 3", {"n": "30"})
    table.delete("n = 0")
    table.upsert([{"n": 0, "name": "again"}])
    followed.run(spark, sink)
    assert sink.last == capture.PostgresReport(1, upserted=4, deleted=1)
    assert followed.rows() == followed.wanted()
    # A column that the source does not have keeps its value.
    assert followed.sql("SELECT own FROM numbers WHERE n = 1") == [("mine",)]


@pytest.mark.full
def test_the_changes_of_a_batch_are_computed_once(spark: SparkSession, followed: Followed) -> None:
    """The driver fetches each partition with a separate job."""
    calls = spark.sparkContext.accumulator(0)

    def counted(name: str) -> str:
        calls.add(1)
        return name

    sink, count = followed.sink(), F.udf(counted, useArrow=False).asNondeterministic()
    followed.table.insert([{"n": n, "name": f"n{n}"} for n in range(50)])
    before = set(spark.sparkContext._jsc.getPersistentRDDs())
    followed.run(spark, lambda batch, number: sink(batch.withColumn("name", count("name")), number))
    assert calls.value == 50
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) == before
    assert followed.rows() == followed.wanted()


def test_a_connection_that_has_begun_a_transaction(spark: SparkSession, followed: Followed) -> None:
    def connect() -> Connection:
        connection = followed.server.connect()
        connection.autocommit = False
        connection.execute("SET statement_timeout = '1 min'")
        return connection

    followed.table.insert([{"n": 1, "name": "one"}])
    followed.run(spark, capture.PostgresSink(connect, "numbers", keys=["n"]))
    assert followed.rows() == [(1, "one")]


def test_a_batch_that_is_run_again_is_skipped(spark: SparkSession, followed: Followed) -> None:
    followed.table.insert([{"n": 1, "name": "one"}])
    followed.run(spark, followed.sink())
    followed.sql("UPDATE numbers SET name = 'marked'")
    forget_last_commit(followed.checkpoint)
    sink = followed.sink()
    followed.run(spark, sink)
    assert sink.last == capture.PostgresReport(0, skipped=True)
    assert followed.rows() == [(1, "marked")]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_query_with_state_goes_on_after_a_batch_that_is_skipped(
    spark: SparkSession, followed: Followed, mode: str
) -> None:
    """In both modes a batch has each row that changed, and the newest row of a key counts."""

    def run() -> list[bool]:
        sink, skipped = followed.sink(), []

        def noted(batch: DataFrame, number: int) -> None:
            sink(batch, number)
            assert sink.last
            skipped.append(sink.last.skipped)

        rows = spark.readStream.format("tidelog").option("changes", "append").load(followed.table.path)
        counts = rows.groupBy((F.col("n") % 2).alias("n")).agg(
            F.count("*").cast("string").alias("name"), F.max("_commit_version").alias("_commit_version")
        )
        run_to_end(counts.writeStream.outputMode(mode).foreachBatch(noted), followed.checkpoint)
        return skipped

    followed.table.insert([{"n": n, "name": None} for n in range(5)])
    assert run() == [False]
    for _ in range(2):
        forget_last_commit(followed.checkpoint)
        assert run() == [True]
    followed.table.insert([{"n": n, "name": None} for n in (5, 7)])
    assert run() == [False]
    assert followed.rows() == [(0, "3"), (1, "4")]


@pytest.mark.full
def test_a_program_that_is_killed_between_the_commits_applies_its_batch_once(
    spark: SparkSession, followed: Followed
) -> None:
    table, server = followed.table, followed.server
    table.insert([{"n": n, "name": f"n{n}"} for n in range(3)])
    connect = f"host=127.0.0.1 port={server.port} user={USER} dbname={DATABASE} password={server.password}"
    program = [sys.executable, "-m", "tests.streaming.capture.killed_program"]
    died = subprocess.run([*program, table.path, connect, str(followed.checkpoint)], check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL
    assert followed.rows() == followed.wanted()
    assert not list((followed.checkpoint / "commits").glob("[0-9]*"))
    followed.sql("UPDATE numbers SET name = 'marked'")
    table.upsert([{"n": 1, "name": "one"}])
    sinks: list[capture.PostgresReport | None] = []
    sink = followed.sink()

    def noted(batch: DataFrame, number: int) -> None:
        sink(batch, number)
        sinks.append(sink.last)

    followed.run(spark, noted)
    assert [report and report.skipped for report in sinks] == [True, False]
    assert followed.rows() == [(0, "marked"), (1, "one"), (2, "marked")]


@pytest.mark.full
def test_what_postgresql_refuses_leaves_nothing_and_can_be_run_again(spark: SparkSession, followed: Followed) -> None:
    followed.table.insert([{"n": 1, "name": "one"}, {"n": 2, "name": "bad"}])
    with pytest.raises(StreamingQueryException, match="TIDELOG_DATA: PostgreSQL refused batch 0 of numbers"):
        followed.run(spark, followed.sink())
    assert (followed.rows(), followed.sql("SELECT * FROM tidelog_positions")) == ([], [])
    followed.sql("ALTER TABLE numbers DROP CONSTRAINT numbers_name_check")
    followed.run(spark, followed.sink())
    assert followed.rows() == followed.wanted()


def test_a_server_that_is_away_is_an_error_that_can_pass(spark: SparkSession, followed: Followed) -> None:
    followed.table.insert([{"n": 1, "name": "one"}])
    followed.server.crash()
    try:
        with pytest.raises(StreamingQueryException, match="TIDELOG_STORE_UNAVAILABLE: PostgreSQL did not answer"):
            followed.run(spark, followed.sink())
    finally:
        followed.server.start()
    followed.run(spark, followed.sink())
    assert followed.rows() == followed.wanted()


def test_a_deleted_checkpoint_is_refused(spark: SparkSession, followed: Followed) -> None:
    followed.table.insert([{"n": 1, "name": "one"}])
    followed.run(spark, followed.sink())
    shutil.rmtree(followed.checkpoint)
    with pytest.raises(StreamingQueryException, match=CheckpointResetError.code):
        followed.run(spark, followed.sink())
    followed.run(spark, followed.sink(name="second"))
    sink = followed.sink(on_reset="adopt")
    shutil.rmtree(followed.checkpoint)
    followed.run(spark, sink)
    assert sink.last == capture.PostgresReport(0, upserted=1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("ALTER TABLE numbers DROP COLUMN name", "TIDELOG_SCHEMA_MISMATCH: numbers lacks the column 'name'"),
        ("DROP TABLE numbers", "TIDELOG_CONFIGURATION: PostgreSQL has no table numbers"),
        ("ALTER TABLE numbers DROP CONSTRAINT numbers_pkey", "TIDELOG_DATA: .* no unique or exclusion constraint"),
    ],
)
def test_a_table_that_does_not_fit(spark: SparkSession, followed: Followed, change: str, text: str) -> None:
    followed.table.insert([{"n": 1, "name": "one"}])
    followed.sql(change)
    with pytest.raises(StreamingQueryException, match=text):
        followed.run(spark, followed.sink())


def test_all_types_are_exact(spark: SparkSession, followed: Followed) -> None:
    source = str(followed.folder / "types")
    rows = spark.range(1).selectExpr(*(f"{value} AS {name}" for name, (value, _, _) in ALL_TYPES.items()))
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(rows)])
    Table.create(source, schema).insert(rows.toArrow())
    columns = ", ".join(f'"{name}" {kind}' for name, (_, kind, _) in ALL_TYPES.items())
    followed.sql(f'DROP SCHEMA IF EXISTS "S" CASCADE; CREATE SCHEMA "S"; CREATE TABLE "S"."Types" ({columns})')
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        sink = capture.PostgresSink(followed.server.connect, "S.Types", keys=["ID"])
        run_to_end(Feed(spark, source).foreachBatch(sink), followed.checkpoint)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    texts = ", ".join(f'"{name}"::text' for name in ALL_TYPES)
    (found,) = followed.sql(f'SELECT {texts} FROM "S"."Types"')
    assert dict(zip(ALL_TYPES, found, strict=True)) == {name: text for name, (_, _, text) in ALL_TYPES.items()}


def test_many_rows_come_in_pieces(spark: SparkSession, followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.streaming.capture.postgres_sink._PIECE", 100)
    followed.table.insert([{"n": n, "name": f"n{n}"} for n in range(1000)])
    sink = followed.sink()
    followed.run(spark, sink)
    assert followed.rows() == followed.wanted()


def test_wrong_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="keys must be a list"):
        capture.PostgresSink("", "t", keys="id")
    with pytest.raises(ConfigurationError, match="on_reset='adapt' is not supported"):
        capture.PostgresSink("", "t", keys=["id"], on_reset="adapt")
    assert "secret" not in repr(capture.PostgresSink("password=secret", "t", keys=["id"]))
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PrerequisiteError, match=r"pip install 'tidelog\[postgres\]'"):
        capture.PostgresSink("", "t", keys=["id"])
