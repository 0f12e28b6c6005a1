"""Maxwell's and Canal's records, and rows with a column that says what happened."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.streaming.capture.envelopes import records
from tests.streaming.capture.test_debezium import read
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming import capture
from tidelog.streaming.capture.canal import Canal
from tidelog.streaming.capture.maxwell import Maxwell

ALL = ("id", "name", "_op", "_order")


def maxwell(
    kind: str, data: dict[str, Any] | None, position: str | None = "m.000006:800", **more: Any
) -> dict[str, Any]:
    known = {"database": "shop", "table": "t", "type": kind, "ts": 1477053217, "xid": 23396, "data": data, **more}
    return known if position is None else {**known, "position": position}


def test_maxwell_s_records() -> None:
    found = read(
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {"id": 1, "name": "snap"}, None),
        maxwell("insert", {"id": 1, "name": "a"}),
        maxwell("update", {"id": 1, "name": "b"}, old={"name": "a"}, xoffset=1),
        maxwell("update", {"id": 2, "name": "b"}, "m.000007:4", old={"id": 1}),
        maxwell("delete", {"id": 2, "name": "b"}, "m.000007:5"),
        maxwell("table-alter", None),
        columns=ALL,
        form=Maxwell(("id",)),
    )
    assert [line[:3] for line in found] == [
        (1, "snap", "u"),
        (1, "a", "u"),
        (1, "b", "u"),
        (1, None, "d"),
        (2, "b", "u"),
        (2, None, "d"),
    ]
    orders = [line[3] for line in found]
    assert orders == sorted(orders)
    assert len({len(order) for order in orders}) == 1
    bad = read(
        maxwell("insert", {"id": 1}, None), maxwell("merge", {"id": 1}), maxwell("insert", None), {"id": 1},
        columns=("_reason",), form=Maxwell(("id",)),
    )  # fmt: skip
    assert [reason for (reason,) in bad] == [
        "the record has no position",
        "unknown type: merge",
        "the record has no row in data",
        "the record is none of Maxwell's: it has no type",
    ]
    ((transaction,),) = read(maxwell("insert", {"id": 1}), columns=("_transaction",), form=Maxwell(("id",), "offset"))
    assert transaction == "23396"


def canal(kind: str, *data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"database": "shop", "table": "t", "type": kind, "es": 1700, "id": 3, "isDdl": False, "data": data, **more}


@pytest.mark.parametrize("order", ["offset", "time"])
def test_canal_s_records(order: str) -> None:
    found = read(
        canal("INSERT", {"id": "1", "name": "a"}, {"id": "2", "name": "b"}),
        canal("UPDATE", {"id": "1", "name": "x"}, {"id": "3", "name": "b"}, old=[{"name": "a"}, {"id": "2"}], id=4),
        canal("DELETE", {"id": "3", "name": "b"}, id=5),
        canal("ALTER", isDdl=True, sql="ALTER TABLE t"),
        canal("TRUNCATE", isDdl=True, sql="TRUNCATE t", id=6),
        columns=ALL,
        form=Canal(("id",), order),
    )
    assert [line[:3] for line in found] == [
        (1, "a", "u"),
        (2, "b", "u"),
        (1, "x", "u"),
        (2, None, "d"),
        (3, "b", "u"),
        (3, None, "d"),
        (None, None, "t"),
    ]
    orders = [line[3] for line in found]
    assert orders == sorted(orders)
    bad = read(canal("QUERY"), {**canal("INSERT"), "data": [5]}, [], columns=("_reason",), form=Canal(("id",), order))
    assert [reason for (reason,) in bad] == [
        "unknown type: QUERY",
        "the record has no rows in data",
        "the record is none of Canal's: it has no type",
    ]


def test_a_row_of_a_message_with_several_keeps_its_part_of_it() -> None:
    """It can be sent again, and is the same change."""
    message = canal("UPDATE", {"id": "1", "name": "x"}, {"id": "z", "name": "b"}, old=[{"name": "a"}, {"name": "c"}])
    one, other = (raw for (raw,) in read(message, columns=("_raw",), form=Canal(("id",), "time")))
    assert json.loads(one) == {**message, "data": [message["data"][0]], "old": [message["old"][0]]}
    again = read(other, columns=("_op", "_reason", "_raw"), form=Canal(("id",), "time"))
    assert again == [("u", "the column id: 'z' does not fit bigint exactly", other)]


@pytest.mark.spark
def test_the_functions_read_frames(spark: SparkSession) -> None:
    schema = "id BIGINT, price DECIMAL(10,2), at TIMESTAMP, content BINARY"
    row: dict[str, Any] = {"id": "1", "price": "1234", "at": "2023-11-14 22:13:20", "content": "\u00ff"}
    of_canal = capture.canal(records(spark, canal("INSERT", row)), schema=schema, keys=["id"], zone="UTC")
    row = {"id": 1, "price": 1234, "at": "2023-11-14 22:13:20", "content": "/w=="}
    of_maxwell = capture.maxwell(records(spark, maxwell("insert", row)), schema=schema, keys=["id"], zone="UTC")
    for found in (of_canal, of_maxwell):
        texts = found.selectExpr("id", "string(price)", "unix_seconds(at)", "hex(content)", "_reason").collect()
        assert [tuple(line) for line in texts] == [(1, "1234.00", 1700000000, "FF", None)]
    for function in (capture.canal, capture.maxwell):
        with pytest.raises(ConfigurationError, match="order='lsn'"):
            function(records(spark), schema=schema, keys=["id"], order="lsn")


@pytest.mark.spark
def test_rows_with_an_operation(spark: SparkSession) -> None:
    rows = [
        (1, "a", "I", -5), (1, "b", "update", 7), (1, None, "D", 2**40), (2, None, "T", 3),
        (3, "x", "merge", 1), (3, "x", None, 1), (3, "x", "c", None),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "id long, name string, op string, at long")
    found = capture.operations(frame, order="at").collect()
    assert [(row["id"], row["name"], row["_op"], row["_reason"]) for row in found] == [
        (1, "a", "u", None),
        (1, "b", "u", None),
        (1, None, "d", None),
        (2, None, "t", None),
        (3, "x", None, "unknown operation: merge"),
        (3, "x", None, "the column op is null"),
        (3, "x", "u", "a column of the order is null: at"),
    ]
    orders = [row["_order"] for row in found[:3]]
    assert orders == sorted(orders)
    assert bytes(found[4]["_raw"]) == b'{"id":3,"name":"x","op":"merge","at":1}'
    with pytest.raises(SchemaMismatchError, match="cannot be compared as a text"):
        capture.operations(frame.selectExpr("*", "double(at) d"), order="d")
    with pytest.raises(SchemaMismatchError, match="a name of the sink's"):
        capture.operations(frame.withColumnRenamed("name", "_raw"), order="at")


@pytest.mark.spark
def test_orders_of_several_types(spark: SparkSession) -> None:
    frame = spark.sql(
        """SELECT * FROM VALUES
        (1, date'1960-01-01', timestamp'1960-01-01 00:00:00', timestamp_ntz'1960-01-01 00:00:00', 'a'),
        (1, date'1960-01-01', timestamp'1960-01-01 00:00:00', timestamp_ntz'1960-01-01 00:00:00.000001', 'a'),
        (1, date'1970-01-02', timestamp'1960-01-01 00:00:00', timestamp_ntz'1960-01-01 00:00:00', 'a'),
        (1, date'1970-01-02', timestamp'1980-01-01 00:00:00', timestamp_ntz'1960-01-01 00:00:00', 'b')
        AS t(id, day, at, local, text)"""
    ).selectExpr("*", "'c' AS op")
    rows = capture.operations(frame, order=["day", "at", "local", "text"]).collect()
    assert [row["_order"] for row in rows] == sorted({row["_order"] for row in rows})


def test_the_last_row_of_a_transaction_of_maxwell_is_its_newest() -> None:
    """UPDATE t SET id = id + 1: what one row leaves another one takes, at one position of the log."""
    found = read(
        maxwell("update", {"id": 4}, old={"id": 3}, xoffset=0),
        maxwell("update", {"id": 3}, old={"id": 2}, xoffset=1),
        maxwell("update", {"id": 2}, old={"id": 1}, commit=True),
        columns=("id", "_op", "_order"),
        form=Maxwell(("id",)),
    )
    newest = {number: op for number, op, _ in sorted(found, key=lambda line: line[2])}
    assert newest == {1: "d", 2: "u", 3: "u", 4: "u"}


def test_the_raw_record_of_a_row_is_exact(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 id, 'x' op, 1L at, TIMESTAMP_NTZ'2026-01-02 03:04:05.678901' t, NULL n")
    (line,) = capture.operations(frame.withColumn("n", frame["n"].cast("int")), order="at").collect()
    assert json.loads(line["_raw"]) == {"id": 1, "op": "x", "at": 1, "t": "2026-01-02T03:04:05.678901", "n": None}
