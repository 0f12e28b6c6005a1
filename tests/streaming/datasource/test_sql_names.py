"""Names in SQL that Spark's parser needs quotes for, that leave the catalog's folder, or that hold secrets."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.streaming.datasource.sql_tables import rows, small_table
from tests.streaming.support import JVM_SOURCE
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.streaming.datasource import jvm_source, sql_catalog

pytestmark = [pytest.mark.spark, JVM_SOURCE]


@pytest.mark.parametrize("name", ["ü", "x.y", *(pytest.param(name, marks=pytest.mark.full) for name in ("1st", "a`b"))])
def test_a_partition_column_whose_name_needs_quotes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    named, quoted = f"tidelog.`{tmp_path}/table`", "`" + name.replace("`", "``") + "`"
    spark.sql(f"CREATE TABLE {named} (id BIGINT, {quoted} STRING) PARTITIONED BY ({quoted})")
    spark.sql(f"INSERT INTO {named} VALUES (1, 'p'), (2, 'q')")
    spark.sql(f"INSERT OVERWRITE {named} PARTITION ({quoted} = 'p') SELECT 7")
    assert rows(spark, f"SELECT id FROM {named} WHERE {quoted} = 'p'") == [(7,)]
    assert spark.sql(f"SHOW CREATE TABLE {named}").count() == spark.sql(f"SHOW CREATE TABLE {named}").count() == 1


MORNING = datetime(2026, 1, 1, 10, 0, 0, 500_000)  # noqa: DTZ001 - a time without a zone
VALUES: dict[str, tuple[pa.DataType, str, Any]] = {
    "boolean": (pa.bool_(), "false", False),
    "text": (pa.string(), '"it\'s \\\\ x"', "it's \\ x"),
    "double": (pa.float64(), "1.25D", 1.25),
    "float": (pa.float32(), "1.5F", 1.5),
    "old day": (pa.date32(), "DATE '1890-01-01'", date(1890, 1, 1)),
    "time": (pa.timestamp("us"), "TIMESTAMP_NTZ '2026-01-01 10:00:00.5'", MORNING),
}


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k == "boolean" else pytest.mark.full) for k in VALUES])
def test_a_partition_of_any_type_is_replaced(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    arrow, text, value = VALUES[kind]
    schema = pa.schema([("id", pa.int32()), ("p", arrow)])
    table = Table.create(str(tmp_path / "table"), schema, partition_by=["p"])
    table.insert([{"id": 1, "p": value}, {"id": 2, "p": None}])
    spark.sql(f"INSERT OVERWRITE tidelog.`{table.path}` PARTITION (p = {text}) SELECT 7")
    assert sorted(table.refresh().scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [2, 7]


@pytest.mark.parametrize(
    "names",
    [["..", "x"], ["a", "..", "b"], ["."], [".."], ["a/b"], ["..", "a/b"], ["x/../y"], ["s3:", "", "b"], ["", "x"],
     ["../up", "x"], ["db", "/etc"], ["/data", ".."]],
)  # fmt: skip
def test_a_name_that_leaves_the_folder_is_refused(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a table below the catalog's folder"):
        sql_catalog.place({"options": {"warehouse": "/data/wh"}, "names": names})


def test_names_and_paths() -> None:
    found = {
        ("db", "t"): "/data/wh/db/t",
        ("/data/x",): "/data/x",
        ("s3://b/t",): "s3://b/t",
        ("/data", "x"): "/data/x",
        ("/data", ""): "/data",
    }
    for names, path in found.items():
        assert sql_catalog.place({"options": {"warehouse": "/data/wh"}, "names": list(names)})[0] == path


def test_sessions_that_are_made_later_hide_storage_options(spark: SparkSession) -> None:
    later = spark.newSession()
    assert "storageoption" in str(later.conf.get("spark.sql.redaction.options.regex"))
    assert "url" in str(later.conf.get("spark.sql.redaction.options.regex"))
    settings: Any = spark._jsparkSession.sparkContext().conf()
    assert "password" in settings.get("spark.redaction.regex")
    assert "storageoption" in settings.get("spark.redaction.regex")
    assert jvm_source.install(spark)
    assert settings.get("spark.redaction.regex").count("storageoption") == 1


@pytest.mark.full
def test_null_of_any_type(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "b": pa.binary(),
        "l": pa.list_(pa.int32()),
        "m": pa.map_(pa.string(), pa.int32()),
        "s": pa.struct([("a", pa.int32())]),
    }
    table = Table.create(str(tmp_path / "table"), pa.schema({"id": pa.int64(), **kinds}))
    table.insert([{"id": 1, "b": b"x", "l": [1], "m": {"a": 1}, "s": {"a": 1}}])
    named = f"tidelog.`{table.path}`"
    spark.sql(f"UPDATE {named} SET b = NULL, l = NULL, m = NULL")
    spark.sql(f"MERGE INTO {named} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = NULL")
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "b": None, "l": None, "m": None, "s": None}]


def test_between_of_an_expression(spark: SparkSession, tmp_path: Path) -> None:
    named = f"tidelog.`{small_table(tmp_path).path}`"
    spark.sql(f"UPDATE {named} SET part = 'x' WHERE n + 1 BETWEEN 1 AND 2")
    spark.sql(f"DELETE FROM {named} WHERE mod(n, 32) BETWEEN 2 AND 9")
    assert rows(spark, f"SELECT * FROM {named}") == [(0, "x"), (1, "x")]
    on = f"MERGE INTO {named} t USING (SELECT 1L AS n) s ON t.n = s.n"
    spark.sql(f"{on} WHEN MATCHED AND t.n * 2 BETWEEN 2 AND 5 THEN UPDATE SET part = 'y'")
    assert rows(spark, f"SELECT * FROM {named}") == [(0, "x"), (1, "y")]


@pytest.mark.parametrize("value", ["try_add(n, 9223372036854775807)", "try_mod(7, n)", "TRY_CAST(n * 100 AS TINYINT)"])
def test_what_fails_quietly_in_spark_is_null(spark: SparkSession, tmp_path: Path, value: str) -> None:
    named = f"tidelog.`{small_table(tmp_path).path}`"
    left = rows(spark, f"SELECT * FROM {named} WHERE {value} IS NOT NULL")
    spark.sql(f"DELETE FROM {named} WHERE {value} IS NULL")
    assert rows(spark, f"SELECT * FROM {named}") == left != []


@pytest.mark.full
def test_a_merge_by_other_keys_than_the_primary_key(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "table"),
        pa.schema([("id", pa.int64()), ("k", pa.int64())]),
        properties={"tidelog.primaryKey": "id"},
    )
    table.insert([{"id": 1, "k": 10}, {"id": 2, "k": 20}])
    spark.sql(
        f"MERGE INTO tidelog.`{table.path}` t USING (SELECT 7L AS id, 20L AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark, f"SELECT * FROM tidelog.`{table.path}`") == [(1, 10), (7, 20)]


def test_errors_that_say_what_to_write(spark: SparkSession, tmp_path: Path) -> None:
    table = small_table(tmp_path)
    frame = spark.range(1).selectExpr("id AS n")
    with pytest.raises(PySparkException, match=r'write with \.mode\("append"\) to add the rows'):
        frame.write.format("tidelog").save(table.path)
    with pytest.raises(PySparkException, match="skipChangeCommits=true to leave such commits out"):
        spark.readStream.format("tidelog").option("ignoreChanges", "true").load(table.path)
    assert [spark.read.format(name).load(table.path).count() for name in ("TIDELOG", "tIdeLog")] == [4, 4]
    history = spark.sql(
        f"SELECT operation, engine, rows_added FROM tidelog_history('{table.path}', limit => 1)"
    ).first()
    assert history is not None
    assert (history.operation, history.rows_added) == ("WRITE", 4)
    assert history.engine.startswith("tidelog")
    assert json.dumps(history.asDict())
