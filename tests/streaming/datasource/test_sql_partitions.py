"""Partitions in SQL: SHOW PARTITIONS, TRUNCATE and INSERT OVERWRITE of one, of each type and with any name."""

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

# A type, and a value of it in SQL.
VALUES = [
    ("BINARY", "X'6162'"),
    ("BOOLEAN", "true"),
    ("DATE", "DATE '1590-01-01'"),
    ("DOUBLE", "1.5D"),
    ("STRING", "'it\\'s \\\\ = %'"),
    ("BIGINT", "-3"),
    ("DECIMAL(5,2)", "1.50"),
    ("DOUBLE", "double('NaN')"),
    ("FLOAT", "1.5F"),
    ("SMALLINT", "2"),
    ("TIMESTAMP", "TIMESTAMP '1950-01-01 00:00:00.000001'"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '1850-01-01 00:00:00.000001'"),
]
SHORT = VALUES[:5]


def check(spark: SparkSession, path: Path, kind: str, value: str, name: str) -> None:
    table, column = f"tidelog.`{path}`", "`" + name.replace("`", "``") + "`"
    constant = "'NaN'" if "NaN" in value else value  # Spark's grammar takes no function there
    spark.sql(f"CREATE TABLE {table} (id INT, {column} {kind}) PARTITIONED BY ({column})")
    spark.sql(f"INSERT INTO {table} VALUES (1, {value}), (2, NULL)")
    assert spark.sql(f"SHOW PARTITIONS {table}").count() == 2
    assert spark.sql(f"SHOW PARTITIONS {table} PARTITION ({column} = {constant})").count() == 1
    spark.sql(f"INSERT OVERWRITE {table} PARTITION ({column} = {constant}) SELECT 7")
    assert rows(spark, f"SELECT id FROM {table}") == [(2,), (7,)]
    assert rows(spark, f"SELECT id FROM {table} WHERE {column} <=> {value}") == [(7,)]
    spark.sql(f"INSERT OVERWRITE {table} PARTITION ({column} = NULL) SELECT 8")
    assert rows(spark, f"SELECT id FROM {table}") == [(7,), (8,)]
    spark.sql(f"TRUNCATE TABLE {table} PARTITION ({column} = {constant})")
    assert rows(spark, f"SELECT id FROM {table}") == [(8,)]
    assert spark.sql(f"SHOW PARTITIONS {table}").count() == 1
    spark.sql(f"INSERT INTO {table} BY NAME SELECT {value} AS {column}, 9 AS id")
    spark.sql(f"TRUNCATE TABLE {table} PARTITION ({column} = NULL)")
    assert rows(spark, f"SELECT id FROM {table}") == [(9,)]
    assert Table.open(str(path)).version == 6


@pytest.mark.parametrize(
    ("kind", "value"),
    [pytest.param(*SHORT[0], marks=pytest.mark.full), pytest.param(*SHORT[4], marks=pytest.mark.oldest)],
)
def test_a_partition_of_a_type(spark: SparkSession, tmp_path: Path, kind: str, value: str) -> None:
    check(spark, tmp_path / "table", kind, value, "p")


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "value"), VALUES)
@pytest.mark.parametrize("name", ["p", "ü", "x.y", "a b", "b`c", "1st"])
def test_a_partition_of_each_type_with_any_name(
    spark: SparkSession, tmp_path: Path, kind: str, value: str, name: str
) -> None:
    check(spark, tmp_path / "table", kind, value, name)


@pytest.mark.full
@pytest.mark.parametrize("name", ["ü", "x.y", "a b", "b`c", "1st"])
def test_a_partition_column_with_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check(spark, tmp_path / "table", "STRING", "'a'", name)
    assert spark.sql(f"DESCRIBE tidelog.`{tmp_path}/table`").count() > 0


@pytest.mark.full
def test_parts_of_several_partition_columns(spark: SparkSession, tmp_path: Path) -> None:
    name = f"tidelog.`{tmp_path}/table`"
    spark.sql(f"CREATE TABLE {name} (id INT, day DATE, s STRING) PARTITIONED BY (day, s)")
    spark.sql(
        f"INSERT INTO {name} SELECT id, DATE '2026-01-01' + CAST(id % 2 AS INT), concat('s=', id % 3) FROM range(6)"
    )
    assert [row[0] for row in rows(spark, f"SHOW PARTITIONS {name} PARTITION (day = '2026-01-02')")] == [
        f"day=2026-01-02/s=s%3D{number}" for number in range(3)
    ]
    spark.sql(f"TRUNCATE TABLE {name} PARTITION (day = '2026-01-02')")
    spark.sql(f"TRUNCATE TABLE {name} PARTITION (s = 's=0', day = '2026-01-01')")
    assert rows(spark, f"SELECT id FROM {name}") == [(2,), (4,)]
    assert [record.operation for record in Table.open(f"{tmp_path}/table").history(2)] == ["TRUNCATE", "TRUNCATE"]
    for statement, message in (
        (f"ALTER TABLE {name} ADD PARTITION (day = '2026-01-01', s = 'x')", "insert its rows: a partition is there"),
        (
            f"ALTER TABLE {name} DROP PARTITION (day = '2026-01-01', s = 's=1')",
            r"DROP PARTITION is not supported; use TRUNCATE TABLE \.\.\. PARTITION, or DELETE",
        ),
        (f"SHOW PARTITIONS {name} PARTITION (nothing = 1)", "PARTITIONS_NOT_FOUND|nothing"),
    ):
        with pytest.raises(PySparkException, match=message):
            spark.sql(statement)
    assert rows(spark, f"SELECT id FROM {name}") == [(2,), (4,)]


@pytest.mark.full
def test_cluster_by_is_a_property(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/table"
    spark.sql(f"CREATE TABLE tidelog.`{path}` (id INT, n INT) CLUSTER BY (id, n)")
    assert Table.open(path).properties["tidelog.clusterBy"] == "id, n"
    spark.sql(f"ALTER TABLE tidelog.`{path}` CLUSTER BY (n)")
    assert Table.open(path).properties["tidelog.clusterBy"] == "n"
    spark.sql(f"ALTER TABLE tidelog.`{path}` CLUSTER BY NONE")
    assert "tidelog.clusterBy" not in Table.open(path).properties
    spark.sql(f"CREATE TABLE tidelog.`{path}2` CLUSTER BY (n) AS SELECT 1 AS n")
    assert Table.open(f"{path}2").properties["tidelog.clusterBy"] == "n"
    with pytest.raises(PySparkException, match=r"cannot cluster: there is no column 'x'|_COLUMN"):
        spark.sql(f"ALTER TABLE tidelog.`{path}` CLUSTER BY (x)")


@pytest.mark.full
def test_spark_knows_by_what_a_table_is_clustered(spark: SparkSession, tmp_path: Path) -> None:
    """It compares the columns with those of a write, as of a materialized view, which names them each time."""
    name = f"tidelog.`{tmp_path}/table`"
    spark.sql(f"CREATE TABLE {name} (id INT, `a.b` INT) CLUSTER BY (`a.b`)")
    writer = spark.sql("SELECT 1 AS id, 2 AS `a.b`").write.format("tidelog").mode("append")
    writer.clusterBy("`a.b`").saveAsTable(name)
    with pytest.raises(PySparkException, match="do not match the existing table"):
        spark.sql("SELECT 1 AS id, 2 AS `a.b`").write.mode("append").clusterBy("id").saveAsTable(name)
    assert rows(spark, f"SELECT * FROM {name}") == [(1, 2)]
    spark.sql("SELECT 3 AS id, 4 AS `a.b`").writeTo(name).overwritePartitions()
    assert rows(spark, f"SELECT * FROM {name}") == [(3, 4)]
    assert "cluster_by" not in str(rows(spark, f"SHOW CREATE TABLE {name}"))
    spark.sql(f"CREATE TABLE tidelog.`{tmp_path}/like` LIKE {name}")
    assert Table.open(f"{tmp_path}/like").properties["tidelog.clusterBy"] == "a.b"


@pytest.mark.full
@pytest.mark.skipif(INSTALLED < (4, 2), reason="Spark asks no catalog for it")
def test_a_table_like_another_one(spark: SparkSession, tmp_path: Path) -> None:
    source, path = f"tidelog.`{tmp_path}/source`", f"{tmp_path}/copy"
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT NOT NULL COMMENT 'c', v VARCHAR(3), day DATE) PARTITIONED BY (day) "
        "COMMENT 'd' TBLPROPERTIES ('tidelog.primaryKey' = 'id', 'team' = 'x')"
    )
    spark.sql(f"INSERT INTO {source} VALUES (1, 'abc', NULL)")
    spark.sql(f"CREATE TABLE tidelog.`{path}` LIKE {source} TBLPROPERTIES ('team' = 'y')")
    made, old = Table.open(path), Table.open(f"{tmp_path}/source")
    assert made.schema.equals(old.schema, check_metadata=True)
    assert (made.partition_by, made.properties["tidelog.primaryKey"], made.properties["team"]) == (("day",), "id", "y")
    assert (made.version, spark.table(f"tidelog.`{path}`").count()) == (0, 0)


@pytest.mark.full
def test_a_partition_of_a_name_in_spark_s_own_catalog(spark: SparkSession) -> None:
    name = "partitions_in_test"
    spark.sql(f"CREATE TABLE {name} (id INT, day DATE, s STRING) USING tidelog PARTITIONED BY (day, s)")
    try:
        spark.sql(f"INSERT INTO {name} SELECT id, DATE '2026-01-01' + CAST(id % 2 AS INT), 'it\\'s' FROM range(4)")
        spark.sql(f"INSERT INTO {name} VALUES (9, NULL, NULL)")
        spark.sql(f"TRUNCATE TABLE {name} PARTITION (day = '2026-01-02', s = 'it\\'s')")
        assert rows(spark, f"SELECT id FROM {name}") == [(0,), (2,), (9,)]
        spark.sql(f"TRUNCATE TABLE {name} PARTITION (day = NULL)")
        assert rows(spark, f"SELECT id FROM {name}") == [(0,), (2,)]
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_two_values_of_one_column_are_no_partition(spark: SparkSession, tmp_path: Path) -> None:
    name = f"tidelog.`{tmp_path}/table`"
    spark.sql(f"CREATE TABLE {name} (id INT, p BINARY) PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO {name} VALUES (1, X'61'), (2, X'62')")
    with pytest.raises(PySparkException, match="described by more than comparisons"):
        spark.sql(f"INSERT INTO {name} REPLACE WHERE p = X'61' AND p = X'62' SELECT 3, X'62'")
    assert rows(spark, f"SELECT id FROM {name}") == [(1,), (2,)]
