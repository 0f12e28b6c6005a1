"""Rows of a snapshot whose source says no position, as Flink CDC writes them, fill gaps and replace nothing newer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.streaming.capture.envelopes import Topic, envelope, field, run, wrapped
from tidelog.log import Table
from tidelog.streaming import capture

pytestmark = [pytest.mark.spark, pytest.mark.full]

# For each connector a source without a position, and what one of a change has.
SOURCES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mysql": ({"file": "", "pos": 0, "row": 0}, {"file": "mysql-bin.000060", "pos": 100, "row": 0}),
    "postgresql": ({"lsn": None, "txId": None, "sequence": None}, {"lsn": 24023128, "txId": 555}),
    "sqlserver": (
        {"change_lsn": None, "commit_lsn": None, "event_serial_no": None},
        {"change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005", "event_serial_no": 1},
    ),
    "oracle": ({"scn": None, "commit_scn": None}, {"scn": "10", "commit_scn": "12"}),
    "mongodb": ({"ts_ms": 0}, {"ts_ms": 1730103013000}),
}


@pytest.mark.parametrize(("connector", "offsets"), [*((name, False) for name in SOURCES), ("mysql", True)])
def test_they_fill_gaps(spark: SparkSession, tmp_path: Path, connector: str, offsets: bool) -> None:
    nowhere, somewhere = ({"connector": connector, "ts_ms": 0, "snapshot": "false", **of} for of in SOURCES[connector])

    def read_at(ts_ms: int, number: int, name: str) -> dict[str, Any]:
        return {**envelope("r", {"id": number, "name": name}), "source": nowhere, "ts_ms": ts_ms}

    def changed(op: str, number: int, name: str | None = None) -> dict[str, Any]:
        row = {"id": number, "name": name}
        return {**(envelope(op, before=row) if op == "d" else envelope(op, row)), "source": somewhere}

    topic = Topic(tmp_path / "topic")
    topic.put(changed("u", 1, "change"), changed("c", 2, "gone"), read_at(1, 3, "first"), read_at(1, 4, "first"))
    topic.put(changed("d", 2), changed("u", 4, "change"), read_at(2, 4, "second"))
    # The snapshot is taken again, or read again: what is read later is right.
    topic.put(read_at(3, 1, "late"), read_at(3, 2, "late"), read_at(3, 3, "second"), read_at(4, 3, "third"))
    topic.put(read_at(3, 4, "late"), read_at(3, 5, "first"), read_at(2, 3, "stale"))
    frame = topic.stream(spark)
    rows = capture.debezium(frame if offsets else frame.drop("offset"), schema="id BIGINT, name STRING", keys=["id"])
    sink = capture.sink(str(tmp_path / "t"), keys=["id"], dead_letters=str(tmp_path / "dead"))
    run(rows, sink, tmp_path)
    found = Table.open(str(tmp_path / "t")).scan(columns=["id", "name"]).to_arrow().to_pylist()
    assert {row["id"]: row["name"] for row in found} == {1: "change", 3: "third", 4: "change", 5: "first"}
    assert Table.open(str(tmp_path / "dead")).scan().count() == 0


VECTOR = field(
    "vector",
    "struct",
    "io.debezium.data.SparseDoubleVector",
    fields=[
        field("dimensions", "int16"),
        field("vector", "map", keys={"type": "int16", "optional": False}, values={"type": "double", "optional": False}),
    ],
)


def test_a_type_of_the_record_s_schema_holds_its_value(spark: SparkSession, tmp_path: Path) -> None:
    decimal = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}}
    fields = [
        field("id", "int64"),
        VECTOR,
        field("days", "map", keys={"type": "int32", "name": "io.debezium.time.Date"}, values={"type": "string"}),
        field("amounts", "map", keys={"type": "string"}, values={"type": "bytes", **decimal}),
        field("times", "map", keys={"type": "string"}, values={"type": "int64", "name": "io.debezium.time.Timestamp"}),
        field("odd", "map", keys={"type": "array", "items": {"type": "int32"}}, values={"type": "int32"}),
        field("nothing", "struct", fields=[]),
        field("twice", "struct", fields=[field("a", "int32"), field("A", "int32")]),
    ]
    row = {
        "id": 1, "vector": {"dimensions": 25, "vector": [[1, 10.0], [11, 20.5]]}, "days": [[0, "x"]],
        "amounts": {"a": "AQ=="}, "times": {"a": 1000}, "odd": [[[1], 2]], "nothing": {}, "twice": {"a": 1, "A": 2},
    }  # fmt: skip
    poison = b'{"schema": 5, "payload": {"op": "c"}}'
    topic = Topic(tmp_path / "topic").put(wrapped(envelope("c", row), *fields), poison, None)
    sink = capture.sink(str(tmp_path / "t"), keys=["id"], dead_letters=str(tmp_path / "dead"), schema_evolution=True)
    run(topic.stream(spark), lambda frame, n: sink(capture.debezium(frame, keys=["id"]), n), tmp_path)
    (letter,) = Table.open(str(tmp_path / "dead")).scan(columns=["_raw", "_reason"]).to_arrow().to_pylist()
    assert letter == {"_raw": poison, "_reason": "the record's schema cannot be read: its fields are 5"}
    path = str(tmp_path / "t").replace("'", "")
    frame = spark.read.format("tidelog").load(path)
    texts = ("string(vector)", "string(days)", "string(amounts)", "string(times)", "odd", "nothing", "twice")
    assert tuple(frame.selectExpr(*texts).collect()[0]) == (
        "{25, {1 -> 10.0, 11 -> 20.5}}",
        "{1970-01-01 -> x}",
        "{a -> 0.1}",
        "{a -> 1970-01-01 00:00:01}",
        "[[[1],2]]",
        "{}",
        '{"a":1,"A":2}',
    )
