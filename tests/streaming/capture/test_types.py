"""Each type of a database, as Debezium writes it, becomes exactly the value of its column, or a dead letter."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.streaming.capture.envelopes import base64_of, envelope, field, records, wrapped
from tidelog.log.errors import ConfigurationError, SchemaMismatchError
from tidelog.streaming import capture

pytestmark = pytest.mark.spark

BAD = "a dead letter"
_TIME, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_UTC = dt.UTC


class Case(NamedTuple):
    """A column's type, what the record has, the value, and for a record with a schema what that says."""

    kind: str
    given: Any
    value: Any
    meaning: dict[str, Any] | None = None


def _decimal(scale: int) -> dict[str, Any]:
    return field("", "bytes", f"{_CONNECT}Decimal", parameters={"scale": str(scale), "connect.decimal.precision": "38"})


def local(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


_LARGE, _DIGITS = 10**38 - 1, 12345678901234567890123456789012345678
PLAIN = [
    Case("BOOLEAN", True, True),
    Case("BOOLEAN", 0, False),
    Case("BOOLEAN", "yes", BAD),
    Case("TINYINT", -128, -128),
    Case("TINYINT", 128, BAD),
    Case("SMALLINT", 32767, 32767),
    Case("INT", "7", 7),
    Case("INT", 2**31, BAD),
    Case("INT", 1.5, BAD),
    Case("INT", True, BAD),
    Case("BIGINT", -(2**63), -(2**63)),
    Case("BIGINT", 2**63, BAD),
    Case("DOUBLE", 0.1, 0.1),
    Case("DOUBLE", 1e300, 1e300),
    Case("DOUBLE", -1.7976931348623157e308, -1.7976931348623157e308),
    Case("DOUBLE", 2**53 + 1, BAD),
    Case("DOUBLE", "0.1234567890123456789", BAD),
    Case("DOUBLE", "1e400", BAD),
    Case("DOUBLE", "NaN", math.nan),
    Case("DOUBLE", "-Infinity", -math.inf),
    Case("FLOAT", 1.1, 1.100000023841858),
    Case("FLOAT", "Infinity", math.inf),
    Case("FLOAT", 16777217, BAD),
    Case("FLOAT", 1e39, BAD),
    Case("DECIMAL(10,2)", base64_of(12345), Decimal("123.45")),
    Case("DECIMAL(10,2)", base64_of(-1), Decimal("-0.01")),
    Case("DECIMAL(10,2)", base64_of(0), Decimal("0.00")),
    Case("DECIMAL(38,0)", base64_of(_LARGE), Decimal(_LARGE)),
    Case("DECIMAL(38,10)", base64_of(-_LARGE), Decimal(f"-{'9' * 28}.{'9' * 10}")),
    Case(
        "DECIMAL(38,0)",
        base64_of(-12345678901234567890123456789012345678),
        Decimal(-12345678901234567890123456789012345678),
    ),
    Case("DECIMAL(38,0)", base64_of(_LARGE + 1), BAD),
    Case("DECIMAL(38,0)", base64_of(2**127), BAD),
    Case("DECIMAL(5,2)", base64_of(100000), BAD),
    Case("DECIMAL(10,2)", 1234, Decimal("1234.00")),
    Case("DECIMAL(10,2)", 12.5, Decimal("12.50")),
    Case("DECIMAL(10,2)", 12.345, BAD),
    Case("DECIMAL(10,2)", "12.34", BAD),
    Case("DECIMAL(20,4)", {"scale": 3, "value": base64_of(-12345)}, Decimal("-12.3450")),
    Case("DECIMAL(20,2)", {"scale": 3, "value": base64_of(12345)}, BAD),
    Case("DECIMAL(20,2)", {"scale": -3, "value": base64_of(12)}, Decimal("12000.00")),
    Case("STRING", 'text \x00 ü 🌊 "', 'text \x00 ü 🌊 "'),
    Case("STRING", "", ""),
    Case("STRING", 7, "7"),
    Case("STRING", {"b": [1, None]}, '{"b":[1,null]}'),
    Case("BINARY", "AP8=", b"\x00\xff"),
    Case("BINARY", "", b""),
    Case("BINARY", "AP8", BAD),
    Case("BINARY", 1234, BAD),
    Case("DATE", 20000, dt.date(2024, 10, 4)),
    Case("DATE", -1, dt.date(1969, 12, 31)),
    Case("DATE", "2024-10-04", dt.date(2024, 10, 4)),
    Case("DATE", "2024-02-30", BAD),
    Case("DATE", "0000-00-00", BAD),
    Case("DATE", 2**31 - 1, BAD),
    Case("TIMESTAMP_NTZ", 1700000000000001, local("2023-11-14T22:13:20.000001")),
    Case("TIMESTAMP_NTZ", -1, local("1969-12-31T23:59:59.999999")),
    Case("TIMESTAMP_NTZ", "2023-03-26T02:30:00.5", local("2023-03-26T02:30:00.500000")),
    Case("TIMESTAMP_NTZ", "2023-03-26 02:30:00", local("2023-03-26T02:30:00")),
    Case("TIMESTAMP_NTZ", "2023-03-26T02:30:00Z", BAD),
    Case("TIMESTAMP_NTZ", 9223372036825200000, BAD),
    Case("TIMESTAMP_NTZ", "infinity", BAD),
    Case("TIMESTAMP", "2023-11-14T22:13:20.123456Z", dt.datetime(2023, 11, 14, 22, 13, 20, 123456, _UTC)),
    Case("TIMESTAMP", "2023-11-14T22:13:20+05:30", dt.datetime(2023, 11, 14, 16, 43, 20, 0, _UTC)),
    Case("TIMESTAMP", "2023-11-14T22:13:20.123456000Z", dt.datetime(2023, 11, 14, 22, 13, 20, 123456, _UTC)),
    Case("TIMESTAMP", "2023-11-14T22:13:20.123456789Z", BAD),
    Case("TIMESTAMP", "2023-11-14T22:13:20", BAD),
    Case("TIMESTAMP", "2023-11-14T25:13:20Z", BAD),
    Case("TIMESTAMP", 1700000000000001, dt.datetime(2023, 11, 14, 22, 13, 20, 1, _UTC)),
    Case("BIGINT", 36000000000, 36000000000),
    Case("ARRAY<INT>", [1, None, 3], [1, None, 3]),
    Case("ARRAY<INT>", [1, "x"], BAD),
    Case("ARRAY<INT>", 5, BAD),
    Case("ARRAY<STRING>", [], []),
    Case("ARRAY<DECIMAL(5,2)>", [base64_of(150), None], [Decimal("1.50"), None]),
    Case("ARRAY<ARRAY<DOUBLE>>", [[1.5], [], None], [[1.5], [], None]),
    Case("MAP<STRING,STRING>", {"a": "b", "c": None}, {"a": "b", "c": None}),
    Case("MAP<STRING,STRING>", '{"a":"b"}', {"a": "b"}),
    Case("MAP<STRING,INT>", {"a": "b"}, BAD),
    Case("STRUCT<x: DOUBLE, y: DOUBLE>", {"x": 1.5, "y": -2, "wkb": "AA=="}, (1.5, -2.0)),
    Case("STRUCT<x: INT, y: INT>", {"x": "one"}, BAD),
    Case("STRUCT<x: INT>", 5, BAD),
]
MILLIS_2023 = local("2023-11-14T22:13:20.001000")
DECLARED = [
    Case("DECIMAL(10,2)", base64_of(12345), BAD, _decimal(3)),
    Case("DECIMAL(10,2)", base64_of(12340), Decimal("12.34"), _decimal(3)),
    Case("DECIMAL(10,2)", "1234", Decimal("1234.00"), field("", "string")),
    Case("DECIMAL(10,2)", "1.234E+3", Decimal("1234.00"), field("", "string")),
    Case("DECIMAL(10,2)", 12.34, Decimal("12.34"), field("", "double")),
    Case("DECIMAL(10,2)", 1234, Decimal("1234.00"), _decimal(2)),
    Case("DECIMAL(10,2)", "NaN", BAD, field("", "string")),
    Case("STRING", base64_of(-12345), "-123.45", _decimal(2)),
    Case("STRING", base64_of(5), "0.005", _decimal(3)),
    Case("STRING", base64_of(5), "5", _decimal(0)),
    Case(
        "STRING",
        {"scale": 1, "value": base64_of(15)},
        "1.5",
        field("", "struct", "io.debezium.data.VariableScaleDecimal"),
    ),
    Case("TIMESTAMP_NTZ", 1700000000001, MILLIS_2023, field("", "int64", f"{_TIME}Timestamp")),
    Case("TIMESTAMP_NTZ", 1700000000001, MILLIS_2023, field("", "int64", f"{_CONNECT}Timestamp")),
    Case("TIMESTAMP_NTZ", 1700000000001000, MILLIS_2023, field("", "int64", f"{_TIME}MicroTimestamp")),
    Case("TIMESTAMP_NTZ", 1700000000001000000, MILLIS_2023, field("", "int64", f"{_TIME}NanoTimestamp")),
    Case("TIMESTAMP_NTZ", 1700000000001000001, BAD, field("", "int64", f"{_TIME}NanoTimestamp")),
    Case("TIMESTAMP_NTZ", 36000000000, BAD, field("", "int64", f"{_TIME}MicroTime")),
    Case("TIMESTAMP_NTZ", "2023-11-14T22:13:20.001Z", MILLIS_2023, field("", "string", f"{_TIME}IsoTimestamp")),
    Case(
        "TIMESTAMP",
        "2023-11-14T22:13:20.001Z",
        MILLIS_2023.replace(tzinfo=_UTC),
        field("", "string", f"{_TIME}ZonedTimestamp"),
    ),
    Case("DATE", 20000, dt.date(2024, 10, 4), field("", "int32", f"{_TIME}Date")),
    Case("DATE", 20000, dt.date(2024, 10, 4), field("", "int32", f"{_CONNECT}Date")),
    Case("DATE", 20000, BAD, field("", "int32", f"{_TIME}Time")),
    Case("BIGINT", 36000000000, 36000000000, field("", "int64", f"{_TIME}MicroTime")),
    Case("STRING", "P1Y2M3DT4H5M6S", "P1Y2M3DT4H5M6S", field("", "string", f"{_TIME}Interval")),
    Case("BIGINT", 97200000000, 97200000000, field("", "int64", f"{_TIME}MicroDuration")),
    Case("STRING", '{"a": 1}', '{"a": 1}', field("", "string", "io.debezium.data.Json")),
    Case("STRING", "shipped", "shipped", field("", "string", "io.debezium.data.Enum")),
    Case("STRING", "9bffe8e8-7e5a", "9bffe8e8-7e5a", field("", "string", "io.debezium.data.Uuid")),
    Case(
        "ARRAY<DATE>",
        [20000, None],
        [dt.date(2024, 10, 4), None],
        field("", "array", items={"type": "int32", "name": f"{_TIME}Date"}),
    ),
    Case("ARRAY<DECIMAL(10,2)>", [base64_of(15)], [Decimal("1.50")], field("", "array", items=_decimal(1))),
]


def checked(spark: SparkSession, cases: list[Case], **options: Any) -> None:
    """Read a record for each case, all of them at once, and compare what becomes of each."""
    schema = ", ".join(["id INT", *(f"c{place} {case.kind}" for place, case in enumerate(cases))])
    values = []
    for place, case in enumerate(cases):
        record = envelope("c", {"id": place, f"c{place}": case.given}, lsn=place)
        if case.meaning is not None:
            record = wrapped(record, field("id", "int32"), {**case.meaning, "field": f"c{place}"})
        values.append(record)
    rows = capture.debezium(records(spark, *values), schema=schema, keys=["id"], **options).collect()
    found = {row["id"]: row for row in rows}
    wrong = []
    for place, case in enumerate(cases):
        value, reason = found[place][f"c{place}"], found[place]["_reason"]
        if case.value == BAD:
            is_right = value is None and reason is not None and reason.startswith(f"the column c{place}: ")
        else:
            is_right = reason is None and same(value, case.value)
        if not is_right:
            wrong.append((case, value, reason))
    assert not wrong


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(found, float) and math.isnan(found)
    if isinstance(wanted, Decimal) and found is not None:
        return isinstance(found, Decimal) and bool(found == wanted)
    if isinstance(wanted, dt.datetime) and wanted.tzinfo is not None and found is not None:
        return bool(found.astimezone(_UTC) == wanted)
    if isinstance(found, bytearray):
        return bool(bytes(found) == wanted)
    return bool(found == wanted) and (found is None or type(found) is not bool or type(wanted) is bool)


def test_records_without_a_schema(spark: SparkSession) -> None:
    checked(spark, PLAIN)


def test_records_with_their_schema(spark: SparkSession) -> None:
    checked(spark, DECLARED)


def test_the_session_s_time_zone_does_not_count(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")  # where 2023-03-26 has no 02:30
    try:
        checked(spark, [case for case in PLAIN if case.kind.startswith(("TIMESTAMP", "DATE"))])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


OPTIONS: list[tuple[dict[str, Any], list[Case]]] = [
    (
        {"decimals": "string", "binaries": "hex", "timestamps": "milliseconds", "zone": "UTC"},
        [
            Case("DECIMAL(10,2)", "1234", Decimal("1234.00")),
            Case("DECIMAL(10,2)", "-0.5", Decimal("-0.50")),
            Case("DECIMAL(38,10)", "1E-10", Decimal("1E-10")),
            Case("BINARY", "00ff", b"\x00\xff"),
            Case("BINARY", "0", BAD),
            Case("TIMESTAMP_NTZ", 1700000000001, MILLIS_2023),
            Case("TIMESTAMP", "2023-11-14 22:13:20.001", MILLIS_2023.replace(tzinfo=_UTC)),
        ],
    ),
    (
        {"decimals": "double", "binaries": "latin1", "timestamps": {"c1": "nanoseconds"}, "zone": "Europe/Berlin"},
        [
            Case("DECIMAL(10,2)", 1e3, Decimal("1000.00")),
            Case("TIMESTAMP_NTZ", 1700000000001000000, MILLIS_2023),
            Case("TIMESTAMP_NTZ", 1700000000001000, MILLIS_2023),
            Case("TIMESTAMP", "2023-11-14T23:13:20.001", MILLIS_2023.replace(tzinfo=_UTC)),
            Case("BINARY", "\x00\xff", b"\x00\xff"),
            Case("BINARY", "\u0100", BAD),
        ],
    ),
]


@pytest.mark.parametrize(("options", "cases"), OPTIONS)
def test_options_say_how_values_are_written(spark: SparkSession, options: dict[str, Any], cases: list[Case]) -> None:
    checked(spark, cases, **options)


def test_a_connector_has_a_unit_of_its_own(spark: SparkSession) -> None:
    source: dict[str, Any] = {"ts_ms": 1}
    places: list[tuple[str, int, dict[str, Any]]] = [
        ("mysql", 1700000000001, {"file": "mysql-bin.000003", "pos": 4}),
        ("sqlserver", 1700000000001000000, {"commit_lsn": "00000027:00000ac0:0002"}),
        ("oracle", 1700000000001000, {"scn": "17"}),
    ]
    values = [
        {"op": "c", "after": {"id": 1, "at": number}, "source": {**source, "connector": connector, **position}}
        for connector, number, position in places
    ]
    rows = capture.debezium(records(spark, *values), schema="id INT, at TIMESTAMP_NTZ", keys=["id"]).collect()
    assert [row["at"] for row in rows] == [MILLIS_2023] * 3


def test_not_null_and_keys(spark: SparkSession) -> None:
    rows = capture.debezium(
        records(
            spark,
            envelope("c", {"id": 1, "name": None}),
            envelope("c", {"id": 2}),
            envelope("c", {"id": None, "name": "x"}),
            envelope("d", before={"name": "x"}),
            envelope("d", before={"id": 3, "name": None}),
        ),
        schema="id BIGINT, name STRING NOT NULL",
        keys=["ID"],
    ).collect()
    assert [row["_reason"] for row in rows] == [
        "the column name, which is NOT NULL, is null",
        "the column name, which is NOT NULL, is missing",
        "the column id, which is of the key, is null",
        "the column id, which is of the key, is missing",
        None,
    ]


def test_variants_keep_what_json_says(spark: SparkSession) -> None:
    rows = (
        capture.debezium(
            records(spark, envelope("c", {"id": 1, "v": '{"a": 1.50}'}), envelope("c", {"id": 2, "v": "{no json"})),
            schema="id INT, v VARIANT",
            keys=["id"],
        )
        .selectExpr("variant_get(v, '$.a', 'decimal(5,2)') a", "_reason")
        .collect()
    )
    assert [tuple(row) for row in rows] == [
        (Decimal("1.50"), None),
        (None, "the column v: '{no json' does not fit variant exactly"),
    ]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"a": 1, "a": 2}', False),
        ('[{"b": [NaN]}]', False),
        ("1" * 38, True),
        ("1" * 39, False),
        ("-0." + "1" * 38, True),
        ("0." + "1" * 39, False),
        ("1.5e300", True),
        ("1.00000000000000000000001e3", False),
        ("1e400", False),
    ],
)
def test_what_a_variant_cannot_hold_is_a_dead_letter(spark: SparkSession, text: str, fits: bool) -> None:
    frame = capture.debezium(
        records(spark, envelope("c", {"id": 1, "v": text})), schema="id INT, v VARIANT", keys=["id"]
    )
    ((kind, reason),) = frame.selectExpr("schema_of_variant(v)", "_reason").collect()
    assert (reason is None) is fits
    assert not fits or kind.startswith("DOUBLE" if "e" in text else "DECIMAL")


@pytest.mark.parametrize(
    ("schema", "options", "error", "message"),
    [
        ("id INT, t INTERVAL DAY TO SECOND", {}, SchemaMismatchError, "which a Delta table cannot hold"),
        ("id INT, m MAP<ARRAY<INT>,INT>", {}, ConfigurationError, "whose keys cannot be read"),
        ("id INT", {"keys": ["no"]}, SchemaMismatchError, "lacks the key column 'no'"),
        ("id INT", {"keys": "id"}, ConfigurationError, "list of column names"),
        ("id INT", {"keys": []}, ConfigurationError, "keys are missing"),
        ("id INT", {"decimals": "strings"}, ConfigurationError, "decimals='strings'"),
        ("id INT", {"timestamps": {"id": "hours"}}, ConfigurationError, "timestamps='hours'"),
        ("id INT", {"order": "lsn"}, ConfigurationError, "order='lsn'"),
        ("id INT", {"epoch": 256}, ConfigurationError, "epoch=256"),
        ("id INT", {"value": "payload"}, SchemaMismatchError, "lacks the column 'payload'"),
        ("id INT", {"value": "offset"}, SchemaMismatchError, "not bytes, text or a struct"),
        (7, {}, ConfigurationError, "schema cannot be 7"),
    ],
)
def test_wrong_arguments_are_refused(
    spark: SparkSession, schema: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        capture.debezium(records(spark), schema=schema, **{"keys": ["id"], **options})
