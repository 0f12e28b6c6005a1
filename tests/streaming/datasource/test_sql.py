"""SQL over `format("tidelog")`: temporary views, and tables of Spark's own catalog.

Spark passes neither the location nor the options of a catalog table to a Python data source, so with that source (Spark
Connect) a table of the catalog is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tests.streaming.support import IN_JVM, JVM_SOURCE, PYTHON_SOURCE, numbers_in
from tidelog.log import Table
from tidelog.streaming import register, spark_versions

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])
NOT_SUPPORTED = r"TIDELOG_CONFIGURATION: CREATE TABLE \.\.\. USING tidelog is not supported: .* Table\.create\(path, "
NO_PATH = (
    r"TIDELOG_CONFIGURATION: Spark did not pass a table path; .* DROP TABLE name, then CREATE TEMPORARY VIEW name "
)
PLACES = pytest.mark.parametrize(
    "where", ["OPTIONS (path '{}')", "LOCATION '{}'", "LOCATION '{}' TBLPROPERTIES (x = '1')"]
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "table"), SCHEMA)
    made.insert([{"n": 1, "part": "a"}, {"n": 2, "part": "b"}])
    return made


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[str]:
    """A name in the catalog, free again after the test."""
    yield "made_in_test"
    spark.sql("DROP TABLE IF EXISTS made_in_test")


@pytest.fixture
def view(spark: SparkSession, table: Table) -> Iterator[str]:
    spark.sql(f"CREATE TEMPORARY VIEW numbers USING tidelog OPTIONS (path '{table.path}')")
    yield "numbers"
    spark.catalog.dropTempView("numbers")


def managed(spark: SparkSession, name: str) -> str:
    """Where Spark keeps a table without a location."""
    described = spark.sql(f"DESCRIBE EXTENDED {name}").collect()
    found: str = next(row.data_type for row in described if row.col_name == "Location")
    return found.removeprefix("file:")


@JVM_SOURCE
@PLACES
def test_a_table_of_the_catalog(spark: SparkSession, table: Table, catalog: str, where: str) -> None:
    spark.sql(f"CREATE TABLE {catalog} USING tidelog {where.format(table.path)}")
    assert spark.table(catalog).columns == ["n", "part"]
    spark.sql(f"INSERT INTO {catalog} VALUES (3, 'c')")
    table.insert([{"n": 4, "part": "d"}])
    assert sorted(spark.sql(f"SELECT n FROM {catalog} WHERE n > 1").collect()) == [(2,), (3,), (4,)]
    spark.sql(f"INSERT OVERWRITE {catalog} VALUES (5, 'e')")
    assert numbers_in(table.path) == [5]
    spark.sql(f"DROP TABLE {catalog}")
    assert numbers_in(table.path) == [5]


@JVM_SOURCE
def test_the_catalog_s_create_table(spark: SparkSession, table: Table, catalog: str) -> None:
    spark.catalog.createTable(catalog, path=table.path, source="tidelog")
    assert spark.table(catalog).count() == 2


@JVM_SOURCE
def test_create_table_as_select(spark: SparkSession, tmp_path: Path, catalog: str) -> None:
    spark.sql(f"CREATE TABLE {catalog} USING tidelog LOCATION '{tmp_path / 'new'}' AS SELECT 1 AS n")
    assert numbers_in(tmp_path / "new") == [1]
    assert spark.table(catalog).collect() == [(1,)]


@JVM_SOURCE
@pytest.mark.oldest
@pytest.mark.parametrize("location", ["", "LOCATION '{}'"])
def test_a_new_table_of_the_catalog(spark: SparkSession, tmp_path: Path, catalog: str, location: str) -> None:
    """Its columns, partition columns and properties are the table's."""
    spark.sql(
        f"CREATE TABLE {catalog} (part STRING, n BIGINT COMMENT 'a number') USING tidelog PARTITIONED BY (part) "
        f"{location.format(tmp_path / 'new')} TBLPROPERTIES ('tidelog.primaryKey' = 'n', 'team' = 'x')"
    )
    place = str(tmp_path / "new") if location else managed(spark, catalog)
    made = Table.open(place)
    assert (made.partition_by, made.properties["tidelog.primaryKey"]) == (("part",), "n")
    assert made.properties["team"] == "x"
    assert made.schema.field("n").metadata == {b"comment": b"a number"}
    spark.sql(f"CREATE TABLE IF NOT EXISTS {catalog} (n INT) USING tidelog")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql(f"CREATE TABLE {catalog} (n INT) USING tidelog")
    spark.sql(f"INSERT INTO {catalog} (n, part) VALUES (1, 'a')")
    spark.sql(f"ALTER TABLE {catalog} ADD COLUMNS (note STRING)")
    spark.sql(f"UPDATE {catalog} SET note = 'x'")
    assert [row.asDict() for row in spark.table(catalog).collect()] == [{"n": 1, "note": "x", "part": "a"}]
    assert made.refresh().schema.names == ["part", "n", "note"]
    spark.sql(f"DROP TABLE {catalog}")
    assert Path(place).exists() == bool(location)


@JVM_SOURCE
def test_a_new_table_of_the_catalog_that_cannot_be_made(spark: SparkSession, catalog: str) -> None:
    with pytest.raises(PySparkException, match=r"unknown table property 'tidelog\.no'"):
        spark.sql(f"CREATE TABLE {catalog} (n INT) USING tidelog TBLPROPERTIES ('tidelog.no' = '1')")
    assert not spark.catalog.tableExists(catalog)


@JVM_SOURCE
@pytest.mark.oldest
@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("(n INT) USING tidelog CLUSTERED BY (n) INTO 2 BUCKETS", "CLUSTERED BY .* is not supported"),
        ("USING tidelog CLUSTERED BY (n) INTO 2 BUCKETS AS SELECT 1 AS n", "CLUSTERED BY .* is not supported"),
        (
            "(v STRING COLLATE UTF8_LCASE) USING tidelog",
            "a table keeps no collation, and the length of a whole column only; use STRING",
        ),
        ("USING tidelog AS SELECT 'x' COLLATE UTF8_LCASE AS v", "a table keeps no collation"),
        ("LIKE other USING tidelog", r"CREATE TABLE \.\.\. LIKE is not supported; use CREATE TABLE \.\.\. AS SELECT"),
    ],
)
def test_what_a_new_table_of_the_catalog_cannot_keep(
    spark: SparkSession, tmp_path: Path, catalog: str, made: str, message: str
) -> None:
    spark.sql(f"CREATE TABLE other (n INT) USING parquet LOCATION '{tmp_path / 'other'}'")
    try:
        with pytest.raises(PySparkException, match=message):
            spark.sql(f"CREATE TABLE {catalog} {made}")
    finally:
        spark.sql("DROP TABLE other")
    assert not spark.catalog.tableExists(catalog)


@JVM_SOURCE
@pytest.mark.oldest
def test_an_overwrite_of_the_partitions_of_the_rows(spark: SparkSession, catalog: str) -> None:
    session = spark.newSession()
    register(session)
    session.sql(f"CREATE TABLE {catalog} (n INT, part STRING) USING tidelog PARTITIONED BY (part)")
    session.sql(f"INSERT INTO {catalog} VALUES (1, 'a'), (2, 'b')")
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    session.sql(f"INSERT OVERWRITE {catalog} VALUES (3, 'b')")
    assert sorted(session.table(catalog).collect()) == [(1, "a"), (3, "b")]
    session.sql("SELECT 4 AS n, 'a' AS part").write.insertInto(catalog, overwrite=True)
    assert sorted(session.table(catalog).collect()) == [(3, "b"), (4, "a")]
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    session.sql(f"INSERT OVERWRITE {catalog} VALUES (5, 'c')")
    assert session.table(catalog).collect() == [(5, "c")]
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    session.sql(f"DROP TABLE {catalog}")
    session.sql(f"CREATE TABLE {catalog} USING tidelog AS SELECT 1 AS n")
    session.sql(f"INSERT OVERWRITE {catalog} VALUES (2)")
    assert session.table(catalog).collect() == [(2,)]


@JVM_SOURCE
def test_changes_need_their_columns(spark: SparkSession, table: Table, catalog: str) -> None:
    table.delete("n = 1")
    spark.sql(f"CREATE TABLE {catalog} USING tidelog LOCATION '{table.path}'")
    with pytest.raises(PySparkException, match="rows that were deleted would look like others; load the path without"):
        spark.read.option("changes", "cdc").table(catalog)
    assert spark.read.option("after", "0").option("endingVersion", "1").table(catalog).count() == 2


@JVM_SOURCE
@pytest.mark.oldest
def test_create_table_as_select_with_partitions(spark: SparkSession, catalog: str) -> None:
    spark.sql(
        f"CREATE TABLE {catalog} USING tidelog PARTITIONED BY (part) TBLPROPERTIES ('team' = 'x') "
        "AS SELECT 1L AS n, 'a' AS part"
    )
    made = Table.open(managed(spark, catalog))
    assert (made.partition_by, made.properties["team"]) == (("part",), "x")
    frame = spark.sql("SELECT 2L AS n, 'b' AS part")
    frame.write.format("tidelog").mode("append").partitionBy("part").saveAsTable(catalog)
    assert numbers_in(made.path) == [1, 2]
    frame.write.format("tidelog").mode("overwrite").partitionBy("part").saveAsTable(catalog)
    assert spark.table(catalog).collect() == [(2, "b")]
    assert Table.open(made.path).partition_by == ("part",)


@JVM_SOURCE
def test_a_table_of_the_catalog_has_the_columns_that_it_was_made_with(
    spark: SparkSession, table: Table, catalog: str
) -> None:
    spark.sql(f"CREATE TABLE {catalog} (n INT) USING tidelog LOCATION '{table.path}'")
    assert sorted(spark.sql(f"SELECT * FROM {catalog}").collect()) == [(1,), (2,)]


@JVM_SOURCE
@pytest.mark.parametrize("mode", ["append", "ignore", "overwrite", "error"])
def test_a_new_name_never_replaces_the_rows_of_a_table(
    spark: SparkSession, table: Table, catalog: str, mode: str
) -> None:
    """Spark asks for an overwrite then, whatever its user said. In some cases, it refuses by itself."""
    rows = spark.range(5).selectExpr("id AS n", "'x' AS part")
    refused = r"TIDELOG_TABLE_EXISTS: .* CREATE TABLE name USING|non-empty directory"
    with pytest.raises(PySparkException, match=refused):
        rows.write.format("tidelog").mode(mode).option("path", table.path).saveAsTable(catalog)
    with pytest.raises(PySparkException, match=refused):
        spark.sql(f"CREATE TABLE IF NOT EXISTS {catalog} USING tidelog LOCATION '{table.path}' AS SELECT 5L AS n")
    assert numbers_in(table.path) == [1, 2]
    assert table.refresh().version == 1


@PYTHON_SOURCE
@PLACES
def test_create_table_without_columns_is_an_error(spark: SparkSession, table: Table, catalog: str, where: str) -> None:
    with pytest.raises(AnalysisException, match=NOT_SUPPORTED):
        spark.sql(f"CREATE TABLE {catalog} USING tidelog {where.format(table.path)}")
    assert not spark.catalog.tableExists(catalog)


@PYTHON_SOURCE
def test_the_catalog_s_create_table_is_an_error(spark: SparkSession, table: Table, catalog: str) -> None:
    with pytest.raises(AnalysisException, match=NOT_SUPPORTED):
        spark.catalog.createTable(catalog, path=table.path, source="tidelog")
    assert not spark.catalog.tableExists(catalog)


@PYTHON_SOURCE
def test_create_table_as_select_is_an_error(spark: SparkSession, tmp_path: Path, catalog: str) -> None:
    with pytest.raises(AnalysisException, match=NO_PATH):
        spark.sql(f"CREATE TABLE {catalog} USING tidelog LOCATION '{tmp_path / 'new'}' AS SELECT 1 AS n")
    assert not spark.catalog.tableExists(catalog)
    assert not (tmp_path / "new").exists()


@PYTHON_SOURCE
def test_a_table_with_columns_cannot_be_read_or_written(spark: SparkSession, table: Table, catalog: str) -> None:
    spark.sql(f"CREATE TABLE {catalog} (n BIGINT, part STRING) USING tidelog LOCATION '{table.path}'")
    with pytest.raises(AnalysisException, match=NO_PATH):
        spark.sql(f"SELECT * FROM {catalog}").collect()
    with pytest.raises(AnalysisException, match=NO_PATH):
        spark.sql(f"INSERT INTO {catalog} VALUES (3, 'c')")
    assert numbers_in(table.path) == [1, 2]


def test_a_temporary_view_is_queried(spark: SparkSession, view: str) -> None:
    assert spark.sql(f"SELECT max(n) FROM {view} WHERE part < 'z'").collect() == [(2,)]


def test_a_temporary_view_takes_options(spark: SparkSession, table: Table) -> None:
    table.insert([{"n": 3, "part": "c"}])
    options = f"path '{table.path}', after '1', changes 'append', columns 'n, -_commit_timestamp'"
    spark.sql(f"CREATE TEMPORARY VIEW later USING tidelog OPTIONS ({options})")
    try:
        assert spark.sql("SELECT * FROM later").collect() == [(3, 2)]
        with pytest.raises(PySparkException, match=r"the option '\w+' is for reads only; leave it out"):
            spark.sql("INSERT INTO later VALUES (4, 4)")
    finally:
        spark.catalog.dropTempView("later")


def test_insert_into_a_temporary_view(spark: SparkSession, table: Table, view: str) -> None:
    spark.sql(f"INSERT INTO {view} VALUES (3, 'c')")
    spark.sql(f"INSERT INTO {view} (part, n) SELECT 'd', 4")
    # Spark 4.0 does not fill in a column that is left out.
    columns, values = ("(n)", "(5)") if spark_versions.INSTALLED >= (4, 1) else ("", "(5, null)")
    spark.sql(f"INSERT INTO {view} {columns} VALUES {values}")
    assert numbers_in(table.path) == [1, 2, 3, 4, 5]
    assert table.refresh().version == 4
    spark.sql(f"INSERT OVERWRITE {view} VALUES (6, 'f')")
    assert numbers_in(table.path) == [6]


def test_which_version_a_temporary_view_has(spark: SparkSession, table: Table, view: str) -> None:
    """Each query reads the newest. Spark plans a Python source once for each view; Spark 4.0 for each query."""
    rows = [(1, "a"), (2, "b")]
    assert sorted(spark.table(view).collect()) == rows
    spark.sql(f"INSERT INTO {view} VALUES (3, 'c')")
    stays = not IN_JVM and spark_versions.INSTALLED >= (4, 1)
    assert sorted(spark.table(view).collect()) == (rows if stays else [*rows, (3, "c")])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING tidelog OPTIONS (path '{table.path}')")
    assert sorted(spark.table(view).collect()) == [*rows, (3, "c")]
