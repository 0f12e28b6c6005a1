"""The SQL catalog `tidelog`, and `sql(spark, text)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from tests.log.rules.support import default, ruled_table
from tests.streaming.datasource.sql_tables import rows, small_table
from tests.streaming.support import JVM_SOURCE, numbers_in
from tidelog.log import Table
from tidelog.log.errors import PredicateError, TableNotFoundError
from tidelog.log.storage.local import LocalStore
from tidelog.streaming import register, sql
from tidelog.streaming.datasource import frames
from tidelog.streaming.executors.tasks import run_on_rows
from tidelog.streaming.spark_versions import INSTALLED

pytestmark = [pytest.mark.spark, JVM_SOURCE]

FILLS = INSTALLED >= (4, 1)
DELETES = "ON t.n = s.n WHEN MATCHED AND s.n = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET *"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return small_table(tmp_path)


@pytest.fixture
def named(spark: SparkSession, tmp_path: Path) -> SparkSession:
    """A session whose catalog has a folder."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(tmp_path / "warehouse"))
    register(session)
    return session


@pytest.mark.oldest
def test_a_table_by_its_path(spark: SparkSession, table: Table) -> None:
    name = f"tidelog.`{table.path}`"
    assert rows(spark, f"SELECT n FROM {name} WHERE part = 'b' AND n > 1") == [(3,)]
    assert rows(spark, f"SELECT count(*) FROM {name} a JOIN {name} b USING (n)") == [(4,)]
    spark.sql(f"INSERT INTO {name} VALUES (4, 'a'), (5, NULL)")
    spark.sql(f"INSERT INTO {name} (part, n) SELECT 'c', n + 10 FROM {name} WHERE n = 0")
    assert numbers_in(table.path) == [0, 1, 2, 3, 4, 5, 10]
    assert table.refresh().version == 3
    spark.sql(f"DELETE FROM {name} WHERE n >= 4 OR part = 'b'")
    assert numbers_in(table.path) == [0, 2]
    spark.sql(f"INSERT OVERWRITE {name} VALUES (7, 'x')")
    assert numbers_in(table.path) == [7]
    spark.sql(f"TRUNCATE TABLE {name}")
    assert rows(spark, f"SELECT * FROM {name}") == []


@pytest.mark.oldest
def test_defaults_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Those of the table, also where a statement leaves a column out; Spark 4.0 refuses that."""
    path = str(tmp_path / "table")
    fields = {"v": default("3 + 4"), "s": default("upper('s t')")}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("s", pa.string())])
    ruled_table(schema, fields=fields, store=LocalStore(path))
    name = f"tidelog.`{path}`"
    merge = f"MERGE INTO {name} t USING (SELECT explode(array(1, 4)) AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE"
    for text in (
        f"INSERT INTO {name} VALUES (1, DEFAULT, NULL), (3, 3, 'x')",
        f"INSERT INTO {name} (k) VALUES (2)" if FILLS else f"INSERT INTO {name} VALUES (2, DEFAULT, DEFAULT)",
        f"UPDATE {name} SET v = DEFAULT WHERE k = 3",
        f"{merge} SET s = DEFAULT WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, DEFAULT)",
    ):
        spark.sql(text)
    found = Table.open(path).scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        (1, 7, "S T"), (2, 7, "S T"), (3, 7, "x"), (4, 7, "S T")
    ]  # fmt: skip


def test_a_version_of_the_past(spark: SparkSession, table: Table) -> None:
    name = f"tidelog.`{table.path}`"
    table.delete("n < 3")
    assert rows(spark, f"SELECT count(*) FROM {name} VERSION AS OF 1") == [(4,)]
    moment = table.at(version=1).timestamp.isoformat()
    assert rows(spark, f"SELECT count(*) FROM {name} TIMESTAMP AS OF '{moment}'") == [(4,)]
    assert rows(spark, f"SELECT count(*) FROM {name}") == [(1,)]
    with pytest.raises(PySparkException, match="TIDELOG_HISTORY_RANGE: version 99 is not in the log"):
        spark.sql(f"SELECT * FROM {name} VERSION AS OF 99")
    with pytest.raises(PySparkException, match="TIDELOG_CONFIGURATION: VERSION AS OF 'x' is not a version"):
        spark.sql(f"SELECT * FROM {name} VERSION AS OF 'x'")


@pytest.mark.oldest
def test_a_version_of_the_past_by_a_name_of_sparks_catalog(spark: SparkSession, table: Table) -> None:
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.catalog.spark_catalog", "tidelog.SessionCatalog")
    session.sql(f"CREATE TABLE events USING tidelog LOCATION '{table.path}'")
    session.sql(f"CREATE TABLE filtered USING tidelog OPTIONS (path '{table.path}', where 'n > 1')")
    session.sql("CREATE TABLE other (n INT) USING parquet")
    try:
        moment = table.at(version=1).timestamp.isoformat()
        session.sql("UPDATE events SET n = 7 WHERE n = 3")
        session.sql("INSERT INTO events VALUES (8, 'a')")
        assert rows(session, "SELECT n FROM events") == [(0,), (1,), (2,), (7,), (8,)]
        assert rows(session, "SELECT n FROM events VERSION AS OF 1 WHERE part = 'b'") == [(1,), (3,)]
        assert rows(session, f"SELECT n FROM events TIMESTAMP AS OF '{moment}' AS e WHERE e.n > 1") == [(2,), (3,)]
        assert rows(session, "SELECT count(*) FROM events TIMESTAMP AS OF current_timestamp()") == [(5,)]
        with pytest.raises(PySparkException, match="TIDELOG_HISTORY_RANGE: version 99 is not in the log"):
            session.sql("SELECT * FROM events VERSION AS OF 99")
        with pytest.raises(PySparkException, match="TIDELOG_CONFIGURATION: the name has the option 'where'"):
            session.sql("SELECT * FROM filtered VERSION AS OF 1")
        session.sql("INSERT INTO other VALUES (1)")
        assert rows(session, "SELECT n FROM other") == [(1,)]
        with pytest.raises(AnalysisException, match=r"UNSUPPORTED_FEATURE.TIME_TRAVEL"):
            session.sql("SELECT * FROM other VERSION AS OF 1")
    finally:
        for name in ("events", "filtered", "other"):
            session.sql(f"DROP TABLE {name}")


def test_tables_by_name_below_a_folder(named: SparkSession, tmp_path: Path) -> None:
    named.sql(
        "CREATE TABLE tidelog.sales.orders (n BIGINT COMMENT 'its number', part STRING) USING tidelog "
        "PARTITIONED BY (part) TBLPROPERTIES ('tidelog.primaryKey' = 'n', 'team' = 'x')"
    )
    made = Table.open(str(tmp_path / "warehouse" / "sales" / "orders"))
    assert (made.partition_by, made.properties["tidelog.primaryKey"]) == (("part",), "n")
    assert made.properties["team"] == "x"
    assert made.schema.field("n").metadata == {b"comment": b"its number"}
    named.sql("INSERT INTO tidelog.sales.orders VALUES (1, 'a')")
    named.sql("CREATE TABLE tidelog.items AS SELECT n, part FROM tidelog.sales.orders")
    assert rows(named, "SELECT * FROM tidelog.items") == [(1, "a")]
    assert [row.tableName for row in named.sql("SHOW TABLES IN tidelog").collect()] == ["items"]
    assert [row.tableName for row in named.sql("SHOW TABLES IN tidelog.sales").collect()] == ["orders"]
    described = {row.col_name: row.comment for row in named.sql("DESCRIBE tidelog.sales.orders").collect()}
    assert (described["n"], described["part"]) == ("its number", None)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        named.sql("CREATE TABLE tidelog.items (n INT)")
    named.sql("CREATE TABLE IF NOT EXISTS tidelog.items (n INT)")
    named.sql("DROP TABLE tidelog.items")
    assert named.sql("SHOW TABLES IN tidelog").count() == 0
    named.sql("DROP TABLE IF EXISTS tidelog.items")
    with pytest.raises(PySparkException, match=r"TIDELOG_TABLE_NOT_FOUND: the table at .* was dropped"):
        named.sql("SELECT * FROM tidelog.items")


def test_the_methods_of_frames_take_tables_of_the_catalog(named: SparkSession) -> None:
    assert not named.catalog.tableExists("tidelog.made")
    writer = named.range(3).withColumn("part", lit("a")).write.format("tidelog").partitionBy("part")
    writer.saveAsTable("tidelog.made")
    assert named.catalog.tableExists("tidelog.made")
    writer.mode("append").saveAsTable("tidelog.made")
    assert named.table("tidelog.made").count() == 6
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        writer.mode("error").saveAsTable("tidelog.made")
    with pytest.raises(PySparkException, match=r'cannot use parquet; write USING tidelog or \.format\("tidelog"\)'):
        named.range(3).write.saveAsTable("tidelog.other")


@pytest.mark.oldest
def test_an_overwrite_of_what_is_described(spark: SparkSession, tmp_path: Path) -> None:
    """A partition, or what a condition says: the other rows stay."""
    name = f"tidelog.`{tmp_path}/parts`"
    spark.sql(f"CREATE TABLE {name} (n BIGINT, part STRING, day DATE) PARTITIONED BY (part, day)")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', DATE '2026-01-01'), (2, 'b', DATE '2026-01-01'), (3, NULL, NULL)")
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (part = 'b', day = '2026-01-01') SELECT 4")
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (part = NULL, day = NULL) SELECT 5")
    assert rows(spark, f"SELECT n FROM {name}") == [(1,), (4,), (5,)]
    spark.sql(f"INSERT INTO {name} REPLACE WHERE n < 3 OR part = 'b' SELECT 2, 'c', DATE '2026-01-02'")
    assert rows(spark, f"SELECT n FROM {name}") == [(2,), (5,)]
    spark.range(1).selectExpr("id n", "'c' part", "DATE '2026-01-02' day").writeTo(name).overwrite(col("part") == "c")
    assert rows(spark, f"SELECT n FROM {name}") == [(0,), (5,)]
    version = Table.open(f"{tmp_path}/parts").version
    with pytest.raises(PySparkException, match="1 of 1 rows are outside where="):
        spark.sql(f"INSERT INTO {name} REPLACE WHERE part = 'c' SELECT 2, 'd', DATE '2026-01-02'")
    with pytest.raises(PySparkException, match=r"TIDELOG_PREDICATE: the rows to replace, .* more than comp"):
        spark.sql(f"INSERT INTO {name} REPLACE WHERE length(part) = 4 SELECT 2, 'd', DATE '2026-01-02'")
    assert Table.open(f"{tmp_path}/parts").version == version


@pytest.mark.oldest
def test_an_overwrite_of_the_partitions_of_the_rows(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    name = f"tidelog.`{tmp_path}/parts`"
    session.sql(f"CREATE TABLE {name} PARTITIONED BY (part) AS SELECT * FROM tidelog.`{table.path}`")
    session.sql(f"CACHE TABLE {name}")
    session.sql(f"INSERT OVERWRITE {name} SELECT n + 10, part FROM {name} WHERE part = 'b'")
    assert rows(session, f"SELECT * FROM {name}") == [(0, "a"), (2, "a"), (11, "b"), (13, "b")]
    session.sql(f"UNCACHE TABLE {name}")
    session.sql(f"INSERT OVERWRITE {name} PARTITION (part = 'a') SELECT 5")
    session.range(1).selectExpr("id n", "'c' part").writeTo(name).overwritePartitions()
    assert rows(session, f"SELECT * FROM {name}") == [(0, "c"), (5, "a"), (11, "b"), (13, "b")]
    assert Table.open(f"{tmp_path}/parts").history(limit=1)[0].version == 4
    session.sql(f"INSERT OVERWRITE tidelog.`{table.path}` VALUES (7, 'x')")
    assert numbers_in(table.path) == [7]


def test_columns_and_properties_are_changed(spark: SparkSession, table: Table) -> None:
    name = f"tidelog.`{table.path}`"
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (note STRING COMMENT 'a note', size INT)")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    table.refresh()
    assert table.schema.names == ["n", "part", "note", "size"]
    assert table.properties["delta.appendOnly"] == "true"
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('delta.appendOnly')")
    assert "delta.appendOnly" not in table.refresh().properties


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "ALTER TABLE {} DROP COLUMN part",
            r"'part' cannot be dropped: .*'delta\.columnMapping\.mode' to 'name' first",
        ),
        ("ALTER TABLE {} RENAME COLUMN part TO p", r"'part' cannot be renamed: .*; set the table property"),
        ("ALTER TABLE {} ADD COLUMN x INT NOT NULL", "the new column 'x' must allow nulls"),
        ("ALTER TABLE {} SET LOCATION '/elsewhere'", r"SET LOCATION is not supported; use DROP TABLE"),
        ("ALTER TABLE {} RENAME TO tidelog.other", r"ALTER TABLE \.\.\. RENAME TO is not supported; move the folder"),
        ("REPLACE TABLE {} (n BIGINT, part STRING) USING parquet", "a table of the catalog tidelog cannot use parquet"),
        ("REPLACE TABLE {} (n BIGINT, part STRING) LOCATION '/elsewhere'", "REPLACE TABLE with other location"),
        ("REPLACE TABLE {} (n BIGINT, part STRING) TBLPROPERTIES ('a' = 'b')", "REPLACE TABLE with other properties"),
        ("CREATE TABLE {}2 (n INT) USING parquet", "a table of the catalog tidelog cannot use parquet"),
        ("CREATE TABLE {}2 (n INT) OPTIONS (a 'b')", "OPTIONS is not supported in the catalog tidelog; leave it out"),
        ("CREATE EXTERNAL TABLE {}2 (n INT)", "EXTERNAL without LOCATION, as DROP TABLE deletes"),
        ("CREATE TABLE {}2 STORED AS PARQUET AS SELECT 1 AS n", "STORED AS or ROW FORMAT is not supported"),
        (
            "CREATE TABLE {}2 (v ARRAY<STRING COLLATE UTF8_LCASE>)",
            "a table keeps no collation, and the length of a whole column only; use STRING",
        ),
        ("CREATE TABLE {}2 AS SELECT 'x' COLLATE UTF8_LCASE AS v", "a table keeps no collation"),
        ("CREATE TABLE {}2 (v ARRAY<VARIANT>)", "column 'v' cannot have the type array<variant>: tidelog makes no"),
        ("CREATE TABLE {}2 (v INTERVAL YEAR)", "TIDELOG_SCHEMA_MISMATCH: column 'v' has Spark's type interval year"),
        (
            "SELECT * FROM {} WITH (changes = 'cdc')",
            r"the columns of changes; use spark\.read\.changes\(name\).*in SQL CHANGES",
        ),
        ("CREATE TABLE {}2 (n INT) TBLPROPERTIES ('tidelog.no' = '1')", r"unknown table property 'tidelog\.no'"),
        (
            "CREATE TABLE {}2 (n INT) LOCATION '/elsewhere'",
            "cannot have the LOCATION /elsewhere: its name is its place",
        ),
        ("CREATE TABLE {}2 (n INT) PARTITIONED BY (bucket(2, n))", r"PARTITIONED BY \(bucket\(2, n\)\) is not"),
        ("SELECT * FROM {}2", "TIDELOG_TABLE_NOT_FOUND: there is no table at"),
        ("SELECT * FROM tidelog.nothing", r"has no folder in which nothing could be found; set spark\.sql\.catalog"),
        ("UPDATE {} SET n = 1, n = 2", "the column 'n' is set twice|Multiple assignments"),
    ],
)
def test_what_is_refused_changes_nothing(spark: SparkSession, table: Table, statement: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.sql(statement.format(f"tidelog.`{table.path}`").replace("`2", "2`")).collect()
    assert table.refresh().version == 1
    assert not Path(f"{table.path}2").exists()


@pytest.mark.oldest
def test_an_error_has_its_text_and_a_state(spark: SparkSession, table: Table) -> None:
    with pytest.raises(IllegalArgumentException, match=r"'delta\.columnMapping\.mode' to 'name' first") as caught:
        spark.sql(f"ALTER TABLE tidelog.`{table.path}` DROP COLUMN part")
    assert str(caught.value.getMessage()).startswith("TIDELOG_UNSUPPORTED_FEATURE: the column 'part' cannot be dropped")
    assert caught.value.getSqlState()  # a handler in a script looks for it


@pytest.mark.oldest
def test_a_table_is_replaced_by_rows_of_the_same_kind(spark: SparkSession, tmp_path: Path) -> None:
    """In one commit, and not at all if that fails."""
    name = f"tidelog.`{tmp_path}/table`"
    spark.sql(f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (part) AS SELECT id AS n, 'a' AS part FROM range(3)")
    table = Table.open(f"{tmp_path}/table")
    before = table.version
    spark.sql(f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (part) AS SELECT n + 5 AS n, part FROM {name}")
    assert numbers_in(table.path) == [5, 6, 7]
    one = spark.range(1).selectExpr("id AS n", "'b' AS part")
    one.writeTo(name).using("tidelog").partitionedBy(col("part")).replace()
    assert numbers_in(table.path) == [0]
    one.selectExpr("n + 1 AS n", "part").write.format("tidelog").partitionBy("part").mode("overwrite").saveAsTable(name)
    assert numbers_in(table.path) == [1]
    failing = "SELECT if(id > 1, raise_error('the disk is full'), id) AS n, 'a' AS part FROM range(3)"
    with pytest.raises(PySparkException, match="the disk is full"):
        spark.sql(f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (part) AS {failing}")
    assert numbers_in(table.path) == [1]
    with pytest.raises(PySparkException, match="where and partitionOverwriteMode do not fit REPLACE TABLE"):
        one.writeTo(name).using("tidelog").partitionedBy(col("part")).option(
            "partitionOverwriteMode", "DYNAMIC"
        ).replace()
    spark.sql(f"REPLACE TABLE {name} (n BIGINT, part STRING) PARTITIONED BY (part)")
    assert numbers_in(table.path) == []
    assert table.refresh().version == before + 4


@contextmanager
def beside_a_write(action: Callable[[], object]) -> Iterator[None]:
    """Do something once the rows of a statement are written, before its commit."""

    def run(*arguments: Any) -> Any:
        try:
            return run_on_rows(*arguments)
        finally:
            action()

    with mock.patch.object(frames, "run_on_rows", run):
        yield


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("CREATE OR REPLACE TABLE {0} AS", "{0}"),
        pytest.param("INSERT OVERWRITE {0}", "rows_of_it", marks=pytest.mark.full),
        pytest.param("INSERT OVERWRITE {0}", "(SELECT * FROM {0} WHERE n < 9)", marks=pytest.mark.full),
    ],
)
def test_rows_that_replace_their_own_table_lose_to_an_append(
    spark: SparkSession, table: Table, statement: str, source: str
) -> None:
    """They were computed without the appended row, and would remove it."""
    name = f"tidelog.`{table.path}`"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW rows_of_it USING tidelog OPTIONS (path '{table.path}')")
    text = f"{statement} SELECT n + 10 AS n, part FROM {source}".format(name)
    with (
        beside_a_write(lambda: Table.open(table.path).insert([{"n": 7, "part": "c"}])),
        pytest.raises(PySparkException, match=r"TIDELOG_CONCURRENT_APPEND: .* run the operation again"),
    ):
        spark.sql(text)
    assert numbers_in(table.path) == [0, 1, 2, 3, 7]
    spark.sql(text)
    assert len(numbers_in(table.path)) == 5
    with beside_a_write(lambda: Table.open(table.path).insert([{"n": 8, "part": "c"}])):
        spark.sql(f"INSERT OVERWRITE {name} SELECT 1L, 'a'")
    assert numbers_in(table.path) == [1]


def test_a_new_table_that_somebody_else_has_filled_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/new"
    failing = f"CREATE TABLE tidelog.`{path}` AS SELECT if(id > 1, raise_error('the disk is full'), id) n FROM range(3)"
    with (
        beside_a_write(lambda: Table.open(path).insert([{"n": 7}])),
        pytest.raises(PySparkException, match="the disk is full"),
    ):
        spark.sql(failing)
    assert numbers_in(path) == [7]
    Table.drop(path)
    with pytest.raises(PySparkException, match="the disk is full"):
        spark.sql(failing)
    with pytest.raises(TableNotFoundError):
        Table.open(path)


@pytest.mark.full
def test_replaced_columns_are_compared_without_what_a_query_does_not_say(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/strict"
    element = pa.field("element", pa.int32(), nullable=False)
    Table.create(path, pa.schema([("a", pa.list_(element)), ("collate x", pa.struct([("char(1)", pa.int64())]))]))
    before = Table.open(path).schema
    columns = "array(1) a, named_struct('char(1)', 2L) `collate x`"
    spark.sql(f"CREATE OR REPLACE TABLE tidelog.`{path}` AS SELECT {columns}")
    table = Table.open(path)
    assert table.scan().to_arrow()["a"].to_pylist() == [[1]]
    assert table.schema.equals(before, check_metadata=True)
    spark.sql(f"CREATE OR REPLACE TABLE tidelog.`{path}` AS SELECT array(1L) a, named_struct('char(1)', 2L) `x`")
    assert table.refresh().schema.names == ["a", "x"]
    with pytest.raises(PySparkException, match=r"cannot have the type array<varchar\(3\)>"):
        spark.sql(f"CREATE TABLE tidelog.`{path}2` (a ARRAY<VARCHAR(3)>)")


@pytest.mark.oldest
def test_the_statement_that_makes_a_table(spark: SparkSession, tmp_path: Path) -> None:
    name = f"tidelog.`{tmp_path}/table`"
    spark.sql(
        f"CREATE TABLE {name} (n BIGINT NOT NULL COMMENT 'its number', part STRING) PARTITIONED BY (part) "
        "TBLPROPERTIES ('tidelog.primaryKey' = 'n')"
    )
    made = Table.open(f"{tmp_path}/table")
    [(statement,)] = spark.sql(f"SHOW CREATE TABLE {name}").collect()
    assert "n BIGINT NOT NULL COMMENT 'its number'" in statement
    assert spark.table(name).schema["n"].nullable  # as in all scans
    spark.sql(f"DROP TABLE {name} PURGE")
    spark.sql(statement)
    again = Table.open(made.path)
    assert (again.schema, again.partition_by) == (made.schema, ("part",))
    assert again.schema.field("n").metadata == {b"comment": b"its number"}
    assert made.properties.items() <= again.properties.items()


def test_a_create_that_fails_leaves_no_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the disk is full"):
        spark.sql(
            f"CREATE TABLE tidelog.`{tmp_path}/new` "
            "AS SELECT if(id = 5, raise_error('the disk is full'), id) n FROM range(9)"
        )
    with pytest.raises(TableNotFoundError):
        Table.open(f"{tmp_path}/new")


# --- sql --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(spark: SparkSession) -> SparkSession:
    """A session without the catalog, as on Spark Connect: `sql` reads the text."""
    session = spark.newSession()
    session.conf.unset("spark.sql.catalog.tidelog")
    return session


@pytest.mark.parametrize("by_text", [True, pytest.param(False, marks=pytest.mark.full)])
def test_update_and_delete(spark: SparkSession, texts: SparkSession, table: Table, *, by_text: bool) -> None:
    session = texts if by_text else spark
    name = f"tidelog.`{table.path}`"
    [done] = sql(session, f"UPDATE {name} AS t SET part = upper(t.part), n = n + 10 WHERE t.n % 2 = 1").collect()
    assert tuple(done) == (2, 2)
    assert rows(spark, f"SELECT * FROM {name}") == [(0, "a"), (2, "a"), (11, "B"), (13, "B")]
    assert tuple(sql(session, f"DELETE FROM {name} WHERE length(part) = 1 AND n > 11").collect()[0]) == (3, 1)
    assert tuple(sql(session, f"delete from {name}").collect()[0]) == (4, 3)
    assert sql(session, "SELECT 1 AS one").collect() == [(1,)]


@pytest.mark.full
def test_a_field_of_a_struct_keeps_its_name(spark: SparkSession, texts: SparkSession, tmp_path: Path) -> None:
    """And a column whose name is that of the field is another one."""
    schema = pa.schema([("city", pa.string()), ("place", pa.struct([("city", pa.string())]))])
    table = Table.create(str(tmp_path / "places"), schema)
    table.insert([{"city": "Bern", "place": {"city": "Rome"}}, {"city": "Rome", "place": {"city": "Bern"}}])
    name = f"tidelog.`{table.path}`"
    sql(texts, f"UPDATE {name} AS t SET city = t.place.city WHERE place.city = 'Rome'")
    assert rows(spark, f"SELECT city FROM {name}") == [("Rome",), ("Rome",)]
    sql(texts, f"DELETE FROM {name} AS t WHERE t.place.city = 'Bern' AND t.city = 'Rome'")
    assert rows(spark, f"SELECT place.city FROM {name}") == [("Rome",)]
    odd = Table.create(str(tmp_path / "odd"), pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]))
    odd.insert([{"a.b": 1, "a": {"b": 2}}, {"a.b": 2, "a": {"b": 1}}])
    spark.sql(f"DELETE FROM tidelog.`{odd.path}` WHERE a.b = 1")
    assert rows(spark, f"SELECT `a.b`, a.b FROM tidelog.`{odd.path}`") == [(1, 2)]
    spark.sql(f"DELETE FROM tidelog.`{odd.path}` WHERE `a.b` = 1")
    assert rows(spark, f"SELECT * FROM tidelog.`{odd.path}`") == []
    for assigned in ("place.city = 'x'", "t.place.city = 'x'"):
        with pytest.raises(PredicateError, match="is not supported here; write UPDATE tidelog"):
            sql(texts, f"UPDATE {name} AS t SET {assigned}")
    sql(texts, f"UPDATE {name} AS t SET t.city = 'Oslo'")
    assert rows(spark, f"SELECT city, place.city FROM {name}") == [("Oslo", "Rome")]


@pytest.mark.parametrize("by_text", [True, False])
def test_merge_by_keys(spark: SparkSession, texts: SparkSession, table: Table, *, by_text: bool) -> None:
    session = texts if by_text else spark
    source = "(VALUES (1, 'x', false), (3, 'y', true), (9, 'z', false)) AS s(n, part, gone)"
    merge = f"MERGE INTO tidelog.`{table.path}` AS t USING (SELECT * FROM {source}) AS s ON t.n = s.n "
    [done] = sql(session, f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *").collect()
    assert done.num_affected_rows == 3
    assert rows(spark, f"SELECT * FROM tidelog.`{table.path}`") == [(0, "a"), (1, "x"), (2, "a"), (3, "y"), (9, "z")]
    sql(
        session,
        f"{merge} WHEN MATCHED AND s.part = 'y' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND NOT (s.part = 'y') THEN INSERT *",
    )
    assert numbers_in(table.path) == [0, 1, 2, 9]


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        ("ON t.n > s.n WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", "t.n > s.n. is not supported"),
        ("ON t.n = s.part WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", "is not supported here"),
        ("ON t.n = s.n WHEN MATCHED THEN UPDATE SET *", "is not supported here"),
        ("ON t.n = s.n WHEN MATCHED THEN UPDATE SET part = 'x' WHEN NOT MATCHED THEN INSERT *", "is not supported"),
        (f"{DELETES} WHEN NOT MATCHED THEN INSERT *", "is not supported here"),
        (
            (
                "ON t.n = s.n WHEN NOT MATCHED THEN INSERT * WHEN MATCHED AND s.n = 1 THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET *"
            ),
            "is not supported here",
        ),
        (
            (
                "ON t.n = s.n WHEN MATCHED AND s.n = 2 THEN DELETE WHEN MATCHED AND s.n = 1 THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND NOT s.n = 1 THEN INSERT *"
            ),
            "is not supported here",
        ),
        (f"{DELETES.replace('s.n = 1', 't.n = 1')} WHEN NOT MATCHED AND NOT t.n = 1 THEN INSERT *", "is not supported"),
    ],
)
def test_another_merge_is_refused(texts: SparkSession, table: Table, merge: str, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        sql(texts, f"MERGE INTO tidelog.`{table.path}` AS t USING tidelog.`{table.path}` AS s {merge}")
    with pytest.raises(PredicateError, match="the source of MERGE lacks the columns part"):
        sql(
            texts,
            f"MERGE INTO tidelog.`{table.path}` AS t USING (SELECT 1L AS n) AS s ON t.n = s.n "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        )
    assert table.refresh().version == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {} WHERE n > 0 LIMIT 1",
        "UPDATE {} SET part = 'x' WHERE n > 0 ORDER BY n LIMIT 1",
        "UPDATE {} SET part = 'x' FROM other",
        "DELETE FROM {} VERSION AS OF 0",
        "DELETE FROM {} TABLESAMPLE (1 ROWS)",
        "UPDATE {} JOIN other s SET part = 'x'",
    ],
)
def test_a_text_with_more_than_is_read_is_refused(texts: SparkSession, table: Table, statement: str) -> None:
    with pytest.raises((PredicateError, PySparkException)):
        sql(texts, statement.format(f"tidelog.`{table.path}`"))
    assert table.refresh().version == 1


def test_texts_mean_what_they_mean_in_a_predicate(spark: SparkSession, texts: SparkSession, table: Table) -> None:
    name = f"tidelog.`{table.path}`"
    sql(texts, f"UPDATE {name} SET part = 'it''s' WHERE n = 1")
    sql(texts, f"UPDATE {name} SET part = 'its' WHERE n = 2")
    sql(texts, f"DELETE FROM {name} WHERE part = 'it''s'")
    assert rows(spark, f"SELECT * FROM {name}") == [(0, "a"), (2, "its"), (3, "b")]


def test_names_of_the_current_catalog(named: SparkSession) -> None:
    named.sql("CREATE TABLE tidelog.items AS SELECT 1L AS n")
    named.sql("USE tidelog")
    sql(named, "UPDATE items SET n = 2")
    assert rows(named, "SELECT * FROM items") == [(2,)]
