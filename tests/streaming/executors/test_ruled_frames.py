"""Tables with constraints, generated columns, defaults and identity columns, written by Spark in every way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.lanes import full_but
from tests.log.rules.support import default, generated, identity, rows_of, ruled_table
from tests.streaming.support import Input, drain, refused
from tidelog.log import Table
from tidelog.log.errors import (
    ConstraintViolationError,
    NullValueError,
    SchemaMismatchError,
    TidelogError,
    UnsupportedFeatureError,
)
from tidelog.log.storage import open_store
from tidelog.streaming import Sink, register, table
from tidelog.streaming.executors import jvm_files

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("state", pa.string()), ("twice", pa.int64()), ("hash", pa.int64())])
PLAIN = {"twice": generated("n * 2"), "state": default("'new'")}
# Spark has these functions, tidelog has not.
UNUSUAL = {**PLAIN, "hash": generated("xxhash64(n)"), "state": default("soundex('tidelog')")}
LIMIT = {"limit": "n < 100"}


def made(folder: Path, fields: Any = PLAIN, constraints: Any = LIMIT, **more: Any) -> Table:
    path = str(folder / "table")
    return ruled_table(SCHEMA, fields=fields, constraints=constraints, store=open_store(path), **more)


def numbers(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "n long")


def written_by(spark: SparkSession, path: str) -> dict[str, Callable[[DataFrame], object]]:
    """The ways of writing a DataFrame outside a stream."""
    register(spark)
    return {
        "upsert": lambda frame: table(spark, path).upsert(frame, keys=["n"]),
        "upsert with deletes": lambda frame: table(spark, path).upsert(frame, keys=["n"], delete_where="n < 0"),
        "overwrite": lambda frame: table(spark, path).overwrite(frame),
        "append": lambda frame: frame.write.format("tidelog").mode("append").save(path),
        "replace": lambda frame: frame.write.format("tidelog").mode("overwrite").save(path),
    }


WAYS = ["upsert", "upsert with deletes", "overwrite", "append", "replace"]


@pytest.mark.parametrize("way", full_but(["upsert", "overwrite"], WAYS))
def test_every_way_of_writing_a_frame_fills_and_checks_its_rows(spark: SparkSession, tmp_path: Path, way: str) -> None:
    opened = made(tmp_path)
    write = written_by(spark, opened.path)[way]
    write(numbers(spark, 7))
    before = rows_of(opened)
    assert before == [{"n": 7, "state": "new", "twice": 14, "hash": None}]
    with pytest.raises(Exception, match=r"TIDELOG_CONSTRAINT_VIOLATION.*limit.*n=100") as raised:
        write(numbers(spark, 8, 100))
    # Spark wraps the errors of a data source.
    assert isinstance(raised.value, ConstraintViolationError) or way in {"append", "replace"}
    assert rows_of(opened) == before


@pytest.mark.full
def test_a_generated_value_that_is_given_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    opened = made(tmp_path)
    frame = numbers(spark, 7).selectExpr("n", "n * 3 as twice")
    with pytest.raises(ConstraintViolationError, match=r"generated column 'twice'.*must be 14") as found:
        table(spark, opened.path).upsert(frame, keys=["n"])
    assert found.value.row == "twice=21, n=7"


@pytest.mark.parametrize("writer", full_but(["driver"], ["driver", "spark"]))
@pytest.mark.parametrize("mode", full_but(["append"], ["append", "upsert"]))
def test_a_sink_fills_and_checks_its_rows(spark: SparkSession, tmp_path: Path, writer: str, mode: str) -> None:
    opened = made(tmp_path)
    source = Input(tmp_path / "input").put()
    sink = Sink(opened.path, writer=writer, mode=mode, keys=["n"] if mode == "upsert" else ())
    drain(source.stream(spark), sink, tmp_path / "cp")
    assert [(row["n"], row["twice"], row["state"]) for row in rows_of(opened)] == [(n, 2 * n, "new") for n in range(10)]
    source.put_table(pa.table({"n": [11, 500]}))
    version = opened.refresh().version
    error = refused(source.stream(spark), sink, tmp_path / "cp", ConstraintViolationError)
    assert (error.constraint, error.expression, error.row) == ("limit", "n < 100", "n=500")
    assert opened.refresh().version == version
    assert len([path for path, _ in opened.store.walk("") if path.endswith(".parquet")]) == 1


def test_spark_computes_what_tidelog_cannot(spark: SparkSession, tmp_path: Path) -> None:
    opened = made(tmp_path, UNUSUAL)
    source = Input(tmp_path / "input").put(2)
    sink = Sink(opened.path)
    # The second batch would be small enough for the driver.
    drain(source.stream(spark), sink, tmp_path / "cp")
    assert sink.last is not None
    assert sink.last.writer == "spark"
    expected = {
        row.n: (row.hash, row.state)
        for row in spark.range(20)
        .selectExpr("id as n", "xxhash64(id) as hash", "soundex('tidelog') as state")
        .collect()
    }
    assert {row["n"]: (row["hash"], row["state"]) for row in rows_of(opened)} == expected
    assert [row["twice"] for row in rows_of(opened)] == [2 * row["n"] for row in rows_of(opened)]

    source.put_table(pa.table({"n": [1, 101]}))
    error = refused(source.stream(spark), sink, tmp_path / "cp", ConstraintViolationError)
    assert (error.constraint, error.row) == ("limit", "n=101")
    driver = Sink(opened.path, writer="driver", name="driver")
    stream = Input(tmp_path / "two").put().stream(spark)
    unsupported = refused(stream, driver, tmp_path / "cp2", UnsupportedFeatureError)
    assert "xxhash64(n)" in unsupported.message or "soundex" in unsupported.message
    assert "writer='spark'" in unsupported.advice


@pytest.mark.full
def test_row_changes_with_what_only_spark_computes(spark: SparkSession, tmp_path: Path) -> None:
    opened = made(tmp_path, UNUSUAL)
    changed = table(spark, opened.path)
    changed.overwrite(numbers(spark, 1, 2))
    deleting = numbers(spark, 2, 3).selectExpr("n", "n = 2 as gone")
    changed.upsert(deleting, keys=["n"], delete_where="gone")
    hashes = {row.n: row.hash for row in spark.range(4).selectExpr("id as n", "xxhash64(id) as hash").collect()}
    assert [(row["n"], row["hash"]) for row in rows_of(opened)] == [(n, hashes[n]) for n in (1, 3)]
    for wrong in ("n + 1 as hash", "cast(null as long) as hash"):
        with pytest.raises(ConstraintViolationError, match="generated column 'hash'") as raised:
            changed.upsert(numbers(spark, 1).selectExpr("n", wrong), keys=["n"])
        assert raised.value.constraint == "hash"
    changed.update("n = 1", {"state": "'old'"})
    with pytest.raises(UnsupportedFeatureError, match="xxhash64"):
        changed.update("n = 1", {"n": "5"})
    register(spark)
    with pytest.raises(Exception, match=r"soundex.*writer='spark'"):
        numbers(spark, 9).write.format("tidelog").mode("append").save(opened.path)
    assert (rows_of(opened)[0]["n"], rows_of(opened)[0]["state"]) == (1, "old")


@pytest.mark.full
def test_a_function_that_the_session_has_decides(spark: SparkSession, tmp_path: Path) -> None:
    opened = made(tmp_path, {}, {"known": "is_known(n)"})
    changed = table(spark, opened.path)
    with pytest.raises(UnsupportedFeatureError, match=r"is_known\(n\).*neither tidelog nor this Spark") as unknown:
        changed.overwrite(numbers(spark, 1))
    assert "register the function" in unknown.value.advice
    spark.udf.register("is_known", lambda n: None if n == 7 else n < 5, "boolean")
    try:
        changed.overwrite(numbers(spark, 1, 2))
        for n in (7, 8):
            with pytest.raises(ConstraintViolationError, match=rf"known.*n={n}"):
                changed.overwrite(numbers(spark, 1, n))
    finally:
        spark.sql("DROP TEMPORARY FUNCTION is_known")
    assert [row["n"] for row in rows_of(opened)] == [1, 2]


@pytest.mark.full
def test_data_cannot_answer_for_spark(spark: SparkSession, tmp_path: Path) -> None:
    opened = made(tmp_path, {}, {"odd": "crc32(cast(n as binary)) < 0"})
    frame = numbers(spark, 1).selectExpr("n", "true as __tidelog_rule_0")
    with pytest.raises(SchemaMismatchError, match="__tidelog_rule_0"):
        table(spark, opened.path).overwrite(frame)
    with pytest.raises(TidelogError):
        opened.insert([{"n": 1, "__tidelog_rule_0": True}])
    assert rows_of(opened) == []


@pytest.mark.full
def test_days_are_those_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])
    store = open_store(str(tmp_path / "table"))
    opened = ruled_table(schema, fields={"day": generated("CAST(at AS DATE)")}, partition_by=["day"], store=store)
    late = spark.sql("SELECT timestamp'2026-03-08 23:30:00Z' AS at")
    changed = table(spark, opened.path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name, day in (("UTC", 8), ("Europe/Berlin", 9)):
            spark.conf.set("spark.sql.session.timeZone", name)
            changed.overwrite(late)
            assert [row["day"] for row in rows_of(opened)] == [dt.date(2026, 3, day)]
        instants = Input(tmp_path / "input").put_table(late.toArrow())
        stream = instants.stream(spark, schema="at timestamp")
        driver = Sink(opened.path, writer="driver", name="driver")
        error = refused(stream, driver, tmp_path / "cp", UnsupportedFeatureError)
        assert "CAST(at AS DATE)" in error.message
        drain(stream, Sink(opened.path), tmp_path / "cp-auto")
        assert [row["day"] for row in rows_of(opened)] == [dt.date(2026, 3, 9)] * 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.mark.full
def test_identity_values_are_given_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    opened = made(tmp_path, {"n": identity(explicit=True, mark=5)}, {})
    changed = table(spark, opened.path)
    changed.overwrite(numbers(spark, 10, 11))
    changed.upsert(numbers(spark, 11, 12), keys=["n"])
    assert [row["n"] for row in rows_of(opened)] == [10, 11, 12]
    for frame in (spark.sql("SELECT 'a' AS state"), spark.sql("SELECT cast(null as long) AS n, 'a' AS state")):
        with pytest.raises(UnsupportedFeatureError, match="identity column 'n'"):
            changed.overwrite(frame)


@pytest.mark.full
def test_spark_writes_the_files_if_no_rule_applies(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = made(tmp_path, {"state": default("'new'")}, {})
    written: list[object] = []
    write = jvm_files.write_by_jvm

    def noted(*arguments: Any, **options: Any) -> Any:
        written.append(arguments)
        return write(*arguments, **options)

    monkeypatch.setattr(jvm_files, "write_by_jvm", noted)
    source = Input(tmp_path / "input").put()
    stream = source.stream(spark).selectExpr("n", "'given' as state")
    drain(stream, Sink(opened.path, writer="spark"), tmp_path / "cp")
    assert len(written) == 1
    drain(source.put().stream(spark), Sink(opened.path, writer="spark", name="two"), tmp_path / "cp2")
    assert len(written) == 1
    assert {row["state"] for row in rows_of(opened)} == {"given", "new"}


@pytest.mark.full
def test_a_column_that_cannot_be_null_is_checked_on_every_path(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("m", pa.int64())])
    opened = Table.create(str(tmp_path / "table"), schema)
    nulls = spark.createDataFrame([(1, None), (None, 2)], "n long, m long")
    for way, write in written_by(spark, opened.path).items():
        with pytest.raises(Exception, match="TIDELOG_NULL_VALUE") as raised:
            write(nulls)
        assert isinstance(raised.value, SchemaMismatchError) or way in {"append", "replace"}
        with pytest.raises(Exception, match="TIDELOG_SCHEMA_MISMATCH"):
            write(nulls.select("m"))
    opened.insert([{"n": 1}])
    with pytest.raises(SchemaMismatchError, match="cannot be null"):
        table(spark, opened.path).update("true", {"n": "null"})
    source = Input(tmp_path / "input").put_table(pa.table({"n": pa.array([1, None], pa.int64())}))
    for writer in ("driver", "spark"):
        sink = Sink(opened.path, writer=writer, name=writer)
        refused(source.stream(spark), sink, tmp_path / f"cp-{writer}", NullValueError)
    assert rows_of(opened) == [{"n": 1, "m": None}]
