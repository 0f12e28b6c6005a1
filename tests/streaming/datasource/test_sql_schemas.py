"""Schemas of the SQL catalog `tidelog`, and tables of it that are at another place than their name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tests.streaming.datasource.sql_tables import only, rows
from tests.streaming.support import JVM_SOURCE, numbers_in
from tidelog.log import Table
from tidelog.log.errors import TableNotFoundError
from tidelog.streaming import register, sql

pytestmark = [pytest.mark.spark, JVM_SOURCE]


@pytest.fixture
def named(spark: SparkSession, tmp_path: Path) -> SparkSession:
    """A session whose catalog has a folder."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(tmp_path / "warehouse"))
    register(session)
    return session


def described(session: SparkSession, statement: str) -> dict[str, str]:
    return {row[0]: row[1] for row in session.sql(statement).collect()}


@pytest.mark.oldest
def test_a_schema(named: SparkSession) -> None:
    named.sql("CREATE SCHEMA tidelog.sales COMMENT 'what was sold' WITH DBPROPERTIES ('team' = 'x')")
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        named.sql("CREATE SCHEMA tidelog.sales")
    named.sql("CREATE SCHEMA IF NOT EXISTS tidelog.sales")
    named.sql("CREATE TABLE tidelog.made.orders AS SELECT 1L AS n")
    assert rows(named, "SHOW SCHEMAS IN tidelog") == [("made",), ("sales",)]
    assert rows(named, "SHOW DATABASES IN tidelog LIKE 's*'") == [("sales",)]
    assert described(named, "DESCRIBE SCHEMA EXTENDED tidelog.sales")["Comment"] == "what was sold"
    named.sql("ALTER SCHEMA tidelog.sales SET DBPROPERTIES ('team' = 'y')")
    named.sql("COMMENT ON SCHEMA tidelog.sales IS 'other'")
    found = described(named, "DESCRIBE SCHEMA EXTENDED tidelog.sales")
    assert (found["Comment"], "(team,y)" in found["Properties"]) == ("other", True)
    named.sql("USE tidelog.sales")
    assert named.catalog.currentDatabase() == "sales"
    named.sql("CREATE TABLE items AS SELECT 2L AS n")
    assert rows(named, "SELECT * FROM items JOIN tidelog.made.orders USING (n)") == []
    assert [row[1] for row in rows(named, "SHOW TABLES")] == ["items"]
    named.sql("USE spark_catalog.default")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        named.sql("USE tidelog.nothing")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        named.sql("DROP SCHEMA tidelog.sales")
    named.sql("DROP SCHEMA tidelog.sales CASCADE")
    assert rows(named, "SHOW SCHEMAS IN tidelog") == [("made",)]
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        named.sql("DROP SCHEMA tidelog.sales")
    named.sql("DROP SCHEMA IF EXISTS tidelog.sales")
    named.sql("DROP TABLE tidelog.made.orders")
    assert rows(named, "SHOW SCHEMAS IN tidelog") == []


@pytest.mark.full
def test_schemas_in_schemas(named: SparkSession, tmp_path: Path) -> None:
    named.sql("CREATE SCHEMA tidelog.a.b")
    assert rows(named, "SHOW SCHEMAS IN tidelog") == [("a",)]
    assert rows(named, "SHOW SCHEMAS IN tidelog.a") == [("a.b",)]
    named.sql("CREATE TABLE tidelog.a.b.t AS SELECT 1L AS n")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        named.sql("DROP SCHEMA tidelog.a")
    named.sql("DROP SCHEMA tidelog.a CASCADE")
    assert rows(named, "SHOW SCHEMAS IN tidelog") == []
    with pytest.raises(TableNotFoundError):
        Table.open(str(tmp_path / "warehouse" / "a" / "b" / "t"))
    with pytest.raises(PySparkException, match="a schema of the catalog tidelog is the folder of its name"):
        named.sql("CREATE SCHEMA tidelog.c LOCATION '/elsewhere'")
    (tmp_path / "warehouse" / "d").mkdir(parents=True)
    (tmp_path / "warehouse" / "d" / "_tidelog_schema.json").write_text("{")
    with pytest.raises(PySparkException, match=r"TIDELOG_CORRUPT_LOG: the schema at .* cannot be read"):
        named.sql("DESCRIBE SCHEMA tidelog.d")


@pytest.mark.oldest
def test_a_table_at_a_location(named: SparkSession, tmp_path: Path) -> None:
    """Its name is a pointer. DROP TABLE takes the name away, and the table stays."""
    place = tmp_path / "elsewhere"
    named.sql(f"CREATE TABLE tidelog.sales.orders (n BIGINT) USING tidelog LOCATION '{place}/a'")
    named.sql(f"CREATE TABLE tidelog.sales.items (n BIGINT) USING TIDELOG OPTIONS (PATH '{place}/b')")
    named.sql(f"CREATE TABLE tidelog.sales.filled LOCATION 'file:{place}/c' AS SELECT 5L AS n")
    named.sql("INSERT INTO tidelog.sales.orders VALUES (1)")
    named.sql("UPDATE tidelog.sales.orders SET n = n + 1")
    assert numbers_in(place / "a") == [2]
    assert numbers_in(place / "c") == [5]
    assert [row[1] for row in rows(named, "SHOW TABLES IN tidelog.sales")] == ["filled", "items", "orders"]
    assert described(named, "DESCRIBE EXTENDED tidelog.sales.orders")["Location"] == f"{place}/a"
    assert only(sql(named, "DESCRIBE DETAIL tidelog.sales.orders")).location == f"{place}/a"
    named.sql(f"CREATE TABLE tidelog.sales.again USING tidelog LOCATION '{place}/a'")
    assert rows(named, "SELECT * FROM tidelog.sales.again") == [(2,)]
    with pytest.raises(PySparkException, match=r"the table at .* has other columns than the statement says"):
        named.sql(f"CREATE TABLE tidelog.sales.other (x STRING) LOCATION '{place}/a'")
    with pytest.raises(PySparkException, match="TIDELOG_TABLE_EXISTS: there is already a table at"):
        named.sql(f"CREATE TABLE tidelog.sales.other LOCATION '{place}/a' AS SELECT 7L AS n")
    with pytest.raises(PySparkException, match="BOOM"):
        named.sql(
            f"CREATE TABLE tidelog.sales.other LOCATION '{place}/d' AS SELECT CAST(raise_error('BOOM') AS BIGINT) AS n"
        )
    with pytest.raises(PySparkException, match=r"cannot have the LOCATION /b: its name is its place"):
        named.sql("CREATE TABLE tidelog.`/a` (n INT) LOCATION '/b'")
    named.sql("DROP TABLE tidelog.sales.again")
    named.sql("DROP SCHEMA tidelog.sales CASCADE")
    assert numbers_in(place / "a") == [2]
    assert rows(named, "SHOW SCHEMAS IN tidelog") == []


@pytest.mark.full
def test_a_comment_on_a_table(named: SparkSession, tmp_path: Path) -> None:
    """It is the table's description, as in Delta, and no property of it."""
    named.sql("CREATE TABLE tidelog.orders (n BIGINT) COMMENT 'what was sold' TBLPROPERTIES ('team' = 'x')")
    path = str(tmp_path / "warehouse" / "orders")

    def comment() -> str | None:
        found: str | None = only(named.sql("CALL tidelog.system.detail('tidelog.orders')")).description
        return found

    assert comment() == "what was sold"
    assert described(named, "DESCRIBE EXTENDED tidelog.orders")["Comment"] == "what was sold"
    assert "COMMENT 'what was sold'" in only(named.sql("SHOW CREATE TABLE tidelog.orders"))[0]
    assert "comment" not in Table.open(path).properties
    named.sql("COMMENT ON TABLE tidelog.orders IS 'other'")
    assert (comment(), Table.open(path).version) == ("other", 1)
    named.sql("ALTER TABLE tidelog.orders UNSET TBLPROPERTIES ('comment')")
    assert (comment(), Table.open(path).version) == (None, 2)
    assert Table.open(path).properties["team"] == "x"
