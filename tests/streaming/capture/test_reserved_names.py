"""A column of the database with a name that the sink uses is renamed, left out or refused; it never vanishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from examples.cdc.postgres import Postgres
from tests.lanes import full_but
from tests.streaming.capture.envelopes import Topic, envelope, field, records, run, wrapped
from tests.streaming.support import run_to_end
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming import Feed, capture
from tidelog.streaming.capture.column_names import names_in_records
from tidelog.streaming.capture.schemas import struct_of
from tidelog.streaming.sink.control import RESERVED

pytestmark = pytest.mark.spark


def _schema(name: str) -> StructType:
    return StructType([StructField("id", LongType()), StructField(name, StringType())])


def _ddl(name: str) -> str:
    return f"id BIGINT, {name} STRING"


@pytest.mark.parametrize("name", sorted({*RESERVED, *(name.upper() for name in RESERVED), "_Order", "_Transaction"}))
def test_a_name_of_the_sink_s_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatchError, match="rename=") as refused:
        struct_of(_ddl(name))
    assert refused.value.column == name
    with pytest.raises(SchemaMismatchError, match="rename gives a column"):
        names_in_records({"other": name}, None)
    # A table has the columns that the sink gave it.
    of_table = pa.schema([("id", pa.int64()), (name, pa.string())])
    if name in ("_order", "_transaction"):
        assert struct_of(of_table).names == struct_of(_schema(name)).names == ["id"]
        of_table = pa.schema([("id", pa.int64()), (name, pa.int64())])
    with pytest.raises(SchemaMismatchError, match="rename="):
        struct_of(of_table)


@pytest.mark.parametrize(
    ("rename", "text"),
    [
        ({"a": 5}, "rename cannot be"),
        ([("a", "b")], "rename cannot be"),
        ({5: "a"}, "rename cannot be"),
        ({"a": "name", "b": "NAME"}, "two columns the name 'NAME': 'a' and 'b'"),
        ({"a": "other"}, "the schema lacks the column 'other'"),
    ],
)
def test_wrong_names_are_refused(rename: Any, text: str) -> None:
    with pytest.raises((ConfigurationError, SchemaMismatchError), match=text):
        names_in_records(rename, _schema("name"))


ROW = {"id": 1, "_order": "o", "_OP": "p", "_raw": "r"}
NAMES = {"_order": "number", "_OP": "what", "_raw": None}


@pytest.mark.full
def test_renamed_columns_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    fields = [field(name, "int64" if name == "id" else "string") for name in ROW]
    topic = Topic(tmp_path / "topic").put(
        wrapped(envelope("c", ROW, lsn=1), *fields), wrapped(envelope("u", {**ROW, "id": 2}, ROW, lsn=2), *fields)
    )
    sink = capture.sink(str(tmp_path / "t"), keys=["id"], dead_letters=str(tmp_path / "dead"), schema_evolution=True)
    run(topic.stream(spark), lambda frame, n: sink(capture.debezium(frame, keys=["id"], rename=NAMES), n), tmp_path)
    table = Table.open(str(tmp_path / "t"))
    assert table.scan(columns=["id", "number", "what"]).to_arrow().to_pylist() == [
        {"id": 2, "number": "o", "what": "p"}
    ]
    frame = records(spark, wrapped(envelope("c", ROW), *fields))
    assert "a column '_order', a name of tidelog's own" in reason_of(capture.debezium(frame, keys=["id"]))
    rows = capture.debezium(frame, schema="id BIGINT", keys=["id"], new_columns=True, rename={"_order": "number"})
    assert "a column '_OP', a name of tidelog's own" in reason_of(rows)
    # A schema says which columns the rows have; the key can have another name as well.
    known = capture.debezium(
        frame, schema="k BIGINT, number STRING", keys=["k"], rename={"id": "k", "_order": "number"}
    )
    assert [(row["k"], row["number"]) for row in known.collect()] == [(1, "o")]


def reason_of(rows: DataFrame) -> str:
    """Why the only record is a dead letter."""
    ((reason, op),) = rows.select("_reason", "_op").collect()
    assert op is None
    return str(reason)


def test_columns_that_differ_in_case_alone_are_refused(spark: SparkSession) -> None:
    frame = records(spark, wrapped(envelope("c", {"ID": 1, "a": 2}), field("ID", "int64"), field("a", "int64")))
    rows = capture.debezium(frame, schema="id BIGINT", keys=["id"], new_columns=True)
    assert "a column 'ID', and the rows have 'id'" in reason_of(rows)
    found = capture.debezium(frame, schema="id BIGINT", keys=["id"], new_columns=True, rename={"ID": "id"})
    assert [(row["id"], row["a"]) for row in found.collect()] == [(1, 2)]


@pytest.mark.parametrize("form", full_but(["maxwell"], ["maxwell", "canal"]))
def test_other_formats_rename_as_well(spark: SparkSession, form: str) -> None:
    row = {"key": "1", "_op": "x"}
    more: dict[str, Any] = {"type": "update", "position": "m.000001:5", "data": row, "old": {"key": "2"}}
    if form == "canal":
        more = {"type": "UPDATE", "isDdl": False, "data": [row], "old": [{"key": "2"}]}
    frame = records(spark, more)
    found = getattr(capture, form)(
        frame, schema="id BIGINT, what STRING", keys=["id"], rename={"key": "id", "_op": "what"}
    )
    assert [(line["id"], line["what"], line["_op"]) for line in found.collect()] == [(2, None, "d"), (1, "x", "u")]


def test_operations_refuse_such_names_in_any_case(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "u", 1, "x")], "id long, op string, at long, _RAW string")
    with pytest.raises(SchemaMismatchError, match="'_RAW', a name of the sink's"):
        capture.operations(frame, order="at")


@pytest.mark.full
def test_postgresql_gets_columns_of_any_name(spark: SparkSession, postgres_server: Postgres, tmp_path: Path) -> None:
    names = ("_gone", "_is_new", "_line", "_order")
    schema = pa.schema([("n", pa.int64()), *((name, pa.string()) for name in names)])
    table = Table.create(str(tmp_path / "t"), schema, properties={"tidelog.primaryKey": "n"})
    table.insert([{"n": 1, **{name: name for name in names}}, {"n": 2, **dict.fromkeys(names, "x")}])
    with postgres_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS odd, odd_positions")
        cursor.execute(
            f"CREATE TABLE odd (n bigint PRIMARY KEY, {', '.join(f'{name} text' for name in names)})".encode()
        )
    sink = capture.PostgresSink(postgres_server.connect, "odd", keys=["n"], positions="odd_positions")
    feed = Feed(spark, str(tmp_path / "t"), changes="cdc").foreachBatch(sink)
    run_to_end(feed, tmp_path / "cp")
    table.delete("n = 2")
    run_to_end(feed, tmp_path / "cp")
    with postgres_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM odd")
        assert cursor.fetchall() == [(1, *names)]


def test_envelopes_have_columns_of_any_name(spark: SparkSession) -> None:
    changes = spark.sql(
        "SELECT 1L AS id, 'o' AS _order, 'p' AS _op, 'b' AS before, 'k' AS key, 'r' AS row, 'insert' AS _change_type, "
        "1L AS _commit_version, TIMESTAMP'2024-01-01 00:00:00 UTC' AS _commit_timestamp"
    )
    (line,) = capture.to_debezium(changes, table="t", keys=["id"]).collect()
    assert json.loads(line["value"])["after"] == {
        "id": 1,
        "_order": "o",
        "_op": "p",
        "before": "b",
        "key": "k",
        "row": "r",
    }
