"""Rules about unusual values: whoever evaluates a rule, tidelog or Spark, gives the same answer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.lanes import full_but
from tests.log.rules.support import generated, rows_of, ruled_table
from tests.streaming.executors.test_ruled_frames import WAYS, written_by
from tests.streaming.support import Input, refused
from tidelog.log.errors import ConstraintViolationError, UnsupportedFeatureError
from tidelog.log.storage import open_store
from tidelog.streaming import Sink, table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("f", pa.float64())])
# Spark has the function, tidelog has not.
BY_SPARK = " AND xxhash64(n) IS NOT NULL"


@pytest.mark.parametrize("way", full_but(["overwrite"], WAYS))
def test_a_column_in_double_quotation_marks_is_refused(spark: SparkSession, tmp_path: Path, way: str) -> None:
    for place, more in enumerate(("", BY_SPARK)):
        store = open_store(str(tmp_path / f"table{place}"))
        opened = ruled_table(SCHEMA, constraints={"c": f"\"Part\" <> 'bad'{more}"}, store=store)
        with pytest.raises(Exception, match=r"TIDELOG_UNSUPPORTED_FEATURE.*double quotation marks"):
            written_by(spark, opened.path)[way](spark.sql("SELECT 1L AS n, 'bad' AS part"))
        assert rows_of(opened) == []


@pytest.mark.full
@pytest.mark.parametrize("writer", ["auto", "driver", "spark"])
def test_a_sink_refuses_a_column_in_double_quotation_marks(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    store = open_store(str(tmp_path / "table"))
    opened = ruled_table(SCHEMA, constraints={"c": '"n" > 5'}, store=store)
    stream = Input(tmp_path / "input").put().stream(spark)
    error = refused(stream, Sink(opened.path, writer=writer), tmp_path / "cp", UnsupportedFeatureError)
    assert "double quotation marks" in error.message
    assert "writer=" not in error.advice


@pytest.mark.parametrize("more", ["", BY_SPARK])
def test_nan_is_above_all_numbers(spark: SparkSession, tmp_path: Path, more: str) -> None:
    opened = ruled_table(SCHEMA, constraints={"c": f"NOT (f > 1){more}"}, store=open_store(str(tmp_path / "table")))
    with pytest.raises(ConstraintViolationError):
        table(spark, opened.path).overwrite(spark.sql("SELECT 1L AS n, double('nan') AS f"))


@pytest.mark.parametrize("more", ["", BY_SPARK])
def test_rules_see_the_partition_values_that_readers_see(spark: SparkSession, tmp_path: Path, more: str) -> None:
    store = open_store(str(tmp_path / "table"))
    fields = {"f": generated(f"CASE WHEN part IS NULL{more} THEN 2 ELSE 1 END")}
    opened = ruled_table(
        SCHEMA, constraints={"c": "part IS NOT NULL OR n = 1"}, fields=fields, partition_by=["part"], store=store
    )
    changed = table(spark, opened.path)
    changed.overwrite(spark.sql("SELECT 1L AS n, '' AS PART"))
    changed.upsert(spark.sql("SELECT 1L AS n, '' AS part, 2.0D AS f"), keys=["n"])
    assert rows_of(opened) == [{"n": 1, "part": None, "f": 2.0}]
    with pytest.raises(ConstraintViolationError) as raised:
        changed.overwrite(spark.sql("SELECT 2L AS n, '' AS part"))
    assert raised.value.constraint == "c"


@pytest.mark.full
def test_values_that_spark_computes_for_partitions_are_prepared_too(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "table"))
    fields = {"part": generated("soundex('')")}
    rules = {"c": "part IS NOT NULL OR n = 1", "zero": "cast(f AS STRING) <> '-0.0'"}
    opened = ruled_table(SCHEMA, constraints=rules, fields=fields, partition_by=["part", "f"], store=store)
    table(spark, opened.path).overwrite(spark.sql("SELECT 1L AS n, -0.0D AS f"))
    assert rows_of(opened) == [{"n": 1, "part": None, "f": 0.0}]
    with pytest.raises(ConstraintViolationError, match="'c'"):
        table(spark, opened.path).overwrite(spark.sql("SELECT 2L AS n, -0.0D AS f"))


@pytest.mark.parametrize("way", full_but(["append"], WAYS))
def test_every_way_of_writing_a_frame_looks_at_lengths(spark: SparkSession, tmp_path: Path, way: str) -> None:
    short = {"part": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}
    opened = ruled_table(SCHEMA, fields=short, store=open_store(str(tmp_path / "table")))
    write = written_by(spark, opened.path)[way]
    write(spark.sql("SELECT 1L AS n, 'abc ' AS part"))
    with pytest.raises(Exception, match=r"TIDELOG_CONSTRAINT_VIOLATION.*varchar\(3\)"):
        write(spark.sql("SELECT 1L AS n, 'abcd' AS part"))
    assert rows_of(opened) == [{"n": 1, "part": "abc", "f": None}]


@pytest.mark.full
def test_conditions_that_spark_evaluates_see_what_is_left_of_a_text(spark: SparkSession, tmp_path: Path) -> None:
    fields = {"part": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}
    store = open_store(str(tmp_path / "table"))
    opened = ruled_table(SCHEMA, fields=fields, constraints={"c": f"length(part) < 4{BY_SPARK}"}, store=store)
    changed = table(spark, opened.path)
    changed.overwrite(
        spark.sql("SELECT 1L AS n, 'a     ' AS PART UNION ALL SELECT 2L, 'b ' UNION ALL SELECT 3L, 'abc '")
    )
    assert [row["part"] for row in rows_of(opened)] == ["a  ", "b ", "abc"]
    with pytest.raises(ConstraintViolationError, match="too long"):
        changed.overwrite(spark.sql("SELECT 1L AS n, 'abc d' AS part"))
