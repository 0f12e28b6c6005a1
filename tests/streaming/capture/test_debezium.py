"""Which rows become of Debezium's records, and how they are compared. What a task does is tested without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.streaming.capture.envelopes import PLACEHOLDER, base64_of, envelope, field, records, wrapped
from tidelog.log import Table
from tidelog.log.data.packed_order import LONGEST
from tidelog.log.errors import ConfigurationError
from tidelog.streaming import capture
from tidelog.streaming.capture.changes import ChangeRows, RecordFormat
from tidelog.streaming.capture.debezium import Debezium
from tidelog.streaming.capture.order import debezium_order
from tidelog.streaming.capture.values import Encoding

SCHEMA = StructType(
    [StructField("id", LongType()), StructField("name", StringType()), StructField("note", StringType())]
)
REASONS = ("_op", "_reason")


def row(number: int, name: Any = None, note: Any = None) -> dict[str, Any]:
    return {"id": number, "name": name, "note": note}


def read(
    *values: Any,
    columns: Iterable[str] = ("id", "name", "_op"),
    form: RecordFormat | None = None,
    old_keys: Sequence[bytes | None] | None = None,
) -> list[tuple[Any, ...]]:
    """What a task makes of records, without Spark; `old_keys` are those in their headers."""
    content = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    headers = pa.array([None] * len(content) if old_keys is None else old_keys, pa.binary())
    batch = pa.record_batch([pa.array(content, pa.binary()), pa.array(range(len(content))), headers], ["v", "o", "k"])
    rows = ChangeRows(SCHEMA, ("id",), Encoding(), form or Debezium(("id",)), PLACEHOLDER)
    (found,) = rows.batches()(iter([batch]))
    return [tuple(line[name] for name in columns) for line in found.to_pylist()]


@pytest.mark.parametrize("wrap", [False, True])
def test_operations_become_rows(wrap: bool) -> None:
    values = [
        envelope("r", row(1, "a")),
        envelope("c", row(2, "b")),
        envelope("u", row(3, "c"), row(3, "old")),
        envelope("d", before=row(4, "gone")),
        envelope("t"),
        envelope("u", row(6, "new"), row(5, "old")),
        envelope("u", row(7, "same"), {"id": None, "name": None, "note": None}),
    ]
    if wrap:
        values = [wrapped(value, field("id", "int64"), field("name", "string")) for value in values]
    assert read(*values) == [
        (1, "a", "u"),
        (2, "b", "u"),
        (3, "c", "u"),
        (4, None, "d"),
        (None, None, "t"),
        (5, None, "d"),
        (6, "new", "u"),
        (7, "same", "u"),
    ]


def test_what_tells_of_no_row_is_left_out() -> None:
    assert not read(
        {"schema": {"type": "struct"}, "payload": None},
        b"null",
        {"ts_ms": 1700000000000},
        wrapped({"ts_ms": 1700000000000}),
        {"status": "BEGIN", "id": "571:53195829", "event_count": None, "data_collections": None, "ts_ms": 1},
        {"status": "END", "id": "571:53195829", "event_count": 2, "data_collections": [], "ts_ms": 1},
        {"source": {"connector": "mysql"}, "databaseName": "shop", "ddl": "CREATE TABLE t", "tableChanges": []},
        {"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "p", "content": "AA=="}},
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the record is not JSON"),
        (b"\x00\x00\x00\x00\x01\x02", "the record is not JSON"),
        (b'{"op": "c"', "the record is not JSON"),
        (b'{"op": "\xff"}', "the record is not JSON"),
        (b'{"op": "c"} and more', "the record is not JSON"),
        (b"[" * 100_000, "the record is not JSON"),
        (b"5", "the record is no envelope of Debezium"),
        (b"[1]", "the record is no envelope of Debezium"),
        ({"id": 1, "name": "flat"}, "the record is no envelope of Debezium: it has no op"),
        ({"id": 1, "__op": "c", "__lsn": 5}, "the record is flattened (ExtractNewRecordState)"),
        ({"before": None, "after": row(1)}, "the record is no envelope of Debezium: it has no op"),
        (envelope("x", row(1)), "unknown op: x"),
        ({**envelope("c", row(1)), "op": 7}, "unknown op: 7"),
        (envelope("c"), "the record has no row in after"),
        (envelope("u", "text"), "the record has no row in after"),  # type: ignore[arg-type]
        (envelope("d"), "the record has no row in before"),
        (envelope("c", row(1), lsn=None), "the record's source has no position"),
        (envelope("c", row(1), lsn=-5), "the record's source has no position"),
        ({**envelope("c", row(1)), "source": None}, "the record's source has no position"),
        ({**envelope("c", row(1)), "source": "text"}, "the record's source has no position"),
    ],
)
def test_what_cannot_be_read_says_why(value: Any, reason: str) -> None:
    ((op, found, raw),) = read(value, columns=("_op", "_reason", "_raw"))
    assert op is None
    assert found.startswith(reason)
    assert raw == (value if isinstance(value, bytes) else json.dumps(value).encode())


def test_values_that_are_left_out_are_named() -> None:
    integers = list(PLACEHOLDER.encode())
    coded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    floats, tenths = [float(byte) for byte in integers], [base64_of(10 * byte) for byte in integers]
    variable = [{"scale": 0, "value": base64_of(byte)} for byte in integers]
    uuid = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
    values = [PLACEHOLDER, coded, [PLACEHOLDER], [coded], [uuid], integers, {PLACEHOLDER: PLACEHOLDER}]
    values += [floats, [base64_of(byte) for byte in integers], tenths, variable]
    given = [envelope("u", row(place, "x", value)) for place, value in enumerate(values)]
    assert read(*given, columns=("name", "note", "_unchanged")) == [("x", None, ["note"])] * len(values)
    others = [floats[1:], [*floats[1:], 1.5], [*floats[1:], "x"], [*tenths[1:], tenths[0]], [None] * 28, [[]] * 28]
    assert read(*(envelope("u", row(1, "x", value)) for value in others), columns=("_unchanged",)) == [([],)] * 6
    # The row before has it, with REPLICA IDENTITY FULL.
    of_before = envelope("u", row(2, "x", PLACEHOLDER), row(1, "x", "kept"))
    assert read(of_before, columns=("id", "note", "_unchanged", "_op")) == [(1, None, [], "d"), (2, "kept", [], "u")]
    assert read(envelope("u", row(1, "x", "y")), columns=("_unchanged",)) == [([],)]


def test_transactions_have_the_id_of_the_source() -> None:
    both, of_envelope, without = envelope("c", row(1)), envelope("c", row(1)), envelope("c", row(1))
    # For PostgreSQL the second number is another one in each record of the transaction.
    both["transaction"] = {"id": "700:53195829", "total_order": 1, "data_collection_order": 1}
    of_envelope["transaction"] = {"id": "571", "total_order": 1, "data_collection_order": 1}
    del of_envelope["source"]["txId"]
    del without["source"]["txId"]
    assert read(both, of_envelope, without, columns=("_transaction",)) == [("700",), ("571",), (None,)]


# --- order ------------------------------------------------------------------------------------------------------------


def order(
    source: dict[str, Any], op: str = "u", *, offset: int | None = 0, epoch: int = 0, by: str = "position"
) -> str:
    found = debezium_order(source, op, by, epoch, offset)
    assert found is not None
    return found


def postgresql(lsn: int | None, commit: int | None = None, snapshot: str = "false") -> dict[str, Any]:
    sequence = json.dumps([None if commit is None else str(commit), str(lsn)])
    return {"connector": "postgresql", "lsn": lsn, "sequence": sequence, "snapshot": snapshot, "ts_ms": 5}


def mysql(file: str, pos: int, row_number: int = 0, **more: Any) -> dict[str, Any]:
    return {"connector": "mysql", "file": file, "pos": pos, "row": row_number, **more}


def sql_server(commit: str, change: str | None, event: int | None) -> dict[str, Any]:
    return {"connector": "sqlserver", "commit_lsn": commit, "change_lsn": change, "event_serial_no": event}


def test_postgresql_s_order() -> None:
    ascending = [
        order(postgresql(None, snapshot="incremental"), "r"),
        order(postgresql(100, snapshot="first"), "r"),
        order(postgresql(99)),
        order(postgresql(100, 90)),
        order(postgresql(100, 90), offset=1),
        order(postgresql(106, 105, snapshot="incremental"), "r"),
        # Written before the snapshot's position, and sent after a commit behind it.
        order(postgresql(95, 110)),
        order(postgresql(96, 110)),
        order(postgresql(111, 110)),
        order(postgresql(2**62, 112)),
        order(postgresql(1), epoch=1),
    ]
    assert ascending == sorted(set(ascending))
    assert {len(text) for text in ascending} == {len(ascending[0])}


def test_other_databases_orders() -> None:
    of_mysql = [
        order(mysql("mysql-bin.000009", 700, snapshot="true"), "r"),
        order(mysql("mysql-bin.000009", 700, snapshot="false")),
        order(mysql("mysql-bin.000009", 700, 1)),
        order(mysql("mysql-bin.000009", 1000)),
        order(mysql("mysql-bin.000010", 4)),
        order(mysql("mysql-bin.1000000", 4)),
    ]
    of_sql_server = [
        order(sql_server("00000027:00000ac0:0002", None, None), "r"),
        order(sql_server("00000027:00000ac0:0002", "00000027:00000aa0:0002", 1)),
        order(sql_server("00000027:00000ac0:0002", "00000027:00000aa0:0002", 2)),
        order(sql_server("00000027:00000ac0:0002", "00000027:00000ab0:0001", 1)),
        order(sql_server("00000027:00000ac0:000A", "00000020:00000000:0001", 1)),
    ]
    of_oracle = [
        order({"connector": "oracle", "scn": "900", "snapshot": "true"}, "r"),
        order({"connector": "oracle", "scn": "899", "commit_scn": "901", "ssn": 1}),
        order({"connector": "oracle", "scn": "899", "commit_scn": "901", "ssn": 2}),
        order({"connector": "oracle", "scn": 1000, "commit_scn": 1001}),
    ]
    of_clocks = [
        order({"connector": "db2", "ts_ms": 1}, "r"),
        order({"connector": "db2", "ts_ms": 1}),
        order({"connector": "db2", "ts_ms": 1}, offset=1),
        order({"connector": "db2", "ts_ms": 1, "ts_us": 1001}),
        order({"connector": "db2", "ts_ms": 1, "ts_us": 1001, "ts_ns": 1001001}),
    ]
    for ascending in (of_mysql, of_sql_server, of_oracle, of_clocks):
        assert ascending == sorted(set(ascending))
        # An upsert finds the order of the rows that it replaces in the key index.
        assert max(len(text) for text in ascending) <= LONGEST
    assert debezium_order(mysql("", 4), "u", "position", 0, 0) is None
    assert debezium_order({"connector": "oracle", "scn": "x"}, "u", "position", 0, 0) is None
    assert debezium_order({}, "u", "position", 0, 0) is None


def test_the_order_can_be_the_clock_or_the_topic() -> None:
    assert order(postgresql(9), by="time") == order(postgresql(1), by="time")
    assert order(postgresql(9), by="offset", offset=1) < order(postgresql(1), "r", by="offset", offset=2)
    assert debezium_order(postgresql(9), "u", "offset", 0, None) is None


_NOWHERE = [
    {"connector": "mysql", "ts_ms": 0, "snapshot": "false", "file": "", "pos": 0, "row": 0, "gtid": None},
    {"connector": "mariadb", "ts_ms": 0, "file": None, "pos": None},
    {"connector": "postgresql", "ts_ms": 0, "snapshot": "false", "lsn": None, "sequence": None},
    {"connector": "sqlserver", "ts_ms": 0, "snapshot": "true", "commit_lsn": None, "change_lsn": None},
    {"connector": "oracle", "ts_ms": 0, "scn": None, "commit_scn": None},
    {"connector": "oracle", "ts_ms": 0, "scn": "0", "commit_scn": ""},
    {"connector": "mongodb", "ts_ms": 0, "snapshot": "true", "db": "d", "collection": "c"},
    {"connector": "db2"},
]


@pytest.mark.parametrize("source", _NOWHERE, ids=lambda source: source["connector"])
def test_a_snapshot_without_a_position_is_older_than_all_that_has_one(source: dict[str, Any]) -> None:
    older = debezium_order(source, "r", "position", 0, 5, 1730102832300)
    assert older is not None
    assert older == debezium_order(source, "r", "position", 0, 5, 1730102832300)
    newer = [
        debezium_order(source, "r", "position", 0, 6, 1730102832300),
        debezium_order(source, "r", "position", 0, 0, 1730102832301),
        order(postgresql(None, snapshot="incremental"), "r"),
        order(mysql("b.000000", 0), "r"),
        order(sql_server("00000000:00000000:0000", None, None), "r"),
        order({"connector": "oracle", "scn": 1}, "r"),
        order({"connector": "mongodb", "ts_ms": 1}, "r"),
    ]
    assert [older < (each or "") for each in newer] == [True] * len(newer)
    assert older < order(postgresql(1), epoch=1)
    assert (debezium_order(source, "r", "position", 1, 5, 1) or "") > order(postgresql(2**62))
    # A change has a position, or it is a clock's.
    change = debezium_order(source, "u", "position", 0, 5, 1730102832300)
    assert (change is None) == (source["connector"] != "mongodb")
    assert debezium_order({**source, "ts_ms": "x"}, "r", "time", 0, 5, 1) is None


# --- in Spark ---------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_struct_of_from_avro_is_read_as_well(spark: SparkSession) -> None:
    kind = """struct<before: struct<id: bigint>, op: string, source: struct<connector: string, lsn: bigint>,
        after: struct<id: bigint, price: decimal(10,2), at: timestamp, day: date, content: binary, ratio: double>>"""
    record = """named_struct('before', null, 'op', 'c', 'source', named_struct('connector', 'postgresql', 'lsn', 5),
        'after', named_struct('id', 1, 'price', 1234, 'at', timestamp'2023-11-14 22:13:20.123456Z',
        'day', date'2024-10-04', 'content', x'00ff', 'ratio', double('NaN')))"""
    frame = spark.range(1).selectExpr(f"cast({record} as {kind}) as envelope")
    schema = "id BIGINT, price DECIMAL(10,2), at TIMESTAMP, day DATE, content BINARY, ratio DOUBLE"
    found = capture.debezium(frame, schema=schema, keys=["id"], value="envelope")
    texts = ("string(price)", "unix_micros(at)", "string(day)", "hex(content)", "string(ratio)", "_reason")
    assert tuple(found.selectExpr(*texts).collect()[0]) == (
        "1234.00",
        1700000000123456,
        "2024-10-04",
        "00FF",
        "NaN",
        None,
    )


@pytest.mark.spark
def test_the_schema_can_come_from_the_records(spark: SparkSession) -> None:
    decimal = {"parameters": {"scale": "2", "connect.decimal.precision": "10"}}
    first = [
        field("id", "int32"),
        field("price", "bytes", "org.apache.kafka.connect.data.Decimal", **decimal),
        field("at", "int64", "io.debezium.time.MicroTimestamp"),
        field("seen", "string", "io.debezium.time.ZonedTimestamp"),
        field("day", "int32", "io.debezium.time.Date"),
        field("tags", "array", items={"type": "string", "optional": True}),
        field("ratio", "float"),
        field("any", "struct", "io.debezium.data.VariableScaleDecimal"),
    ]
    wider = [field("id", "int64"), field("note", "string"), field("ratio", "double")]
    frame = records(
        spark,
        wrapped(envelope("c", {"id": 1, "price": base64_of(150), "tags": ["a"]}), *first),
        wrapped(envelope("c", {"id": 2**40, "note": "new"}), *wider),
        None,
        b"{bad",
    )
    found = capture.debezium(frame, keys=["id"])
    kinds = {name: kind for name, kind in found.dtypes if not name.startswith("_")}
    assert kinds == {
        "id": "bigint", "price": "decimal(10,2)", "at": "timestamp_ntz", "seen": "timestamp", "day": "date",
        "tags": "array<string>", "ratio": "double", "any": "string", "note": "string",
    }  # fmt: skip
    assert [(row["id"], row["note"]) for row in found.where("_reason IS NULL").collect()] == [(1, None), (2**40, "new")]
    known = capture.debezium(frame, schema="id BIGINT, price STRING", keys=["id"], new_columns=True)
    assert known.columns[:2] == ["id", "price"]
    assert {"at", "note"} <= set(known.columns)
    assert known.schema["price"].dataType == StringType()
    (letter,) = capture.debezium(records(spark, envelope("c", row(1))), keys=["id"]).collect()
    assert letter["_reason"].startswith("no record of the batch has a schema: pass schema=")
    stream = spark.readStream.format("rate").load().selectExpr("string(value) AS value")
    with pytest.raises(ConfigurationError, match="the records of a stream are not there yet"):
        capture.debezium(stream, keys=["id"])


@pytest.mark.spark
def test_a_table_gives_the_schema_and_the_key(spark: SparkSession, tmp_path: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_order", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, properties={"tidelog.primaryKey": "id"})
    frame = records(spark, envelope("u", row(2, "b"), row(1, "a")))
    for given in (table, table.schema):
        found = capture.debezium(frame, schema=given, keys=() if given is table else ["id"])
        assert [tuple(line) for line in found.select("id", "name", "_op").collect()] == [(1, None, "d"), (2, "b", "u")]
        assert found.columns[:3] == ["id", "name", "_op"]


# --- the old key of a row whose key was changed -----------------------------------------------------------------------

MOVED = {"id": 2, "name": PLACEHOLDER, "note": None}


@pytest.mark.parametrize(
    ("before", "header", "expected"),
    [
        (envelope("d", before=row(1), lsn=9), None, {"id": 1}),
        (None, b'{"id":1}', {"id": 1}),
        (None, b'{"schema": {"type": "struct"}, "payload": {"id": 1}}', {"id": 1}),
        (envelope("d", before=row(7), lsn=9), b'{"id":1}', {"id": 1}),
        # Another change, or not the record before it.
        (envelope("d", before=row(1), lsn=8), None, None),
        (envelope("c", row(1), lsn=9), None, None),
        # A header that does not have the key.
        (None, b'{"other":1}', None),
        (None, b"{no json", None),
        (None, b"1", None),
    ],
)
def test_the_old_key_of_a_row_that_was_moved(before: Any, header: bytes | None, expected: Any) -> None:
    values = [value for value in (before, envelope("c", MOVED, lsn=9)) if value is not None]
    old_keys = [None] * (len(values) - 1) + [header]
    *_, found = read(*values, columns=("_old_key", "_unchanged"), old_keys=old_keys)
    assert found == (expected, ["name"])


def test_an_update_with_the_old_row_has_its_key() -> None:
    columns = ("id", "_op", "_old_key")
    moved = envelope("u", MOVED, {"id": 1, "name": None, "note": None})
    assert read(moved, columns=columns) == [(1, "d", None), (2, "u", {"id": 1})]
    # It is the same key, and what is there is not asked for.
    assert read(envelope("u", MOVED, row(2)), columns=columns) == [(2, "u", None)]
    assert read(envelope("u", row(2), row(1)), columns=columns) == [(1, "d", None), (2, "u", None)]


def test_each_record_keeps_its_bytes() -> None:
    value = json.dumps(envelope("u", row(2, "two"), row(1))).encode()
    assert read(value, b"{junk", columns=("_raw",)) == [(value,), (value,), (b"{junk",)]
