"""SQL over `format("tidelog")`: temporary views work, tables of Spark's catalog do not.

Spark 4.2 does not pass the location or the options of a catalog table to a Python data source. It creates a table with
columns without calling the source at all, so there the error comes with the first query.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.streaming.support import numbers_in
from tidelog.log import Table
from tidelog.streaming import spark_versions

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])
NOT_SUPPORTED = r"TIDELOG_CONFIGURATION: CREATE TABLE \.\.\. USING tidelog is not supported: .* Table\.create\(path, "
NO_PATH = (
    r"TIDELOG_CONFIGURATION: Spark did not pass a table path; .* DROP TABLE name, then CREATE TEMPORARY VIEW name "
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


@pytest.mark.parametrize("where", ["OPTIONS (path '{}')", "LOCATION '{}'", "LOCATION '{}' TBLPROPERTIES (x = '1')"])
def test_create_table_without_columns_is_an_error(spark: SparkSession, table: Table, catalog: str, where: str) -> None:
    with pytest.raises(AnalysisException, match=NOT_SUPPORTED):
        spark.sql(f"CREATE TABLE {catalog} USING tidelog {where.format(table.path)}")
    assert not spark.catalog.tableExists(catalog)


def test_the_catalog_s_create_table_is_an_error(spark: SparkSession, table: Table, catalog: str) -> None:
    with pytest.raises(AnalysisException, match=NOT_SUPPORTED):
        spark.catalog.createTable(catalog, path=table.path, source="tidelog")
    assert not spark.catalog.tableExists(catalog)


def test_create_table_as_select_is_an_error(spark: SparkSession, tmp_path: Path, catalog: str) -> None:
    with pytest.raises(AnalysisException, match=NO_PATH):
        spark.sql(f"CREATE TABLE {catalog} USING tidelog LOCATION '{tmp_path / 'new'}' AS SELECT 1 AS n")
    assert not spark.catalog.tableExists(catalog)
    assert not (tmp_path / "new").exists()


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
    options = f"path '{table.path}', after '1', changes 'append', columns 'n, _commit_version'"
    spark.sql(f"CREATE TEMPORARY VIEW later USING tidelog OPTIONS ({options})")
    try:
        assert spark.sql("SELECT * FROM later").collect() == [(3, 2)]
        with pytest.raises(AnalysisException, match=r"the option '\w+' is for reads only; leave it out"):
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


def test_a_temporary_view_stays_at_the_version_of_its_first_query(spark: SparkSession, table: Table, view: str) -> None:
    """Spark plans a data source once for each view, as it does for each DataFrame; Spark 4.0 for each query."""
    rows = [(1, "a"), (2, "b")]
    assert sorted(spark.table(view).collect()) == rows
    spark.sql(f"INSERT INTO {view} VALUES (3, 'c')")
    seen = rows if spark_versions.INSTALLED >= (4, 1) else [*rows, (3, "c")]
    assert sorted(spark.table(view).collect()) == seen
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING tidelog OPTIONS (path '{table.path}')")
    assert sorted(spark.table(view).collect()) == [*rows, (3, "c")]
