"""Changes as Debezium's envelopes, and those as rows again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.streaming.support import drain, feed
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming import Feed, capture, changes, read
from tidelog.streaming.executors.plain_frame import arrow_schema

pytestmark = pytest.mark.spark


@pytest.fixture
def plain_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The Spark session without code generation, which takes seconds for many columns and is useless for one row."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)


ALL_TYPES = """
    CAST(id AS BIGINT) AS id, true AS flag, 7Y AS tiny, -300S AS small, 2147483647 AS whole,
    -9223372036854775808L AS long,
    FLOAT('1.1') AS single, DOUBLE('0.1') AS double, DOUBLE('NaN') AS nan, DOUBLE('-Infinity') AS infinite,
    CAST(-12345.678 AS DECIMAL(10, 3)) AS price,
    CAST('-99999999999999999999999999999999999999' AS DECIMAL(38, 0)) AS big,
    CAST('0.0000000000000000000000000000000000001' AS DECIMAL(38, 37)) AS fine, CAST(0 AS DECIMAL(38, 10)) AS zero,
    'a "text", \\\\ with\\ttabs and\\nlines 🌊' AS text, '' AS empty, X'00FF10' AS content,
    DATE'1969-12-31' AS day, TIMESTAMP'2024-03-10 02:30:00.123456 UTC' AS at,
    TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' AS plain, TIMESTAMP_NTZ'2024-03-10 02:30:00' AS spring,
    ARRAY(1.10BD, NULL) AS prices, MAP('k', DATE'2024-01-01') AS days,
    NAMED_STRUCT('x', X'01', 'y', TIMESTAMP'2024-01-01 00:00:00 UTC') AS parts, CAST(NULL AS DECIMAL(5, 2)) AS nothing
"""


def numbered(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count).selectExpr("id", "CONCAT('n', id) AS name")


def envelopes(frame: DataFrame) -> list[dict[str, Any]]:
    rows = frame.collect()
    return sorted((json.loads(row["value"]) for row in rows), key=lambda found: found["source"]["ts_ns"])


def of(table: Table, spark: SparkSession, **more: Any) -> DataFrame:
    return capture.to_debezium(changes(spark, table.path, **more), table="t", keys=["id"])


def made(tmp_path: Path, *, feed: bool) -> Table:

    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    properties = {"tidelog.primaryKey": "id", "delta.enableChangeDataFeed": feed}
    return Table.create(str(tmp_path / "source"), schema, properties=properties)


@pytest.mark.parametrize("with_feed", [True, False], ids=["change files", "deletions and insertions"])
def test_an_update_has_both_rows(spark: SparkSession, tmp_path: Path, with_feed: bool) -> None:
    table = made(tmp_path, feed=with_feed)
    table.insert([{"id": 1, "name": "one"}, {"id": 2, "name": "two"}, {"id": 3, "name": "three"}])
    table.upsert([{"id": 1, "name": "uno"}, {"id": 4, "name": "four"}])
    table.delete("id = 2")
    table.update("id = 3", {"id": "30"})
    found = envelopes(of(table, spark, after=1))
    shown = [(each["op"], each["before"], each["after"], each["source"]["txId"]) for each in found]
    assert sorted(shown[:2], key=str) == [
        ("c", None, {"id": 4, "name": "four"}, "2"),
        ("u", {"id": 1, "name": "one"}, {"id": 1, "name": "uno"}, "2"),
    ]
    assert shown[2:4] == [
        ("d", {"id": 2, "name": "two"}, None, "3"),
        ("d", {"id": 3, "name": "three"}, None, "4"),
    ]
    assert shown[4][0] in "uc"
    assert shown[4][1:] == (None, {"id": 30, "name": "three"}, "4")
    assert [each["source"]["ts_ns"] % 10 for each in found[2:]] == [0, 0, 1]
    assert all(each["source"]["ts_ms"] == each["ts_ms"] for each in found)
    keys = [row["key"] for row in of(table, spark, after=2, until=3).collect()]
    assert keys == ['{"id":2}']


@pytest.mark.parametrize(
    ("decimals", "schemas"),
    [
        ("precise", True),
        ("string", False),
        pytest.param("precise", False, marks=pytest.mark.full),
        pytest.param("string", True, marks=pytest.mark.full),
    ],
)
def test_a_round_trip_gives_the_same_rows_of_all_types(
    plain_spark: SparkSession, tmp_path: Path, decimals: str, schemas: bool
) -> None:
    spark, source, copy = plain_spark, str(tmp_path / "source"), str(tmp_path / "copy")
    rows = spark.range(1).selectExpr(*_columns(ALL_TYPES))
    Table.create(source, _arrow(rows), properties={"tidelog.primaryKey": "id"}).insert(rows.toArrow())
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        records = capture.to_debezium(
            changes(spark, source), table="t", keys=["ID"], schemas=schemas, decimals=decimals
        )
        records.write.parquet(str(tmp_path / "topic"))
        stream = spark.readStream.schema(records.schema).parquet(str(tmp_path / "topic"))
        back = capture.debezium(stream, schema=Table.open(source), decimals=decimals)
        drain(back, capture.sink(copy, keys=["id"]), tmp_path / "cp")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    found = Table.open(copy).scan().to_arrow().drop_columns(["_order"])
    wanted = Table.open(source).scan().to_arrow()
    assert re.sub(" not null", "", str(found.schema)) == re.sub(" not null", "", str(wanted.schema))
    for name in wanted.column_names:
        assert str(found[name].to_pylist()) == str(wanted[name].to_pylist()), name


@pytest.mark.full
def test_a_copy_follows_the_table_by_its_feed(spark: SparkSession, tmp_path: Path) -> None:
    """Also where a row is deleted and put again in one commit, and where a key changes."""
    table = made(tmp_path, feed=False)
    topic, copy = tmp_path / "topic", str(tmp_path / "copy")

    def publish(batch: DataFrame, number: int) -> None:
        capture.to_debezium(batch, table="t", keys=["id"]).write.parquet(str(topic / f"{number}"))

    def follow() -> None:
        reader = Feed(spark, table.path, changes="cdc").foreachBatch(publish)
        reader.option("checkpointLocation", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
        stream = spark.readStream.schema("key STRING, value STRING").parquet(str(topic / "*"))
        drain(capture.debezium(stream, schema=table), capture.sink(copy, keys=["id"]), tmp_path / "cp")
        found = read(spark, copy, columns=["id", "name"]).collect()
        assert sorted(found) == sorted(read(spark, table.path).collect())

    table.insert([{"id": n, "name": f"n{n}"} for n in range(10)])
    table.upsert([{"id": n, "name": "again"} for n in range(5, 12)])
    follow()
    table.delete("id < 2")
    table.update("id = 7", {"id": "70"})
    table.upsert([{"id": 1, "name": "back"}])
    follow()


def test_a_stream_needs_its_old_rows_left_out(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path, feed=True)
    table.insert([{"id": 1, "name": "one"}])
    table.update("id = 1", {"name": "'uno'"})
    stream = feed(spark, table.path, changes="cdc", after="earliest")
    with pytest.raises(ConfigurationError, match="the frame is a stream"):
        capture.to_debezium(stream, table="t", keys=["id"])
    found: list[dict[str, Any]] = []
    records = capture.to_debezium(stream, table="t", keys=["id"], before=False)
    drain(records, lambda batch, _: found.extend(envelopes(batch)), tmp_path / "cp")
    shown = [(each["op"], each["before"], each["after"]) for each in found]
    assert shown == [("c", None, {"id": 1, "name": "one"}), ("u", None, {"id": 1, "name": "uno"})]


def test_insertions_alone_need_no_kind(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path, feed=False)
    table.insert([{"id": 1, "name": None}])
    (found,) = envelopes(of(table, spark, mode="append"))
    assert (found["op"], found["after"]) == ("c", {"id": 1, "name": None})


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path, feed=False)
    table.insert([{"id": 1, "name": "one"}])
    frame = changes(spark, table.path)
    with pytest.raises(ConfigurationError, match="decimals='exact' is not supported"):
        capture.to_debezium(frame, table="t", keys=["id"], decimals="exact")
    with pytest.raises(ConfigurationError, match="keys must be a list"):
        capture.to_debezium(frame, table="t", keys="id")
    with pytest.raises(SchemaMismatchError, match="lacks the column 'number'"):
        capture.to_debezium(frame, table="t", keys=["number"])
    with pytest.raises(SchemaMismatchError, match="lacks the column '_commit_version'"):
        capture.to_debezium(read(spark, table.path), table="t", keys=["id"])
    with pytest.raises(ConfigurationError, match="the column 'span' is interval"):
        capture.to_debezium(frame.selectExpr("*", "INTERVAL '1' DAY AS span"), table="t", keys=["id"])
    with pytest.raises(ConfigurationError, match="the column 'm' is map<int,int>"):
        capture.to_debezium(frame.selectExpr("*", "map(1, 2) AS m"), table="t", keys=["id"])


def _columns(text: str) -> list[str]:
    """SQL expressions, split at the commas between them."""
    parts, depth, quoted = [""], 0, False
    for sign in text:
        quoted ^= sign == "'"
        depth += (sign == "(") - (sign == ")") if not quoted else 0
        if sign == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _arrow(frame: DataFrame) -> Any:
    return pa.schema([field.with_nullable(True) for field in arrow_schema(frame)])
