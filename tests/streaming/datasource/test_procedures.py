"""The procedures `CALL tidelog.system...`, and the statements of Delta's users that mean them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.streaming.datasource.sql_tables import only, rows
from tests.streaming.support import JVM_SOURCE, numbers_in
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, PredicateError, TableNotFoundError
from tidelog.streaming import register, sql
from tidelog.streaming.datasource.procedures import PROCEDURES
from tidelog.streaming.spark_versions import INSTALLED

pytestmark = [pytest.mark.spark, JVM_SOURCE]

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with three files in the partition `a`, at version 3."""
    made = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"])
    for n in range(3):
        made.insert([{"n": n, "part": "a"}])
    return made


@pytest.mark.oldest
def test_arguments_by_name_and_by_position(spark: SparkSession, table: Table) -> None:
    [packed] = spark.sql(f"CALL tidelog.system.compact('{table.path}', where => \"part = 'a'\")").collect()
    assert (packed.version, packed.levels, packed.files_removed, packed.files_added) == (4, ["minor"], 3, 1)
    [clustered] = spark.sql(
        f"CALL tidelog.system.compact(cluster_by => array('n'), table => 'tidelog.`{table.path}`')"
    ).collect()
    assert (clustered.version, clustered.levels) == (5, ["major"])
    history = spark.sql(f"CALL tidelog.system.history('{table.path}', 2)")
    assert [(row.version, row.operation, row.data_change) for row in history.collect()] == [
        (5, "OPTIMIZE", False),
        (4, "OPTIMIZE", False),
    ]
    assert history.schema == spark.sql(f"SELECT * FROM tidelog_history('{table.path}')").schema
    [restored] = spark.sql(f"CALL tidelog.system.restore('{table.path}', version => 1)").collect()
    assert tuple(restored) == (6, 1, 1)
    assert numbers_in(table.path) == [0]
    moment = table.at(version=2).timestamp.isoformat()
    assert only(spark.sql(f"CALL tidelog.system.restore('{table.path}', timestamp => '{moment}')")).version == 7
    assert numbers_in(table.path) == [0, 1]
    assert table.refresh().version == 7


@pytest.mark.full
def test_clean_up(spark: SparkSession, table: Table) -> None:
    table.set_properties({"tidelog.maxTransactionTime": "1 second"})
    spark.sql(f"CALL tidelog.system.compact('{table.path}')")
    now = datetime.now(UTC)
    for given, age in (
        ("'30 days'", timedelta(days=30)),
        ("INTERVAL 2 WEEKS", timedelta(days=14)),
        ("TIMESTAMP '2020-01-01 00:00:00Z'", now - datetime(2020, 1, 1, tzinfo=UTC)),
        ("'2020-01-01T00:00:00Z'", now - datetime(2020, 1, 1, tzinfo=UTC)),
    ):
        call = f"CALL tidelog.system.vacuum('{table.path}', older_than => {given}, dry_run => true)"
        [found] = spark.sql(f"{call}").collect()
        assert found.dry_run
        assert abs(now - age - found.cutoff.astimezone(UTC)) < timedelta(minutes=5)
        assert (found.version, found.data_files, found.files) == (None, 0, [])
    with pytest.raises(PySparkException, match="older_than must be at least 1 second"):
        spark.sql(f"CALL tidelog.system.expire('{table.path}', '0 seconds')")
    with pytest.raises(PySparkException, match=r"'soon' is not a time; write an age, such as '30 days', or a time"):
        spark.sql(f"CALL tidelog.system.expire('{table.path}', 'soon')")
    [expired] = spark.sql(f"CALL tidelog.system.expire('{table.path}', dry_run => true)").collect()
    assert (expired.commits, expired.earliest_version, expired.version) == (0, 0, None)


@pytest.mark.full
def test_a_table_by_its_name(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(tmp_path / "warehouse"))
    register(session)
    session.sql("CREATE TABLE tidelog.sales.orders AS SELECT 1L AS n")
    session.sql(f"CREATE TABLE called USING tidelog LOCATION '{table.path}'")
    session.sql(f"CREATE TABLE part_of USING tidelog OPTIONS (path '{table.path}', where 'n = 1')")
    session.sql("CREATE TABLE other (n INT) USING parquet")
    try:
        detail = "CALL tidelog.system.detail('{}')"
        assert only(session.sql(detail.format("tidelog.sales.orders"))).numFiles == 1
        assert only(session.sql(detail.format("called"))).location == table.path
        assert only(session.sql(detail.format("spark_catalog.default.called"))).id == table.id
        session.sql("USE tidelog.sales")
        assert only(session.sql("CALL system.detail('orders')")).numFiles == 1
        session.sql("USE spark_catalog.default")
        for name, message in (
            ("other", "TIDELOG_CONFIGURATION: other is not a table of tidelog's, but of parquet"),
            ("nothing", "TIDELOG_TABLE_NOT_FOUND: there is no table nothing: .* give a path"),
            ("not a name", "TIDELOG_TABLE_NOT_FOUND: there is no table not a name"),
            ("/nothing/here", "TIDELOG_TABLE_NOT_FOUND: there is no table at /nothing/here"),
            ("", "the argument table is empty"),
            ("part_of", "the name has the option 'where'"),
        ):
            with pytest.raises(PySparkException, match=message):
                session.sql(detail.format(name))
    finally:
        for name in ("called", "part_of", "other"):
            session.sql(f"DROP TABLE spark_catalog.default.{name}")


@pytest.mark.full
def test_the_details(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"tidelog.clusterBy": "n", "team": "x"}
    made = Table.create(str(tmp_path / "table"), SCHEMA, partition_by=["part"], properties=properties)
    made.insert([{"n": 1, "part": "a"}])
    [found] = spark.sql(f"CALL tidelog.system.detail('{made.path}')").collect()
    assert (found.format, found.id, found.location) == ("tidelog", made.id, made.path)
    assert (found.partitionColumns, found.clusteringColumns) == (["part"], ["n"])
    assert (found.numFiles, found.sizeInBytes) == (1, made.at().files()["size"][0].as_py())
    assert (found.minReaderVersion, found.minWriterVersion) == (3, 7)
    assert found.properties == dict(made.properties)
    assert {"deletionVectors", "inCommitTimestamp"} <= set(found.tableFeatures)
    assert found.lastModified.astimezone(UTC) == made.at().timestamp


@pytest.mark.oldest
def test_what_spark_knows_of_them(spark: SparkSession, table: Table) -> None:
    """EXPLAIN runs nothing, and Spark's own errors speak of arguments."""
    spark.sql(f"EXPLAIN CALL tidelog.system.compact('{table.path}')").collect()
    assert table.refresh().version == 3
    if INSTALLED >= (4, 1):
        listed = rows(spark, "SHOW PROCEDURES IN tidelog.system")
        assert [row[-1] for row in listed] == sorted(PROCEDURES)
    for call, message in (
        ("compact()", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("compact('x', nothing => 1)", "UNRECOGNIZED_PARAMETER_NAME"),
        ("compact('x', version => array(1))", "UNRECOGNIZED_PARAMETER_NAME"),
        ("restore('x', array(1))", "DATATYPE_MISMATCH|TYPE"),
        ("nothing('x')", r"the catalog tidelog has no procedure system\.nothing; use one of system\.compact"),
    ):
        with pytest.raises(PySparkException, match=message):
            spark.sql(f"CALL tidelog.system.{call}")
    with pytest.raises(PySparkException, match=r"the catalog tidelog has no procedure other\.compact"):
        spark.sql("CALL tidelog.other.compact('x')")


@pytest.mark.oldest
def test_the_statements_of_delta_s_users(spark: SparkSession, table: Table) -> None:
    name = f"tidelog.`{table.path}`"
    assert only(sql(spark, f"OPTIMIZE {name} WHERE part = 'a';")).version == 4
    assert only(sql(spark, f"optimize {name} ZORDER BY (n)")).levels == ["major"]
    assert only(sql(spark, f"VACUUM {name} LITE RETAIN 168 HOURS DRY RUN")).dry_run
    assert only(sql(spark, f"RESTORE TABLE {name} TO VERSION AS OF 1")).version == 6
    assert sql(spark, f"DESCRIBE HISTORY '{table.path}' LIMIT 3").count() == 3
    assert only(sql(spark, f"desc  detail {name}")).numFiles == 1
    assert only(sql(spark, f"CALL tidelog.system.detail('{table.path}')")).numFiles == 1
    with pytest.raises(TableNotFoundError):
        sql(spark, "OPTIMIZE tidelog.`/nothing/here`")
    with pytest.raises(PredicateError, match=r"'FULL' is not supported here; leave it out; the statements are OPTIM"):
        sql(spark, f"OPTIMIZE {name} FULL")
    with pytest.raises(ConfigurationError, match=r"VACUUM is not a statement .* `other` is not a table of tidelog's.*"):
        sql(spark, "VACUUM other RETAIN 24 HOURS")
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(spark, "DESCRIBE nothing")
