"""What the real Debezium sent for a real PostgreSQL, through `capture` into tables: they hold what the database held.

`record.py` says what was recorded, and how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.capture.record import RECORDED, recorded
from tests.streaming.support import Input, drain
from tidelog.log import Table
from tidelog.streaming import capture
from tidelog.streaming.capture.debezium import Debezium

pytestmark = pytest.mark.spark

TYPES = (
    "id INT, small SMALLINT, whole INT, big BIGINT, yes BOOLEAN, single FLOAT, double DOUBLE, n5_0 DECIMAL(5,0), "
    "n9_2 DECIMAL(9,2), n18_4 DECIMAL(18,4), n38_10 DECIMAL(38,10), price DECIMAL(19,2), domain_value DECIMAL(9,2), "
    "line STRING, words STRING, anycase STRING, day DATE, ts0 TIMESTAMP_NTZ, ts1 TIMESTAMP_NTZ, ts3 TIMESTAMP_NTZ, "
    "ts4 TIMESTAMP_NTZ, ts6 TIMESTAMP_NTZ, ts TIMESTAMP_NTZ, tz0 TIMESTAMP, tz3 TIMESTAMP, tz6 TIMESTAMP, "
    "tz TIMESTAMP, plain STRING, indexed STRING, markup STRING, state STRING, raw BINARY, id4 STRING, ints ARRAY<INT>, "
    "bigs ARRAY<BIGINT>, floats ARRAY<DOUBLE>, texts ARRAY<STRING>, decimals ARRAY<DECIMAL(9,2)>, days ARRAY<DATE>, "
    "flags ARRAY<BOOLEAN>, ids ARRAY<STRING>, address STRING, path STRING"
)
DOCUMENTS = (
    "id STRING, title STRING, revision INT, body STRING, data BINARY, doc STRING, tags ARRAY<STRING>, "
    "numbers ARRAY<INT>, bigs ARRAY<BIGINT>"
)
SCHEMAS = {
    "types": TYPES,
    "documents": DOCUMENTS,
    "full_identity": "id INT, title STRING, body STRING",
    "keys": "a INT, b STRING, note STRING",
    "truncated": "id INT, note STRING",
    "evolving": "id INT, amount BIGINT, ratio DOUBLE, price DECIMAL(12,2), label STRING, note STRING",
    "accounts": "id BIGINT, balance DECIMAL(12,2)",
    "transfers": "id BIGINT, source BIGINT, target BIGINT, amount DECIMAL(12,2)",
    "rows": "id INT, note STRING",
    "edges": "id INT, what STRING, n DOUBLE, single FLOAT, double DOUBLE, tz STRING",
    "moved_documents": "id INT, body STRING",
}
# Without a schema in the records, these are milliseconds, and the others microseconds.
MILLISECONDS = dict.fromkeys(("ts0", "ts1", "ts3"), "milliseconds")


_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def follow(
    spark: SparkSession,
    folder: Path,
    name: str,
    table: str,
    *,
    batches: int,
    copies: int = 1,
    headers: bool = False,
    declared: bool = True,
) -> Table:
    """Apply a recorded topic of a table, in so many batches, so many times one after the other.

    Unless the columns are `declared`, they are those of the records, and can be widened.
    """
    records = [each for each in recorded(name) if each["topic"] == f"{name}.public.{table}"] * copies
    source = Input(folder / "topic")
    for part in np.array_split(np.arange(len(records)), batches):
        chosen = [records[number] for number in part]
        values = [None if each["value"] is None else each["value"].encode() for each in chosen]
        offsets = [each["offset"] for each in chosen]
        columns = {"value": pa.array(values, pa.binary()), "offset": pa.array(offsets, pa.int64())}
        if headers:
            of = [[{"key": key, "value": value.encode()} for key, value in each["headers"]] for each in chosen]
            columns["headers"] = pa.array(of, pa.list_(_HEADER))
        source.put_table(pa.table(columns))
    keys = contents(name)[table]["key"]
    own: dict[str, Any] = {"schema_evolution": True, "properties": {"delta.enableTypeWidening": "true"}}
    letters = str(folder / "dead")
    sink = capture.sink(str(folder / "table"), keys=keys, dead_letters=letters, **({} if declared else own))
    options: dict[str, Any] = {}
    if name.endswith("-plain"):
        options = {"decimals": name.removesuffix("-plain")}
        if table == "types":
            options["timestamps"] = MILLISECONDS

    def apply(frame: DataFrame, number: int) -> None:
        schema = SCHEMAS[table] if declared else None
        sink(capture.debezium(frame, schema=schema, keys=keys, **options), number)

    schema = "value binary, offset long" + (", headers array<struct<key string, value binary>>" if headers else "")
    drain(source.stream(spark, schema=schema), apply, folder / "cp")
    return Table.open(str(folder / "table"))


def contents(name: str) -> dict[str, Any]:
    """What the database held after a recording."""
    file = "hand_over" if name == "hand-over" else "types"
    found: dict[str, Any] = json.loads((RECORDED / f"{file}.json").read_text())
    return found


def wanted(name: str, table: str) -> list[dict[str, Any]]:
    """The rows of the database, as values of the columns that the copy has."""
    held = contents(name)[table]
    columns = re.findall(r"(\w+) [A-Z]", SCHEMAS[table])
    kinds = {each["name"]: each["type"] for each in held["columns"]}
    order = [each["name"] for each in held["columns"]]
    rows = [dict(zip(order, row, strict=True)) for row in held["rows"]]
    return [{column: value(kinds[column], row[column]) for column in columns} for row in rows]


def value(kind: str, text: Any) -> Any:
    """A value of the database, from PostgreSQL's own text."""
    if text is None:
        return None
    if kind.endswith("[]"):
        return [value(kind.removesuffix("[]"), each) for each in text]
    plain = re.sub(r"\([\d,]+\)", "", kind)
    return PARSERS.get(plain, str)(text)


PARSERS: dict[str, Callable[[str], Any]] = {
    "smallint": int,
    "integer": int,
    "bigint": int,
    "boolean": lambda text: text in {"true", "t"},
    "real": lambda text: float(np.float32(text)),
    "double precision": float,
    "numeric": Decimal,
    "cents": Decimal,
    "money": lambda text: Decimal(re.sub(r"[$,]", "", text)),
    "date": date.fromisoformat,
    "timestamp without time zone": datetime.fromisoformat,
    "timestamp with time zone": datetime.fromisoformat,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def require_equal(name: str, table: str, copy: Table) -> None:
    """Every row, column for column; NaN is equal to itself, and -0.0 is not 0.0."""
    expected = wanted(name, table)
    keys = contents(name)[table]["key"]
    columns = list(expected[0])
    held = copy.scan(columns=columns).to_arrow().to_pylist()
    by_key = {tuple(row[key] for key in keys): row for row in held}
    assert len(by_key) == len(held)
    assert by_key.keys() == {tuple(row[key] for key in keys) for row in expected}
    for row in expected:
        found = by_key[tuple(row[key] for key in keys)]
        for column in columns:
            assert shown(found[column]) == shown(row[column]), (table, column, row[keys[0]])


def shown(found: Any) -> str:
    """A value as text that differs for different values; times of one moment are the same in any zone."""
    if isinstance(found, datetime) and found.tzinfo is not None:
        return repr(
            found.timestamp() if found.microsecond == 0 else (found - datetime(1970, 1, 1, tzinfo=found.tzinfo))
        )
    if isinstance(found, list):
        return repr([shown(each) for each in found])
    return repr(found)


def dead(folder: Path) -> list[str]:
    return [row["_reason"] for row in Table.open(str(folder / "dead")).scan(columns=["_reason"]).to_arrow().to_pylist()]


@pytest.mark.parametrize(
    "name",
    [
        "precise",
        pytest.param("precise-plain", marks=pytest.mark.full),
        pytest.param("string", marks=pytest.mark.full),
        pytest.param("string-plain", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("table", ["types", pytest.param("documents", marks=pytest.mark.full)])
def test_every_type_and_every_value_that_was_left_out(
    spark: SparkSession, tmp_path: Path, name: str, table: str
) -> None:
    copy = follow(spark, tmp_path, name, table, batches=1)
    require_equal(name, table, copy)
    assert dead(tmp_path) == []


@pytest.mark.parametrize("batches", [1, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("precise", "keys"),
        ("hand-over", "rows"),
        ("precise-plain", "truncated"),
        pytest.param("precise", "evolving", marks=pytest.mark.full),
        pytest.param("double", "accounts", marks=pytest.mark.full),
        pytest.param("string-plain", "transfers", marks=pytest.mark.full),
        pytest.param("string", "full_identity", marks=pytest.mark.full),
        pytest.param("precise", "documents", marks=pytest.mark.full),
    ],
)
def test_keys_transactions_and_the_hand_over_in_any_split(
    spark: SparkSession, tmp_path: Path, name: str, table: str, batches: int
) -> None:
    copy = follow(spark, tmp_path, name, table, batches=batches)
    require_equal(name, table, copy)
    assert dead(tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("batches", [1, 2])
def test_columns_that_the_database_widened(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    """An integer, a real and a numeric that became wider ones between two records."""
    copy = follow(spark, tmp_path, "precise", "evolving", batches=batches, declared=False)
    require_equal("precise", "evolving", copy)
    assert dead(tmp_path) == []
    types = {field.name: field.type for field in copy.schema}
    assert (types["amount"], types["ratio"], types["price"]) == (pa.int64(), pa.float64(), pa.decimal128(12, 2))
    fields = json.loads(copy.head.metadata.schema_string)["fields"]
    assert sum("delta.typeChanges" in field["metadata"] for field in fields) == (3 if batches > 1 else 0)


@pytest.mark.full
def test_a_topic_that_is_read_twice_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    copy = follow(spark, tmp_path, "precise", "keys", batches=2, copies=2)
    require_equal("precise", "keys", copy)


@pytest.mark.full
@pytest.mark.parametrize("name", ["string", pytest.param("double-plain", marks=pytest.mark.full)])
def test_numbers_that_are_not_finite(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Numbers as doubles, and a time as text, as no other type has them."""
    copy = follow(spark, tmp_path, name, "edges", batches=1)
    held = {row["id"]: row for row in copy.scan().to_arrow().to_pylist()}
    for row in contents(name)["edges"]["rows"]:
        number, *_, n, single, double = row
        found = held[int(number)]
        assert shown(found["single"]) == shown(value("real", single))
        assert shown(found["double"]) == shown(value("double precision", double))
        assert shown(found["n"]) == shown(value("double precision", n))
    assert [held[number]["tz"] for number in (1, 2)] == ["infinity", "-infinity"]
    assert dead(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "headers", "copies"),
    [
        ("precise", False, 1),
        pytest.param("precise", True, 2, marks=pytest.mark.full),
        pytest.param("string-plain", True, 1, marks=pytest.mark.full),
    ],
)
def test_a_left_out_value_under_a_new_key_is_that_of_the_old_key(
    spark: SparkSession, tmp_path: Path, name: str, headers: bool, copies: int
) -> None:
    """Debezium sends it neither with the old key nor with the new one."""
    copy = follow(spark, tmp_path, name, "moved_documents", batches=copies, copies=copies, headers=headers)
    require_equal(name, "moved_documents", copy)
    assert dead(tmp_path) == []


@pytest.mark.full
def test_a_left_out_value_without_its_deletion_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    """The row with the old key is gone with the batch before."""
    copy = follow(spark, tmp_path, "precise", "moved_documents", batches=5, headers=True)
    assert copy.scan().to_arrow()["id"].to_pylist() == [2]
    (reason,) = dead(tmp_path)
    assert "left out the value of body" in reason


def test_rows_of_one_transaction_share_its_id() -> None:
    """Two transactions changed both tables, and each is known by one id in both."""
    found: dict[str, set[str | None]] = {}
    for record in recorded("precise-plain"):
        table = record["topic"].removeprefix("precise-plain.public.")
        body = json.loads(record["value"]) if record["value"] and table in ("accounts", "transfers") else None
        if body is not None and body["op"] != "r":
            changes = Debezium(("id",)).changes(body, None, record["offset"])
            found.setdefault(table, set()).update(change.transaction for change in changes)
    assert len(found["accounts"] & found["transfers"]) == len(found["accounts"]) == 2
