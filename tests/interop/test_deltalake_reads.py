"""The library deltalake reads every row that tidelog writes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.interop.deltalake_rows import (
    FULL,
    PARTITION_VALUES,
    PLAIN,
    UTC,
    Row,
    check_same,
    full_rows,
    sql,
)
from tests.log.support import numbers, read_numbers, stage_compaction
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.schema import TIMESTAMP, table_schema

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("properties", [{}, PLAIN, {"delta.enableChangeDataFeed": True}], ids=["new", "plain", "cdf"])
def test_every_primitive_type(path: str, properties: dict[str, object]) -> None:
    table = Table.create(path, FULL, properties=properties)
    data = pa.Table.from_pylist(full_rows(), FULL)
    table.insert(data)
    check_same(table, data.to_pylist())
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all())
    assert [str(kind) for kind in table_schema(found.schema).types] == [str(kind) for kind in FULL.types]


def test_added_timestamps_without_a_zone_and_comments(path: str) -> None:
    table = Table.create(path, pa.schema([pa.field("n", pa.int64(), metadata={"comment": "a number"})]))
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000)  # noqa: DTZ001 - without a zone
    kinds = {
        "ns": pa.timestamp("ns"),
        "ms": pa.large_list(pa.timestamp("ms")),
        "coded": pa.dictionary(pa.int32(), pa.timestamp("s")),
    }
    new = [pa.field(name, kind, metadata={"comment": f"of {name}"}) for name, kind in kinds.items()]
    table.add_columns(new, allow_protocol_upgrade=True)
    table.insert([{"n": 1, "ns": moment, "ms": [moment, None], "coded": moment}])
    check_same(table, [{"n": 1, "ns": moment, "ms": [moment, None], "coded": moment}])
    fields = DeltaTable(path).schema().fields
    assert [field.metadata for field in fields] == [
        {"comment": text} for text in ("a number", *map("of {}".format, kinds))
    ]


NESTED = table_schema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("st", pa.struct([("x", pa.int64()), ("in", pa.struct([("d", pa.date32()), ("s", pa.string())]))])),
            ("l", pa.list_(pa.struct([("y", pa.float64())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ]
    )
)
NESTED_ROWS: list[Row] = [
    {
        "id": 1,
        "st": {"x": 1, "in": {"d": dt.date(2020, 1, 1), "s": None}},
        "l": [{"y": 0.5}, None, {"y": None}],
        "m": [("a", [1, None]), ("b", None), ("c", [])],
    },
    {"id": 2, "st": {"x": None, "in": None}, "l": [], "m": []},
    {"id": 3, "st": None, "l": None, "m": None},
]


def test_nested_types(path: str) -> None:
    table = Table.create(path, NESTED)
    table.insert(pa.Table.from_pylist(NESTED_ROWS, NESTED))
    check_same(table, NESTED_ROWS)
    assert [row["id"] for row in sql(table, "SELECT id FROM t WHERE st['x'] = 1")] == [1]


@pytest.mark.parametrize("kind", list(PARTITION_VALUES), ids=str)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_partition_values_of_every_type(path: str, kind: pa.DataType, checkpointed: bool) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    table = Table.create(path, schema, partition_by=["p"])
    rows = [{"n": number, "p": value} for number, value in enumerate([*PARTITION_VALUES[kind], None])]
    table.insert(rows)
    if checkpointed:
        keep_only_the_checkpoint(table)
    check_same(table, pa.Table.from_pylist(rows, schema).to_pylist())
    found = sql(table, "SELECT n FROM t WHERE p IS NULL")
    assert found == [{"n": rows[-1]["n"]}]


def test_several_partition_columns_with_nulls(path: str) -> None:
    schema = pa.schema([("p q", pa.string()), ("n", pa.int64()), ("d", pa.date32())])
    table = Table.create(path, schema, partition_by=["d", "p q"])
    days = [dt.date(2020, 1, 1), None]
    rows = [{"p q": text, "n": number, "d": day} for number, text in enumerate(["x/y z", None]) for day in days]
    table.insert(rows)
    check_same(table, rows)


def keep_only_the_checkpoint(table: Table) -> None:
    """Delete the commits, so that a reader must use the checkpoint."""
    table.checkpoint()
    for version in range(table.version + 1):
        table.store.delete(filenames.checksum_path(version))
        if version < table.version:
            table.store.delete(filenames.commit_path(version))


@pytest.mark.parametrize("properties", [{}, PLAIN], ids=["new", "plain"])
@pytest.mark.parametrize("pointer", [True, False])
def test_a_checkpoint_alone(path: str, properties: dict[str, object], pointer: bool) -> None:
    table = Table.create(path, FULL, properties=properties)
    data = pa.Table.from_pylist(full_rows(), FULL)
    for _ in range(3):
        table.insert(data, idempotency_key=("app", table.version))
    stage_compaction(table).commit()
    table.insert(data)
    keep_only_the_checkpoint(table)
    if not pointer:
        table.store.delete(filenames.LAST_CHECKPOINT)
    check_same(table, data.to_pylist() * 4)
    table.insert(data)
    check_same(table, data.to_pylist() * 5)
    delta = DeltaTable(path)
    assert delta.version() == table.version
    assert delta.transaction_version("app") == 2
    assert str(delta.metadata().id) == table.id


def test_every_version_across_a_compaction(path: str) -> None:
    table = Table.create(path, pa.schema([("n", pa.int64())]))
    for number in range(3):
        table.insert(numbers([number]))
    stage_compaction(table).commit()
    table.insert(numbers([3]))
    for version in range(table.version + 1):
        assert table.store.read(filenames.checksum_path(version))
        theirs = sorted(row["n"] for row in sql(table, version=version))
        assert theirs == read_numbers(table.at(version=version))
    assert len(DeltaTable(path).file_uris()) == table.at().num_files == 2


def test_history_shows_the_operations(path: str) -> None:
    table = Table.create(path, pa.schema([("n", pa.int64())]))
    table.insert(numbers([1, 2]))
    table.insert(numbers([3]))
    stage_compaction(table).commit()
    records = DeltaTable(path).history()
    assert [record["operation"] for record in records] == ["OPTIMIZE", "WRITE", "WRITE", "CREATE TABLE"]


NAMES = ["a b", "ä", "x.y", "UPPER", "se;lect", "1", "a-b", "`", "col=1"]


def test_column_names(path: str) -> None:
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    table = Table.create(path, schema, partition_by=["a b", "col=1"])
    rows: list[Row] = [{name: number for number, name in enumerate(NAMES)}, dict.fromkeys(NAMES)]
    table.insert(rows)
    check_same(table, rows)


# --- data skipping with our statistics -------------------------------------------------------------------------------

LONG = "x" * 40
SKIPPING: list[tuple[Any, list[Any], Callable[[Any], str]]] = [
    (pa.string(), ["a", LONG, LONG + "\U0010ffff", "\U0010ffff" * 40, "é" * 33], lambda value: f"'{value}'"),
    (pa.int64(), [-(2**63) + 1, -1, 0, 2**63 - 1], str),
    (pa.float64(), [-1.5, 0.0, 1e300], repr),
    (
        pa.decimal128(38, 2),
        [Decimal("-1.05"), Decimal("123456789012345678901234567890123456.78")],
        lambda v: f"CAST('{v}' AS DECIMAL(38, 2))",
    ),
    (pa.date32(), [dt.date(1969, 12, 31), dt.date(2020, 2, 29)], lambda value: f"DATE '{value}'"),
    (
        TIMESTAMP,
        [dt.datetime(2020, 1, 1, 0, 0, 0, micros, UTC) for micros in (0, 1, 999, 1000, 999_999)]
        + [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
        lambda value: f"TIMESTAMP '{value.isoformat()}'",
    ),
]


@pytest.mark.parametrize(("kind", "values", "literal"), SKIPPING, ids=[str(kind) for kind, _, _ in SKIPPING])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_file_with_a_match_is_never_skipped(
    path: str, kind: pa.DataType, values: list[Any], literal: Callable[[Any], str], checkpointed: bool
) -> None:
    """Each value has its own file, so a slightly wrong bound would lose the row in the other engine."""
    table = Table.create(path, pa.schema([("c", kind)]))
    for value in values:
        table.insert([{"c": value}])
    if checkpointed:
        keep_only_the_checkpoint(table)
    for value in values:
        for symbol, holds in (("=", "__eq__"), (">=", "__ge__"), ("<=", "__le__")):
            expected = sorted(other for other in values if getattr(other, holds)(value))
            found = sql(table, f"SELECT c FROM t WHERE c {symbol} {literal(value)}")
            assert sorted(row["c"] for row in found) == expected, (symbol, value)
