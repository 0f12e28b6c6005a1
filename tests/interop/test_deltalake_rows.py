"""The library deltalake reads what tidelog writes, row for row, and the other way round."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake

from tests.log.strategies import PRIMITIVES
from tests.log.support import live_files, numbers, read_numbers, stage_compaction
from tidelog.log import OperationClass, Table
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.format import filenames
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ, table_schema

pytestmark = pytest.mark.interop

UTC = dt.UTC
# What deltalake can write to: it refuses tables with in-commit timestamps.
PLAIN = {"delta.enableDeletionVectors": False, "delta.enableInCommitTimestamps": False}

Row = dict[str, Any]


def sql(table: Table, query: str = "SELECT * FROM t", *, version: int | None = None) -> list[Row]:
    """What deltalake's engine answers; its `to_pyarrow_table` refuses tables that have deletion vectors on."""
    found = QueryBuilder().register("t", DeltaTable(table.path, version=version)).execute(query)
    return pa.table(found.read_all()).to_pylist()  # type: ignore[no-any-return]


def key(row: Row) -> str:
    return repr(sorted(row.items()))


def ours(table: Table) -> list[Row]:
    return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


def check_same(table: Table, expected: Sequence[Row] | None = None) -> None:
    """Both read the same rows, and those are `expected`."""
    theirs = sorted(map(key, sql(table)))
    assert theirs == sorted(map(key, ours(table)))
    if expected is not None:
        assert theirs == sorted(map(key, expected))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


# --- deltalake reads ours --------------------------------------------------------------------------------------------

FULL = pa.schema([(f"c{number}", kind) for number, kind in enumerate(PRIMITIVES)])
EXTREMES: dict[Any, list[Any]] = {
    pa.string(): ["", "é\U0001f600\n'\"", "x" * 100],
    pa.binary(): [b"", b"\x00\xff", b"abc"],
    pa.bool_(): [True, False, True],
    pa.date32(): [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    pa.int8(): [-128, 127, 0],
    pa.int16(): [-(2**15), 2**15 - 1, 0],
    pa.int32(): [-(2**31), 2**31 - 1, 0],
    pa.int64(): [-(2**63), 2**63 - 1, 0],
    pa.float32(): [math.nan, -math.inf, -0.0],
    pa.float64(): [math.nan, math.inf, 1e-300],
    pa.decimal128(9, 2): [Decimal("-9999999.99"), Decimal("9999999.99"), Decimal("0.00")],
    pa.decimal128(18, 0): [Decimal(-(10**18) + 1), Decimal(10**18 - 1), Decimal(0)],
    TIMESTAMP: [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
    TIMESTAMP_NTZ: [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(2020, 1, 1)],  # noqa: DTZ001
}


def full_rows() -> list[Row]:
    rows = [{field.name: EXTREMES[field.type][number] for field in FULL} for number in range(3)]
    return [*rows, dict.fromkeys(FULL.names)]


@pytest.mark.parametrize("properties", [{}, PLAIN, {"delta.enableChangeDataFeed": True}], ids=["new", "plain", "cdf"])
def test_every_primitive_type(path: str, properties: dict[str, object]) -> None:
    table = Table.create(path, FULL, properties=properties)
    data = pa.Table.from_pylist(full_rows(), FULL)
    table.insert(data)
    check_same(table, data.to_pylist())
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all())
    assert [str(kind) for kind in table_schema(found.schema).types] == [str(kind) for kind in FULL.types]


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


PARTITION_VALUES: dict[Any, list[Any]] = {
    pa.string(): ["a/b", "a=b", "%2F", "50%", " lead", "é\U0001f600", "a:b", "..", "a\nb", "'", '"', "null"],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
    pa.int8(): [-128, 127],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.float64(): [0.1, -1e300, 5e-324],
    pa.float32(): [0.5, -1.5],
    pa.decimal128(9, 2): [Decimal("-0.01"), Decimal("9999999.99"), Decimal("1.50")],
    TIMESTAMP: [dt.datetime(2020, 1, 1, 12, 30, 0, 123_456, UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
    TIMESTAMP_NTZ: [dt.datetime(2020, 1, 1, 12, 30, 0, 123_456), dt.datetime(1969, 12, 31)],  # noqa: DTZ001
}


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
    """So that a reader that does not understand the checkpoint has nothing else to read."""
    table.checkpoint()
    for version in range(table.version + 1):
        table.store.delete(filenames.checksum_path(version))
        if version < table.version:
            table.store.delete(filenames.commit_path(version))


@pytest.mark.parametrize("properties", [{}, PLAIN], ids=["new", "plain"])
@pytest.mark.parametrize("pointer", [True, False])
def test_a_checkpoint(path: str, properties: dict[str, object], pointer: bool) -> None:
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


def test_every_version_with_its_checksum_and_a_compaction_between(path: str) -> None:
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


def test_names_of_columns(path: str) -> None:
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    table = Table.create(path, schema, partition_by=["a b", "col=1"])
    rows: list[Row] = [{name: number for number, name in enumerate(NAMES)}, dict.fromkeys(NAMES)]
    table.insert(rows)
    check_same(table, rows)


# --- skipping by our statistics --------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(("kind", "values", "spell"), SKIPPING, ids=[str(kind) for kind, _, _ in SKIPPING])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_file_is_never_skipped_that_holds_a_match(
    path: str, kind: pa.DataType, values: list[Any], spell: Callable[[Any], str], checkpointed: bool
) -> None:
    """Each value alone in a file: a bound that is wrong by a hair loses the row in another engine."""
    table = Table.create(path, pa.schema([("c", kind)]))
    for value in values:
        table.insert([{"c": value}])
    if checkpointed:
        keep_only_the_checkpoint(table)
    for value in values:
        for symbol, holds in (("=", "__eq__"), (">=", "__ge__"), ("<=", "__le__")):
            expected = sorted(other for other in values if getattr(other, holds)(value))
            found = sql(table, f"SELECT c FROM t WHERE c {symbol} {spell(value)}")
            assert sorted(row["c"] for row in found) == expected, (symbol, value)


# --- deltalake writes to ours ----------------------------------------------------------------------------------------

EVENTS = pa.schema([("n", pa.int64()), ("p", pa.string()), ("t", TIMESTAMP)])


def events(*numbers_: int) -> pa.Table:
    moment = dt.datetime(2020, 1, 1, tzinfo=UTC)
    rows = [{"n": number, "p": ["a/b", None][number % 2], "t": moment} for number in numbers_]
    return pa.Table.from_pylist(rows, EVENTS)


def test_deltalake_appends_to_our_table_and_we_to_it_again(path: str) -> None:
    table = Table.create(path, EVENTS, partition_by=["p"], properties=PLAIN)
    table.insert(events(1, 2))
    write_deltalake(path, events(3, 4), mode="append")
    assert read_numbers(table.refresh()) == [1, 2, 3, 4]
    table.insert(events(5))
    write_deltalake(path, events(6), mode="append")
    check_same(table.refresh(), events(1, 2, 3, 4, 5, 6).to_pylist())
    assert table.version == 4
    assert [record.operation_class for record in table.history(4)] == [OperationClass.INSERT] * 4
    assert sorted(table.changes(mode="append", after=1).to_arrow()["n"].to_pylist()) == [3, 4, 5, 6]
    assert table.at().num_rows == 6


def test_an_insert_is_rebased_over_an_append_by_deltalake(path: str) -> None:
    table = Table.create(path, EVENTS, properties=PLAIN)
    transaction = table.begin().insert(events(1))
    write_deltalake(path, events(2), mode="append")
    outcome = transaction.commit()
    assert getattr(outcome, "rebased_over", None) == (1,)
    check_same(table, events(1, 2).to_pylist())


def test_a_stream_of_deltalakes_is_known_to_us_and_ours_to_it(path: str) -> None:
    table = Table.create(path, EVENTS, properties=PLAIN)
    properties = CommitProperties(app_transactions=[Transaction("theirs", 7)])
    write_deltalake(path, events(1), mode="append", commit_properties=properties)
    table.refresh().insert(events(2), idempotency_key=("ours", 3))
    assert table.transactions == {"theirs": 7, "ours": 3}
    assert DeltaTable(path).transaction_version("ours") == 3
    assert table.insert(events(3), idempotency_key=("theirs", 7)).metrics["numOutputRows"] == 0


def test_a_delete_by_deltalake_is_seen_and_is_no_append(path: str) -> None:
    table = Table.create(path, EVENTS, properties=PLAIN)
    table.insert(events(1, 2, 3))
    DeltaTable(path).delete("n = 2")
    assert read_numbers(table.refresh()) == [1, 3]
    # It rewrote every file of the table, which an overwrite would have done as well.
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    with pytest.raises(NotAppendOnlyError):
        table.changes(mode="append", after=1)
    assert read_numbers(table.at(version=1)) == [1, 2, 3]


def test_a_compaction_by_deltalake_changes_no_row(path: str) -> None:
    table = Table.create(path, EVENTS, partition_by=["p"], properties=PLAIN)
    for number in range(4):
        table.insert(events(number))
    newest = table.time_version
    DeltaTable(path).optimize.compact()
    table.refresh()
    assert read_numbers(table) == [0, 1, 2, 3]
    assert table.version == 5
    assert table.at().num_files == 2
    assert table.time_version == newest
    assert table.history(1)[0].operation_class == OperationClass.MAJOR
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("properties", [{}, PLAIN], ids=["new", "plain"])
def test_a_checkpoint_by_deltalake_is_read(path: str, properties: dict[str, object]) -> None:
    table = Table.create(path, EVENTS, partition_by=["p"], properties=properties)
    table.insert(events(1, 2), idempotency_key=("app", 4))
    table.insert(events(3))
    stage_compaction(table, [file for file in live_files(table) if file.partition_values["p"] is None]).commit()
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        table.store.delete(filenames.commit_path(version))
    for version in range(4):
        table.store.delete(filenames.checksum_path(version))
    again = Table.open(path)
    check_same(again, events(1, 2, 3).to_pylist())
    assert again.transactions == {"app": 4}
    again.insert(events(4))
    check_same(Table.open(path), events(1, 2, 3, 4).to_pylist())


# --- tables of deltalake's -------------------------------------------------------------------------------------------


def test_a_table_that_deltalake_made_is_read_written_and_compacted_as_it_is(path: str) -> None:
    write_deltalake(path, events(1, 2), partition_by=["p"])
    write_deltalake(path, events(3, 4), mode="append")
    before = DeltaTable(path).protocol()
    table = Table.open(path)
    assert table.partition_by == ("p",)
    assert read_numbers(table) == [1, 2, 3, 4]
    table.insert(events(5))
    by_value: dict[str | None, list[Any]] = {}
    for file in live_files(table):
        by_value.setdefault(file.partition_values["p"], []).append(file)
    stage_compaction(table, *by_value.values()).commit()
    check_same(table, events(1, 2, 3, 4, 5).to_pylist())
    assert table.at().num_files == 2
    after = DeltaTable(path).protocol()
    assert (after.min_reader_version, after.min_writer_version) == (
        before.min_reader_version,
        before.min_writer_version,
    )


# deltalake itself fails on the others: a folder's name gets too long, and -1.50 is spelled `-1.-50`.
THEIR_PARTITION_VALUES = {
    **PARTITION_VALUES,
    pa.float64(): [0.1, -1.5, 1e10],
    pa.decimal128(9, 2): [Decimal("1.50"), Decimal("9999999.99"), Decimal("0.01")],
}


@pytest.mark.parametrize("kind", list(THEIR_PARTITION_VALUES), ids=str)
def test_partition_values_that_deltalake_wrote(path: str, kind: pa.DataType) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    rows = [{"n": number, "p": value} for number, value in enumerate([*THEIR_PARTITION_VALUES[kind], None])]
    write_deltalake(path, pa.Table.from_pylist(rows, schema), partition_by=["p"])
    check_same(Table.open(path), pa.Table.from_pylist(rows, schema).to_pylist())


def test_every_type_that_deltalake_wrote(path: str) -> None:
    data = pa.Table.from_pylist(full_rows(), FULL)
    write_deltalake(path, data)
    table = Table.open(path)
    check_same(table, data.to_pylist())
    table.insert(data)
    check_same(table, data.to_pylist() * 2)
