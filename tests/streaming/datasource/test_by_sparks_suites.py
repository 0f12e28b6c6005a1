"""What Spark's own suites expect of statements, on tables of tidelog (`make suites-spark` runs the suites)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.streaming.datasource.sql_tables import rows
from tests.streaming.support import JVM_SOURCE
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import spark_versions

pytestmark = [pytest.mark.spark, JVM_SOURCE]

_MERGE = """MERGE INTO tidelog.`{0}` t USING (SELECT id AS k, 'new' AS v FROM range(2, 6)) s ON {1}
    WHEN MATCHED AND t.k = 2 THEN DELETE
    WHEN MATCHED THEN UPDATE SET v = s.v
    WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.k = 0 THEN DELETE
    WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 'old'"""


@pytest.mark.parametrize(
    "condition", ["t.k = s.k", pytest.param("t.k >= s.k AND t.k < s.k + 1", marks=pytest.mark.full)]
)
def test_the_history_counts_the_rows_of_each_kind_of_clause(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("k", pa.int64()), ("v", pa.string())]))
    table.insert([{"k": k, "v": "was"} for k in range(4)])
    spark.sql(_MERGE.format(table.path, condition))
    assert rows(spark, f"SELECT * FROM tidelog.`{table.path}`") == [(1, "old"), (3, "new"), (4, "new"), (5, "new")]
    (record,) = table.refresh().history(1)
    counts = {name: int(count) for name, count in record.metrics.items() if name.startswith("numTargetRows")}
    assert counts == {
        "numTargetRowsInserted": 2,
        "numTargetRowsUpdated": 2,
        "numTargetRowsDeleted": 2,
        "numTargetRowsMatchedUpdated": 1,
        "numTargetRowsMatchedDeleted": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsNotMatchedBySourceDeleted": 1,
    }


@pytest.mark.full
def test_a_new_table_has_defaults(spark: SparkSession, tmp_path: Path) -> None:
    name = f"tidelog.`{tmp_path / 'table'}`"
    columns = "k INT, n INT NOT NULL DEFAULT 40 + 2, s STRUCT<a: INT, b: STRING> DEFAULT named_struct('a', 1, 'b', 'x')"
    spark.sql(f"CREATE TABLE {name} ({columns}, p STRING DEFAULT 'it''s') PARTITIONED BY (p)")
    assert Table.open(str(tmp_path / "table")).version == 0
    spark.sql(f"INSERT INTO {name} (k) VALUES (1)")
    spark.sql(f"INSERT INTO {name} VALUES (2, DEFAULT, NULL, DEFAULT)")
    spark.range(3, 4).selectExpr("CAST(id AS INT) AS k").writeTo(name).append()
    spark.sql(f"UPDATE {name} SET n = 0 WHERE k = 1")
    spark.sql(f"UPDATE {name} SET n = DEFAULT, p = 'other' WHERE k = 1")
    spark.sql(
        f"""MERGE INTO {name} t USING (SELECT 2 AS k UNION SELECT 4) s ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET s = DEFAULT WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"""
    )
    assert rows(spark, f"SELECT k, n, s.a, s.b, p FROM {name}") == [
        (1, 42, 1, "x", "other"), (2, 42, 1, "x", "it's"), (3, 42, 1, "x", "it's"), (4, 42, 1, "x", "it's"),
    ]  # fmt: skip
    assert "DEFAULT" in spark.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
    with pytest.raises(PySparkException, match="has no DEFAULT 7, as the statement says; leave it out"):
        spark.sql(f"CREATE OR REPLACE TABLE {name} ({columns.replace('40 + 2', '7')}, p STRING) PARTITIONED BY (p)")


def test_defaults_of_a_table_that_is_made_without_spark(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    table = Table.create(str(tmp_path / "table"), schema, defaults={"v": "'new'"})
    table.insert([{"k": 1}, {"k": 2, "v": None}])
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "v": "new"}, {"k": 2, "v": None}]
    with pytest.raises(ConfigurationError, match="there is a default for 'w', and the columns are k, v"):
        Table.create(str(tmp_path / "other"), schema, defaults={"w": "1"})
    with pytest.raises(ConfigurationError, match="must be SQL as a text, not int"):
        Table.create(str(tmp_path / "other"), schema, defaults={"k": 1})  # type: ignore[dict-item]


@pytest.mark.full
def test_a_null_in_a_column_that_cannot_have_one_is_an_error_of_sparks(spark: SparkSession, tmp_path: Path) -> None:
    place = pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.string())])
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", place)])
    table = Table.create(str(tmp_path / "table"), schema)
    table.insert([{"k": 1, "s": {"a": 1, "b": "x"}}])
    for statement, path in {
        f"UPDATE tidelog.`{table.path}` SET k = NULL": "k",
        f"UPDATE tidelog.`{table.path}` SET s = named_struct('a', CAST(NULL AS INT), 'b', 'y')": "s\na",
        f"MERGE INTO tidelog.`{table.path}` t USING (SELECT 2 AS k) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (s) "
        "VALUES (named_struct('a', 1, 'b', 'y'))": "k",
    }.items():
        with pytest.raises(PySparkException) as raised:
            spark.sql(statement)
        assert raised.value.getCondition() == "NOT_NULL_ASSERT_VIOLATION"
        assert raised.value.getMessageParameters() == {"walkedTypePath": f"\n{path}\n"}
    assert table.refresh().version == 1


@pytest.mark.full
@pytest.mark.skipif(not spark_versions.CATALOGS_HAVE_CONSTRAINTS, reason="Spark 4.0 does not evolve schemas")
def test_a_merge_evolves_structs_in_lists_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    place = pa.struct([("a", pa.int32())])
    schema = pa.schema([("k", pa.int64()), ("l", pa.list_(place)), ("m", pa.map_(pa.string(), place))])
    widens = {"delta.enableTypeWidening": "true"}
    table = Table.create(str(tmp_path / "table"), schema, properties=widens)
    table.insert([{"k": k, "l": [{"a": k}], "m": [("x", {"a": k})]} for k in (1, 2)])
    spark.sql(
        f"""MERGE WITH SCHEMA EVOLUTION INTO tidelog.`{table.path}` t USING (
            SELECT id AS k, array(named_struct('a', id * 10000000000, 'b', 'new')) AS l,
            map('y', named_struct('a', CAST(id AS INT), 'b', named_struct('c', id))) AS m FROM range(2, 4)
        ) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    )
    found = spark.sql(f"SELECT k, to_json(l), to_json(m) FROM tidelog.`{table.path}` ORDER BY k").collect()
    assert [tuple(row) for row in found] == [
        (1, '[{"a":1}]', '{"x":{"a":1}}'),
        (2, '[{"a":20000000000,"b":"new"}]', '{"y":{"a":2,"b":{"c":2}}}'),
        (3, '[{"a":30000000000,"b":"new"}]', '{"y":{"a":3,"b":{"c":3}}}'),
    ]
    assert table.refresh().version == 2


@pytest.mark.full
def test_null_as_a_condition_is_false(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "table"), pa.schema([("k", pa.int64()), ("v", pa.string())]))
    table.insert([{"k": k, "v": "was"} for k in range(2)])
    name = f"tidelog.`{table.path}`"
    merge = f"MERGE INTO {name} t USING (SELECT id AS k, 'new' AS v FROM range(1, 3)) s ON t.k = s.k"
    spark.sql(f"{merge} WHEN MATCHED AND NULL THEN UPDATE SET * WHEN NOT MATCHED AND NULL THEN INSERT *")
    spark.sql(f"{merge} WHEN MATCHED AND NULL THEN DELETE WHEN NOT MATCHED BY SOURCE AND NULL THEN DELETE")
    assert rows(spark, f"SELECT * FROM {name}") == [(0, "was"), (1, "was")]
