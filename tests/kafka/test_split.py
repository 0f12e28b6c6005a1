"""Valid and poisoned records: each gets an event or an error, for any payload."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DecimalType, StructType

from examples.kafka.events import POISONS, REQUIRED, SCHEMA, event, payload
from examples.kafka.split import dead_letter_rows, event_rows, validated

pytestmark = pytest.mark.spark

EVENT = event(1, 10)


def records(spark: SparkSession, payloads: Sequence[bytes | None]) -> DataFrame:
    """The records as Spark's Kafka source returns them."""
    rows = [(b"k", None if p is None else bytearray(p), "t", 3, number) for number, p in enumerate(payloads)]
    frame = spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset long")
    return frame.selectExpr("*", "timestamp'2026-01-01' as timestamp", "0 as timestampType")


def checked(spark: SparkSession, payloads: Sequence[bytes | None]) -> DataFrame:
    return validated(records(spark, payloads), from_arrow_schema(SCHEMA), REQUIRED)


def errors(spark: SparkSession, *payloads: bytes | None) -> list[str | None]:
    rows = checked(spark, payloads).orderBy("offset").collect()
    assert all((row["event"] is None) == (row["error"] is not None) for row in rows)
    return [row["error"] for row in rows]


def changed(old: str, new: str) -> bytes:
    sent = payload(EVENT)
    assert old.encode() in sent
    return sent.replace(old.encode(), new.encode())


@pytest.mark.full
def test_each_kind_of_poison_gets_its_error(plain_spark: SparkSession) -> None:
    found = errors(plain_spark, *(poison.payload(EVENT) for poison in POISONS.values()))
    assert dict(zip(POISONS, found, strict=True)) == {kind: poison.error for kind, poison in POISONS.items()}


def test_a_valid_event_is_a_row_of_the_table_and_not_a_dead_letter(plain_spark: SparkSession) -> None:
    both = checked(plain_spark, [payload(EVENT), b" \n" + payload(event(1, 11)) + b"\t\n", None])
    rows: list[Any] = event_rows(both).orderBy("id").toArrow().to_pylist()
    assert [row["id"] for row in rows] == ["p1-000010", "p1-000011"]
    assert rows[0] == {**EVENT, "at": datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)}
    assert rows[1]["note"] is None
    (letter,) = dead_letter_rows(both).toArrow().to_pylist()
    assert letter == {
        "topic": "t",
        "partition": 3,
        "offset": 2,
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "key": b"k",
        "payload": None,
        "error": "the payload is null",
    }


def test_anything_after_the_event_is_an_error(plain_spark: SparkSession) -> None:
    """`from_json` alone stops after the first value and drops the rest."""
    more = [" x", "] x", ", 1", ',"2"] x', "\x00", payload(EVENT).decode()]
    found = errors(plain_spark, *(payload(EVENT) + each.encode() for each in [*more, "\r\n"]))
    assert found == ["the payload is not one JSON value"] * len(more) + [None]


def test_values_that_from_json_accepts_wrongly_are_errors(plain_spark: SparkSession) -> None:
    assert errors(
        plain_spark,
        changed('"quantity": 2', '"quantity": NaN'),
        changed('"amount": 2.5', '"amount": "NaN"'),
        changed('"at": "2026-01-01T00:00:10+00:00"', '"at": 1767225610'),
        changed('"account": "account-10"', '"account": {"number": [10]}'),
        changed("account-10", "\\ud800"),
        b'\xef\xbb\xbf{"id": "after a byte order mark"}',
        b"{'id': 'single quotes'}",
        b"null",
        b"5",
    ) == [
        "the payload is not one JSON value",
        "amount is not double: NaN",
        "at is not timestamp: 1767225610",
        'account is not string: {"number":[10]}',
        "the payload is not one JSON value",
        "the payload is not one JSON value",
        "the payload is not one JSON value",
        "the payload is not a JSON object",
        "the payload is not a JSON object",
    ]


def test_every_invalid_field_is_named_and_a_long_value_is_cut(plain_spark: SparkSession) -> None:
    sent = payload({"id": "a", "quantity": "x" * 200, "amount": 1, "at": None, "note": "n", "Account": "b"})
    assert errors(plain_spark, sent) == [f"account is missing; quantity is not integer: {'x' * 50}; at is missing"]


def test_numbers_at_their_limits(plain_spark: SparkSession) -> None:
    assert errors(
        plain_spark,
        changed('"quantity": 2', '"quantity": 2147483647'),
        changed('"quantity": 2', '"quantity": 2147483648'),
        changed('"quantity": 2', '"quantity": -2147483649'),
        changed('"amount": 2.5', '"amount": 1.7976931348623157e308'),
        changed('"amount": 2.5', '"amount": -1e309'),
    ) == [
        None,
        "quantity is not integer: 2147483648",
        "quantity is not integer: -2147483649",
        None,
        "amount is not double: -Infinity",
    ]


def test_a_schema_with_an_unsupported_type_is_refused_at_once(plain_spark: SparkSession) -> None:
    with pytest.raises(TypeError, match=r"cannot validate price: its type decimal\(9,2\)"):
        validated(records(plain_spark, [b""]), StructType().add("price", DecimalType(9, 2)), ())
