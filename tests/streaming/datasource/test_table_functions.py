"""The table functions that `register` adds to a session's SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import MapType, StringType
from pyspark.sql.udtf import AnalyzeArgument

from tests.lanes import full
from tests.streaming.support import JVM_SOURCE, rewrite_all
from tidelog.log import Table
from tidelog.streaming import register
from tidelog.streaming.datasource import table_functions

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)


def row(n: int) -> dict[str, Any]:
    moment = dt.datetime(2026, 7, 1, n, tzinfo=dt.UTC)
    return {
        "n": n,
        "price": Decimal(n) / 4,
        "at": moment,
        "wall": moment.replace(tzinfo=None),
        "tags": ["a", None] if n % 2 else None,
        "counts": {"a": n} if n % 2 else {},
        "place": {"city": f"c{n}", "zip": n},
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Table:
    """Versions 1 and 2 add the rows 1 and 2, version 3 deletes row 1, version 4 is a compaction."""
    register(spark)
    made = Table.create(str(tmp_path_factory.mktemp("functions") / "table"), SCHEMA)
    made.insert([row(1)])
    made.insert([row(2)])
    made.delete("n = 1")
    rewrite_all(made)
    return made.refresh()


def sql(spark: SparkSession, text: str) -> list[Row]:
    return spark.sql(text).collect()


def changed(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(found["_change_type"], found["_commit_version"], found["n"]) for found in rows]


def test_changes_between_two_versions(spark: SparkSession, table: Table) -> None:
    path = table.path
    assert changed(sql(spark, f"SELECT * FROM tidelog_changes('{path}', 1, 4)")) == [("insert", 2, 2), ("delete", 3, 1)]
    included = sql(spark, f"SELECT * FROM tidelog_changes('{path}', starting_version => 2, until => 4)")
    assert changed(included) == [("insert", 2, 2), ("delete", 3, 1)]
    assert changed(sql(spark, f"SELECT * FROM tidelog_changes('{path}')")) == [
        ("insert", 1, 1),
        ("insert", 2, 2),
        ("delete", 3, 1),
    ]
    appended = spark.sql(f"SELECT * FROM tidelog_changes('{path}', until => 2, mode => 'append', where => 'n > 1')")
    assert [found["n"] for found in appended.collect()] == [2]
    assert "_change_type" not in appended.columns
    net = sql(spark, f"SELECT * FROM tidelog_changes('{path}', 0, mode => 'net', keys => 'n')")
    assert changed(net) == [("insert", 2, 2)]


def test_changes_between_two_times(spark: SparkSession, table: Table) -> None:
    second, third = (table.at(version=version).timestamp for version in (2, 3))
    texts = [f"'{moment.isoformat()}'" for moment in (second, third)]
    # Spark shows and reads a TIMESTAMP in the session's zone.
    literals = [f"timestamp_micros({int(moment.timestamp() * 1_000_000)})" for moment in (second, third)]
    for after, until in (texts, literals):
        found = sql(spark, f"SELECT * FROM tidelog_changes('{table.path}', {after}, {until})")
        assert changed(found) == [("delete", 3, 1)]


def test_a_version_of_the_table(spark: SparkSession, table: Table) -> None:
    frame = spark.sql(f"SELECT * FROM tidelog_read('{table.path}', version => 2)")
    same = spark.read.format("tidelog").option("versionAsOf", 2).load(table.path)
    assert frame.schema == same.schema
    assert sorted(frame.collect(), key=lambda found: found["n"]) == sorted(same.collect(), key=lambda found: found["n"])
    assert [found["n"] for found in sql(spark, f"SELECT * FROM tidelog_read('{table.path}')")] == [2]
    chosen = spark.sql(
        f"SELECT * FROM tidelog_read('{table.path}', version => 2, columns => 'n, price', where => 'n = 1')"
    )
    assert chosen.collect() == [(1, Decimal("0.25"))]


def test_a_planned_query_does_not_see_later_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.schema([("n", pa.int64())]))
    table.insert([{"n": 1}])
    frames = [spark.sql(f"SELECT * FROM {name}('{table.path}')") for name in ("tidelog_read", "tidelog_changes")]
    histories = [f"tidelog_history('{table.path}')", f"tidelog_history('{table.path}', limit => 1)"]
    frames += [spark.sql(f"SELECT version AS n FROM {call} ORDER BY 1") for call in histories]
    table.insert([{"n": 2}])
    assert [[found["n"] for found in frame.collect()] for frame in frames] == [[1], [1], [0, 1], [1]]


def test_storage_options_reach_both_steps(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def note(path: str, *, storage_options: Any = None) -> Table:
        opened.append(storage_options)
        return table if path == table.path else pytest.fail(path)

    monkeypatch.setattr(Table, "open", note)
    options = {"key": "secret"}
    constant = partial(AnalyzeArgument, isTable=False, isConstantExpression=True)
    path = constant(dataType=StringType(), value=table.path)
    stored = constant(dataType=MapType(StringType(), StringType()), value=options)
    functions: list[Any] = list(table_functions.TABLE_FUNCTIONS.values())
    for function in functions:
        planned = function.analyze(path, storage_options=stored)
        list(function(planned).eval(table.path, options))
    assert opened == [options] * 6


def test_the_history(spark: SparkSession, table: Table) -> None:
    found = sql(spark, f"SELECT * FROM tidelog_history('{table.path}') ORDER BY version")
    assert [record["version"] for record in found] == [0, 1, 2, 3, 4]
    assert [record["operation_class"] for record in found] == ["NONE", "INSERT", "INSERT", "UPDATE_DELETE", "MINOR"]
    assert [record["time_version"] is not None for record in found] == [False, True, True, True, False]
    assert found[1]["timestamp"].timestamp() == table.at(version=1).timestamp.timestamp()
    assert len(sql(spark, f"SELECT * FROM tidelog_history('{table.path}', limit => 2)")) == 2


def test_a_join_with_a_function(spark: SparkSession, table: Table) -> None:
    text = f"""
        SELECT h.operation_class, count(*) FROM tidelog_changes('{table.path}') c
        JOIN tidelog_history('{table.path}') h ON c._commit_version = h.version GROUP BY 1 ORDER BY 1
    """
    assert sql(spark, text) == [("INSERT", 2), ("UPDATE_DELETE", 1)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("tidelog_read('/nothing/here')", "TIDELOG_TABLE_NOT_FOUND"),
        (
            "tidelog_history('sales.orders')",
            "no table at the path sales.orders, and none with that name; give the path",
        ),
        ("tidelog_changes('{path}', 3, 1)", "TIDELOG_CONFIGURATION: the interval ends before it starts"),
        ("tidelog_changes(string(rand()))", "TIDELOG_CONFIGURATION: the argument 'path' is not a constant"),
        *full(
            ("tidelog_read('{path}', version => 99)", "TIDELOG_HISTORY_RANGE"),
            ("tidelog_read(NULL)", "TIDELOG_CONFIGURATION: the path is missing"),
            ("tidelog_changes('{path}', 1, starting_version => 1)", "both after and starting_version were given"),
            ("tidelog_changes('{path}', mode => 'all')", "TIDELOG_CONFIGURATION: unknown change mode 'all'"),
            ("tidelog_changes('{path}', mode => 3)", "TIDELOG_CONFIGURATION: the argument 'mode' cannot be 3"),
            ("tidelog_history('{path}', limit => -1)", "limit"),
            ("tidelog_changes('{path}', starting_version => -1)", "starting_version is -1"),
        ),
    ],
)
def test_a_wrong_call(spark: SparkSession, table: Table, call: str, message: str) -> None:
    with pytest.raises((AnalysisException, PySparkException)) as caught:
        sql(spark, f"SELECT * FROM {call.format(path=table.path)}")
    assert message in str(caught.value)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.oldest
@JVM_SOURCE
def test_names_of_tables(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Of the catalog tidelog, of Spark's own, and of a view that is the whole table."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(tmp_path))
    register(session)
    sold = Table.create(f"{tmp_path}/sales/orders", pa.schema([("n", pa.int64())]))
    sold.insert([{"n": 7}])
    count = partial(sql, session)
    assert count("SELECT n FROM tidelog_changes('tidelog.sales.orders', 0)") == [(7,)]
    assert count(f"SELECT n FROM tidelog_read('tidelog.`{table.path}`')") == [(2,)]
    session.sql(f"CREATE TABLE events USING tidelog LOCATION '{table.path}'")
    session.sql("CREATE TABLE other (n INT) USING parquet")
    session.sql(f"CREATE TEMPORARY VIEW shown USING tidelog OPTIONS (path '{table.path}')")
    session.sql(f"CREATE TEMPORARY VIEW later USING tidelog OPTIONS (path '{table.path}', where 'n > 1')")
    try:
        assert count("SELECT max(version) FROM tidelog_history('default.events')") == [(4,)]
        assert count("SELECT n FROM tidelog_changes(after => 1, path => 'events', until => 2)") == [(2,)]
        assert count("SELECT n FROM tidelog_read('shown')") == [(2,)]
        session.sql("USE tidelog.sales")
        assert count("SELECT n FROM tidelog_changes('orders', 0)") == [(7,)]
        session.sql("USE spark_catalog.default")
        for call, message in {
            "tidelog_read('other')": "TIDELOG_CONFIGURATION: other is not a table of tidelog",
            "tidelog_read('later')": "TIDELOG_CONFIGURATION: the name has the option 'where'",
            "tidelog_read('tidelog.sales.nothing')": "TIDELOG_TABLE_NOT_FOUND",
        }.items():
            with pytest.raises(PySparkException) as caught:
                count(f"SELECT * FROM {call}")
            assert message in str(caught.value)
    finally:
        session.sql("DROP TABLE events")
        session.sql("DROP TABLE other")


@pytest.mark.full
@JVM_SOURCE
def test_credentials_of_a_catalog_are_not_shown_in_a_plan(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.tidelog.warehouse", str(tmp_path))
    session.conf.set("spark.sql.catalog.tidelog.storageOption.secret", "hidden")
    register(session)
    Table.create(f"{tmp_path}/orders", pa.schema([("n", pa.int64())]))
    with pytest.raises(PySparkException, match=r"TIDELOG_CONFIGURATION: tidelog.orders has storage options"):
        session.sql("SELECT * FROM tidelog_changes('tidelog.orders')")


@JVM_SOURCE
def test_table_changes_of_delta(spark: SparkSession, table: Table) -> None:
    """Its versions are both included."""
    name = f"tidelog.`{table.path}`"
    assert changed(sql(spark, f"SELECT * FROM table_changes('{name}', 2, 3)")) == [("insert", 2, 2), ("delete", 3, 1)]
    assert changed(sql(spark, f"SELECT * FROM table_changes('{table.path}', 3)")) == [("delete", 3, 1)]
    with pytest.raises(PySparkException, match="TIDELOG_CONFIGURATION: table_changes takes a table and one or two"):
        sql(spark, f"SELECT * FROM table_changes('{name}', '2026-01-01')")
    with pytest.raises(PySparkException, match="TIDELOG_CONFIGURATION: the interval ends before it starts"):
        sql(spark, f"SELECT * FROM table_changes('{name}', 3, 1)")
