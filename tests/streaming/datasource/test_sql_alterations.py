"""ALTER TABLE and COMMENT ON of the SQL catalog `tidelog`: each statement is one commit of metadata."""

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

# Spark's grammar has constraints since 4.1, and fills in defaults of columns that INSERT leaves out.
SINCE_CONSTRAINTS = pytest.mark.skipif(INSTALLED < (4, 1), reason="Spark has no grammar for it")


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table with two rows, at version 1."""
    found = f"{tmp_path}/table"
    spark.sql(f"CREATE TABLE tidelog.`{found}` (id INT NOT NULL, s STRING, st STRUCT<a: INT, b: STRING>, f FLOAT)")
    spark.sql(
        f"INSERT INTO tidelog.`{found}` VALUES (1, 'x', named_struct('a', 1, 'b', 'y'), 1.5), (2, NULL, NULL, NULL)"
    )
    return found


@pytest.mark.oldest
def test_columns(spark: SparkSession, path: str) -> None:
    alter = f"ALTER TABLE tidelog.`{path}`"
    spark.sql(f"{alter} ADD COLUMNS (new STRING COMMENT 'c' FIRST, more INT AFTER id)")
    spark.sql(f"{alter} ALTER COLUMN s FIRST")
    spark.sql(f"{alter} ALTER COLUMN new AFTER f")
    spark.sql(f"{alter} ALTER COLUMN id COMMENT 'the id'")
    spark.sql(f"{alter} ALTER COLUMN st.a COMMENT 'inner'")
    spark.sql(f"{alter} ALTER COLUMN id DROP NOT NULL")
    table = Table.open(path)
    assert table.schema.names == ["s", "id", "more", "st", "f", "new"]
    assert table.schema.field("id").metadata == {b"comment": b"the id"}
    assert table.schema.field("st").type.field("a").metadata == {b"comment": b"inner"}
    assert table.schema.field("id").nullable
    assert table.version == 7
    spark.sql(f"INSERT INTO tidelog.`{path}` VALUES ('z', NULL, 5, NULL, 2.5, 'n')")
    assert rows(spark, f"SELECT new, more, s FROM tidelog.`{path}` WHERE id IS NULL") == [("n", 5, "z")]
    assert table.refresh().version == 8


@pytest.mark.full
def test_defaults_and_types(spark: SparkSession, path: str) -> None:
    alter = f"ALTER TABLE tidelog.`{path}`"
    spark.sql(f"{alter} ALTER COLUMN s SET DEFAULT concat('a', 'b')")
    spark.sql(f"INSERT INTO tidelog.`{path}` VALUES (3, DEFAULT, NULL, NULL)")
    spark.sql(f"{alter} ALTER COLUMN s DROP DEFAULT")
    spark.sql(f"INSERT INTO tidelog.`{path}` VALUES (4, DEFAULT, NULL, NULL)")
    with pytest.raises(PySparkException, match=r"set the table property 'delta.enableTypeWidening' to true first"):
        spark.sql(f"{alter} ALTER COLUMN id TYPE BIGINT")
    spark.sql(f"{alter} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"{alter} ALTER COLUMN id TYPE BIGINT")
    spark.sql(f"{alter} ALTER COLUMN f TYPE DOUBLE")
    spark.sql(f"INSERT INTO tidelog.`{path}` VALUES ({2**40}, 'y', NULL, 1e300D)")
    assert rows(spark, f"SELECT id, coalesce(s, '-'), coalesce(f, 0) FROM tidelog.`{path}`") == [
        (1, "x", 1.5), (2, "-", 0), (3, "ab", 0), (4, "-", 0), (2**40, "y", 1e300)
    ]  # fmt: skip
    with pytest.raises(PySparkException, match=r"cannot become integer|NOT_SUPPORTED_CHANGE_COLUMN"):
        spark.sql(f"{alter} ALTER COLUMN id TYPE INT")
    assert Table.open(path).version == 9


@pytest.mark.full
@SINCE_CONSTRAINTS
def test_constraints(spark: SparkSession, path: str) -> None:
    name = f"tidelog.`{path}`"
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id > 0)")
    assert Table.open(path).properties["delta.constraints.positive"] == "id > 0"
    with pytest.raises(PySparkException, match="violate the constraint 'positive'"):
        spark.sql(f"INSERT INTO {name} (id) VALUES (-1)")
    with pytest.raises(PySparkException, match="CONSTRAINT_VIOLATION"):
        spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT big CHECK (id > 1)")
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT positive")
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS positive")
    spark.sql(f"INSERT INTO {name} (id) VALUES (-1)")
    with pytest.raises(PySparkException, match="has no constraint 'positive'"):
        spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT positive")
    with pytest.raises(PySparkException, match=r"use CHECK; for keys set the table property 'tidelog\.primaryKey'"):
        spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT pk PRIMARY KEY (id)")
    with pytest.raises(PySparkException, match="a constraint in CREATE TABLE is not supported; use ALTER TABLE"):
        spark.sql(f"CREATE TABLE tidelog.`{path}2` (a INT, CONSTRAINT c CHECK (a > 0))")
    assert Table.open(path).version == 4


@pytest.mark.full
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER COLUMN nothing COMMENT 'x'", "nothing"),
        ("ADD COLUMN d INT DEFAULT 5", r"a DEFAULT, a new field .* is not supported; leave it out|DEFAULT"),
        ("ADD COLUMN st.c INT", r"a DEFAULT, a new field of a struct, .* is not supported; leave it out"),
        ("ADD COLUMN x INT NOT NULL", "the new column 'x' must allow nulls"),
        ("SET LOCATION '/elsewhere'", r"SET LOCATION is not supported; use DROP TABLE"),
        ("ALTER COLUMN s TYPE INT", "cannot become integer|NOT_SUPPORTED_CHANGE_COLUMN"),
    ],
)
def test_what_is_refused(spark: SparkSession, path: str, statement: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.sql(f"ALTER TABLE tidelog.`{path}` {statement}")
    assert Table.open(path).version == 1


@pytest.mark.full
def test_columns_are_renamed_and_dropped(spark: SparkSession, path: str) -> None:
    name = f"tidelog.`{path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN s TO `t x`")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN st.a TO z")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN st.b")
    spark.sql(f"ALTER TABLE {name} DROP COLUMNS IF EXISTS (f, nothing)")
    spark.sql(f"UPDATE {name} SET `t x` = 'z', st.z = 5 WHERE id = (SELECT 1)")
    spark.sql(f"INSERT INTO {name} VALUES (3, 'w', named_struct('z', 3))")
    assert rows(spark, f"SELECT id, `t x`, st.z FROM {name}") == [(1, "z", 5), (2, None, None), (3, "w", 3)]
    assert rows(spark, f"SELECT id, s, f FROM {name} VERSION AS OF 1") == [(1, "x", 1.5), (2, None, None)]
    assert Table.open(path).version == 8


@pytest.mark.full
def test_defaults_of_a_new_table(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/defaults"
    name = f"tidelog.`{path}`"
    spark.sql(f"CREATE TABLE {name} (id INT, n INT DEFAULT 1 + 1, s STRING DEFAULT 'it''s')")
    spark.sql(f"INSERT INTO {name} VALUES (1, DEFAULT, DEFAULT), (2, NULL, 'x')")
    Table.open(path).insert([{"id": 3}])
    assert rows(spark, f"SELECT * FROM {name}") == [(1, 2, "it's"), (2, None, "x"), (3, 2, "it's")]
    with pytest.raises(PySparkException, match="has no DEFAULT 5, as the statement says"):
        spark.sql(f"CREATE OR REPLACE TABLE {name} (id INT DEFAULT 5)")


@pytest.mark.oldest
@pytest.mark.parametrize("by_name", [True, pytest.param(False, marks=pytest.mark.full)])
def test_texts_with_a_length(spark: SparkSession, tmp_path: Path, *, by_name: bool) -> None:
    """VARCHAR(n) and CHAR(n), with Delta's metadata and Spark's padding, whoever writes."""
    path = f"{tmp_path}/lengths"
    name = "lengths_in_test" if by_name else f"tidelog.`{path}`"
    place = f"USING tidelog LOCATION '{path}'" if by_name else ""
    spark.sql(f"CREATE TABLE {name} (id INT, v VARCHAR(3) COMMENT 'c', c CHAR(4)) {place}")
    try:
        table = Table.open(path)
        kinds = [(field.metadata or {}).get(b"__CHAR_VARCHAR_TYPE_STRING") for field in table.schema]
        assert kinds == [None, b"varchar(3)", b"char(4)"]
        spark.sql(f"INSERT INTO {name} VALUES (1, 'ab', 'x'), (2, 'abc  ', NULL)")
        table.insert([{"id": 3, "v": "abc ", "c": "y"}])
        table.upsert([{"id": 1, "v": "q", "c": "z"}], keys=["id"])
        assert sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == [
            (1, "q", "z   "), (2, "abc", None), (3, "abc", "y   ")
        ]  # fmt: skip
        assert rows(spark, f"SELECT id FROM {name} WHERE c = 'y'") == [(3,)]
        for values in ("4, 'abcd', 'x'", "4, 'abc', 'abcde'"):
            with pytest.raises(PySparkException, match=r"EXCEED_LIMIT_LENGTH|TIDELOG_CONSTRAINT_VIOLATION"):
                spark.sql(f"INSERT INTO {name} VALUES ({values})")
        spark.sql(f"UPDATE {name} SET c = 'w' WHERE id = 2")
        assert rows(spark, f"SELECT id FROM {name} WHERE c = 'w'") == [(2,)]
    finally:
        if by_name:
            spark.sql(f"DROP TABLE {name}")


@pytest.mark.full
def test_a_new_column_with_a_length(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/lengths"
    spark.sql(f"CREATE TABLE tidelog.`{path}` (id INT)")
    spark.sql(f"ALTER TABLE tidelog.`{path}` ADD COLUMN w VARCHAR(2)")
    spark.sql(f"INSERT INTO tidelog.`{path}` VALUES (1, 'ab')")
    with pytest.raises(PySparkException, match=r"varchar\(2\)|EXCEED_LIMIT_LENGTH"):
        spark.sql(f"INSERT INTO tidelog.`{path}` VALUES (1, 'abc')")
