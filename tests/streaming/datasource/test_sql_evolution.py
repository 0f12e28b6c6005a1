"""Statements by which a table gets other columns: each is one commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.streaming.datasource.sql_tables import rows
from tests.streaming.support import JVM_SOURCE
from tidelog.log import Table
from tidelog.streaming.spark_versions import INSTALLED

pytestmark = [pytest.mark.spark, JVM_SOURCE]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table with one row, at version 1, partitioned by p."""
    found = f"{tmp_path}/table"
    spark.sql(f"CREATE TABLE tidelog.`{found}` (id INT, p INT, st STRUCT<a: INT>) PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO tidelog.`{found}` BY NAME SELECT named_struct('a', 1) AS st, 1 AS id, 1 AS p")
    return found


@pytest.mark.full
@pytest.mark.skipif(INSTALLED < (4, 2), reason="Spark's grammar does not have it")
def test_an_insert_adds_columns_in_its_commit(spark: SparkSession, path: str) -> None:
    name, new = f"tidelog.`{path}`", "INSERT WITH SCHEMA EVOLUTION"
    spark.sql(f"EXPLAIN {new} INTO {name} BY NAME SELECT 1 AS id, 2 AS more").collect()
    spark.sql(f"{new} INTO {name} BY NAME SELECT 'x' AS more, 2 AS id, 2 AS p, named_struct('a', 2, 'b', 3) AS st")
    spark.sql(f"{new} INTO {name} SELECT 3, 2, named_struct('a', 3, 'b', 4), 'y', 5 AS last")
    assert Table.open(path).version == 3
    assert Table.open(path).schema.names == ["id", "p", "st", "more", "last"]
    assert rows(spark, f"SELECT id, st.b, more, last FROM {name} WHERE id > 1") == [(2, 3, "x", None), (3, 4, "y", 5)]
    spark.sql(f"{new} INTO {name} REPLACE WHERE p = 2 SELECT 4, 2, NULL, 'z', 6, 7 AS other")
    assert rows(spark, f"SELECT id, more, other FROM {name}") == [(1, None, None), (4, "z", 7)]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql(f"{new} OVERWRITE {name} BY NAME SELECT 5 AS id, 2 AS p, 1 AS third")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(spark, f"SELECT id, third FROM {name}") == [(1, None), (5, 1)]
    spark.sql(f"{new} OVERWRITE {name} BY NAME SELECT 6 AS id, 1 AS fourth")
    assert rows(spark, f"SELECT id, third, fourth FROM {name}") == [(6, None, 1)]
    assert Table.open(path).version == 6


@pytest.mark.full
def test_a_replaced_table_has_other_columns(spark: SparkSession, path: str) -> None:
    name = f"tidelog.`{path}`"
    spark.sql(f"CREATE OR REPLACE TABLE {name} (x INT NOT NULL COMMENT 'c', v VARCHAR(3), y INT) PARTITIONED BY (y)")
    table = Table.open(path)
    assert (table.version, table.schema.names, table.partition_by) == (2, ["x", "v", "y"], ("y",))
    assert (table.schema.field("x").nullable, table.schema.field("x").metadata) == (False, {b"comment": b"c"})
    with pytest.raises(PySparkException, match=r"'v' .*varchar\(3\)|EXCEED_LIMIT_LENGTH"):
        spark.sql(f"INSERT INTO {name} VALUES (1, 'long', 1)")
    spark.sql(f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (b) AS SELECT a.x + 1 AS q, 5 AS b FROM VALUES (1) a (x)")
    assert (table.refresh().version, table.partition_by, rows(spark, f"SELECT * FROM {name}")) == (3, ("b",), [(2, 5)])
    spark.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT q AS r FROM {name}")
    assert rows(spark, f"SELECT * FROM {name}") == [(2,)]
    assert rows(spark, f"SELECT id FROM {name} VERSION AS OF 1") == [(1,)]
    with pytest.raises(PySparkException, match=r"RAISED|USER_RAISED"):
        spark.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT CAST(raise_error('no') AS INT) AS other FROM {name}")
    with pytest.raises(PySparkException, match="REPLACE TABLE with other properties than the table has"):
        spark.sql(f"CREATE OR REPLACE TABLE {name} (x INT) TBLPROPERTIES ('delta.appendOnly' = 'true')")
    assert (table.refresh().version, table.schema.names) == (4, ["r"])


@pytest.mark.full
def test_frames_with_other_columns(spark: SparkSession, path: str) -> None:
    name, frame = f"tidelog.`{path}`", spark.range(1).selectExpr("id", "'x' AS more")
    write = frame.write.format("tidelog").mode("overwrite")
    with pytest.raises(PySparkException, match=r"other columns than the frame; add .option\(\"overwriteSchema\", "):
        write.saveAsTable(name)
    write.option("overwriteSchema", "true").saveAsTable(name)
    assert rows(spark, f"SELECT * FROM {name}") == [(0, "x")]
    more = spark.range(1, 2).selectExpr("id", "'y' AS more", "named_struct('a', 1) AS st")
    more.write.format("tidelog").mode("append").option("mergeSchema", "true").save(path)
    assert rows(spark, f"SELECT id, more, st.a FROM {name}") == [(0, "x", None), (1, "y", 1)]
    more.write.format("tidelog").mode("overwrite").option("overwriteSchema", "true").partitionBy("id").save(path)
    frame.writeTo(name).using("tidelog").createOrReplace()
    assert rows(spark, f"SELECT * FROM {name}") == [(0, "x")]
    assert (Table.open(path).version, Table.open(path).partition_by) == (5, ())
