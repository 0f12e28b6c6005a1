"""UPSERT: rows take the place of those with the same key; held against a dictionary, and the feed against both."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.operations.changing_rows import FEED_ON, KINDS, SCHEMA, filled, keys, rows
from tests.log.support import live_files, memory_store, new_table, reopen, stage_compaction
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    AppendOnlyError,
    ConcurrentAppendException,
    ConfigurationError,
    DuplicateKeyError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.format.schema import TIMESTAMP, TIMESTAMP_NTZ
from tidelog.log.operations import upsert
from tidelog.log.operations.keys import Keys
from tidelog.log.predicate import And, Column, Comparison, Expression, In, Literal
from tidelog.log.state.commits import read_commit


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def row(key: int, part: str | None, v: int) -> dict[str, Any]:
    return {"k": key, "part": part, "v": v, "price": None}


def changes_of(table: Table) -> Counter[tuple[str, int, int]]:
    found = table.changes(after=table.version - 1).to_arrow()
    return Counter((change["_change_type"], change["k"], change["v"]) for change in found.to_pylist())


def test_an_upsert(table: Table) -> None:
    data = [row(1, "a", -1), row(12, "c", -12), row(20, "a", -20)]
    committed = table.upsert(data, keys=["k"])
    assert keys(table) == [*range(13), 20] == keys(reopen(table))
    changed = table.scan("v < 0").to_arrow().sort_by("k").to_pylist()
    assert changed == data
    assert {name: committed.metrics[name] for name in committed.metrics if "Rows" in name} == {
        "numSourceRows": 3,
        "numTargetRowsInserted": 1,
        "numTargetRowsUpdated": 2,
        "numTargetRowsDeleted": 0,
        "numCopiedRows": 0 if table.properties["delta.enableDeletionVectors"] == "true" else 7,
    }
    assert set(committed.metrics) == set(upsert.UPSERT_METRICS)
    assert committed.metrics["numAddedBytes"] > 0
    (record,) = table.history(1)
    assert (record.operation_class, record.data_change) == (OperationClass.UPDATE_DELETE, True)
    assert read_commit(table.store, table.version).info["operation"] == "MERGE"


def test_rows_that_delete_their_key(table: Table) -> None:
    start = table.version
    data = [{**row(key, "b", -key), "op": op} for key, op in [(1, "d"), (7, "u"), (8, None), (30, "d"), (31, "c")]]
    committed = table.upsert(data, keys=["k"], delete_where="op = 'd'")
    assert keys(table) == [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 31]
    assert table.schema.names == SCHEMA.names
    counts = [committed.metrics[f"numTargetRows{what}"] for what in ("Inserted", "Updated", "Deleted")]
    assert counts == [1, 2, 1]
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        assert changes_of(table) == Counter(
            [
                ("delete", 1, 10),
                ("update_preimage", 7, 70),
                ("update_postimage", 7, -7),
                ("update_preimage", 8, 80),
                ("update_postimage", 8, -8),
                ("insert", 31, -31),
            ]
        )
        net = table.changes(after=start, mode="net", keys=["k"]).to_arrow()
        kinds = dict(zip(net["k"].to_pylist(), net["_change_type"].to_pylist(), strict=True))
        assert kinds == {1: "delete", 7: "update_postimage", 8: "update_postimage", 31: "insert"}


def test_with_the_feed_change_files_hold_everything(table: Table) -> None:
    table.upsert([row(50, "a", 1)], keys=["k"])
    commit = read_commit(table.store, table.version)
    assert bool(commit.cdc) == (table.properties.get("delta.enableChangeDataFeed") == "true")
    assert changes_of(table) == Counter([("insert", 50, 1)])
    table.upsert([{"k": 50, "op": "d"}], keys=["k"], delete_where="op = 'd'")
    commit = read_commit(table.store, table.version)
    assert bool(commit.cdc) == (table.properties.get("delta.enableChangeDataFeed") == "true")
    assert changes_of(table) == Counter([("delete", 50, 1)])


def test_an_upsert_of_nothing_commits_nothing(table: Table) -> None:
    before = table.version
    for data in ([], [{"k": 99, "op": "d"}], pa.table({"k": pa.array([], pa.int64())})):
        committed = table.upsert(data, keys=["k"], delete_where="op = 'd'" if data and "op" in data[0] else None)
        assert (committed.version, table.version) == (before, before)
        assert set(committed.metrics.items()) == {(name, 0) for name in upsert.UPSERT_METRICS}
    transaction = table.begin().upsert([{"k": 99, "op": "d"}], keys=["k"], delete_where="op = 'd'")
    assert transaction._staged is None


def test_new_keys_alone_are_a_change_of_rows_all_the_same(table: Table) -> None:
    table.upsert([row(77, "a", 1)], keys=["k"])
    assert table.history(1)[0].operation_class == OperationClass.UPDATE_DELETE
    assert read_commit(table.store, table.version).info["isBlindAppend"] is False


def test_every_row_of_a_key_dies(table: Table) -> None:
    """No constraint keeps a key from coming twice; the feed pairs one of its rows, and the other is deleted."""
    table.insert([row(1, "b", 11), row(1, "b", 12)])
    committed = table.upsert([row(1, "c", 13)], keys=["k"])
    assert table.scan("k = 1", ["v"]).to_arrow()["v"].to_pylist() == [13]
    assert (committed.metrics["numTargetRowsUpdated"], committed.metrics["numTargetRowsDeleted"]) == (1, 2)
    found = changes_of(table)
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        kinds = Counter({kind: sum(n for key, n in found.items() if key[0] == kind) for kind, _, _ in found})
        assert kinds == {"update_preimage": 1, "delete": 2, "update_postimage": 1}


def test_two_rows_of_a_key_in_one_file(table: Table) -> None:
    table.insert([row(90, "b", 11), row(90, "b", 12)])
    table.upsert([row(90, "c", 13)], keys=["k"])
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        kinds = sorted(change[0] for change in changes_of(table).elements())
        assert kinds == ["delete", "update_postimage", "update_preimage"]


def test_the_table_s_own_key() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k, part"})
    table.insert(rows(range(3)))
    table.upsert([row(1, "a", 1), row(1, "b", 2)])
    assert sorted(table.scan("k = 1", ["v"]).to_arrow()["v"].to_pylist()) == [1, 2]
    table.upsert([row(1, "a", 5)], keys=["k"])
    assert keys(table) == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "arguments", "kind", "message"),
    [
        ([row(1, "a", 1)], {}, ConfigurationError, "no keys are given"),
        ([row(1, "a", 1)], {"keys": "k"}, ConfigurationError, "keys must be a list of column names, not a string"),
        ([row(1, "a", 1)], {"keys": ["id"]}, ConfigurationError, "no key column 'id'"),
        (
            [{"k": None, "v": 1}, {"k": None, "v": 2}, {"k": 1, "v": 3}],
            {"keys": ["k"]},
            SchemaMismatchError,
            "'k' is null in 2 rows",
        ),
        ([row(1, "", 1)], {"keys": ["part"]}, SchemaMismatchError, "'part' is null in 1 rows"),
        (
            [{"part": "", "op": "d"}],
            {"keys": ["part"], "delete_where": "op = 'd'"},
            SchemaMismatchError,
            "'part' is null in 1 rows",
        ),
        ([{"v": 1}], {"keys": ["k"]}, SchemaMismatchError, "'k' is null in 1 rows"),
        ([{"v": 1}], {"keys": ["k"], "delete_where": "v = 1"}, SchemaMismatchError, "lacks the key column 'k'"),
        (
            [{"k": None, "v": 1}],
            {"keys": ["k"], "delete_where": "v = 1"},
            SchemaMismatchError,
            "'k' is null in 1 rows",
        ),
        (
            [row(key % 3, "a", key) for key in range(5)],
            {"keys": ["k"]},
            DuplicateKeyError,
            r": 2 keys have several rows each in the data, such as \{'k': 0\}, \{'k': 1\}",
        ),
        (
            [{**row(1, "a", key), "op": op} for key, op in ((1, "d"), (2, "u"))],
            {"keys": ["k"], "delete_where": "op = 'd'"},
            DuplicateKeyError,
            "1 keys have",
        ),
        ([row(1, "a", 1)], {"keys": ["k"], "delete_where": "op = 'd'"}, PredicateError, "no column 'op'"),
        ([row(1, "a", 1)], {"keys": ["k"], "delete_where": "upper(part) = 'A'"}, PredicateError, "not supported"),
        ([{**row(1, "a", 1), "x": 1}], {"keys": ["k"]}, SchemaMismatchError, "a column 'x' that the table"),
        (
            [{**row(1, "a", 1), "x": 1, "op": "d"}],
            {"keys": ["k"], "delete_where": "op = 'd'"},
            SchemaMismatchError,
            "a column 'x' that the table",
        ),
        (
            [{"k": 1, "v": "text", "op": "u"}],
            {"keys": ["k"], "delete_where": "op = 'd'"},
            SchemaMismatchError,
            "column 'v' is int32",
        ),
        ([{"k": 1, "op": [1, "a"]}], {"keys": ["k"], "delete_where": "op = 1"}, SchemaMismatchError, "'op'"),
        (7, {"keys": ["k"]}, SchemaMismatchError, "cannot write data of type int"),
        ([7], {"keys": ["k"], "delete_where": "op = 1"}, SchemaMismatchError, "row 0 is a int"),
    ],
)
def test_a_wrong_upsert(data: Any, arguments: dict[str, Any], kind: type[TidelogError], message: str) -> None:
    table = filled("vectors, feed")
    before, files = table.version, len(list(table.store.walk()))
    with pytest.raises(kind, match=message):
        table.upsert(data, **arguments)
    assert (table.refresh().version, len(list(table.store.walk()))) == (before, files)


def test_a_row_that_deletes_needs_its_key_alone() -> None:
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("part", pa.string(), nullable=False), SCHEMA.field("v")])
    for partition_by in ([], ["part"]):
        table = new_table(memory_store(), schema, partition_by=partition_by)
        table.insert([{"k": k, "part": "p", "v": k} for k in range(4)])
        data = [{"k": 1, "op": "d"}, {"k": 2, "part": "q", "v": 7, "op": "u"}]
        table.upsert(data, keys=["k"], delete_where="OP = 'd'")
        assert table.scan().to_arrow().sort_by("k").to_pylist() == [
            {"k": 0, "part": "p", "v": 0},
            {"k": 2, "part": "q", "v": 7},
            {"k": 3, "part": "p", "v": 3},
        ]
        with pytest.raises(SchemaMismatchError, match="lacks the column 'part', which cannot be null"):
            table.upsert([{"k": 1, "op": "u"}], keys=["k"], delete_where="op = 'd'")


def test_data_of_other_libraries(table: Table) -> None:
    pl = pytest.importorskip("polars")
    pd = pytest.importorskip("pandas")
    frame = pl.DataFrame({"K": [1, 2], "v": [-1, None], "op": pl.Series(["d", "u"], dtype=pl.Categorical)})
    table.upsert(frame, keys=["k"], delete_where="op = 'd'")
    assert table.scan("k IN (1, 2)").to_arrow().to_pylist() == [row(2, None, None)]  # type: ignore[arg-type]
    table.upsert(pd.DataFrame({"k": [3, 4], "gone": [True, False]}), keys=["k"], delete_where="gone")
    assert keys(table) == [0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    stream = pa.RecordBatchReader.from_batches(SCHEMA, pa.Table.from_pylist([row(0, "z", 0)], SCHEMA).to_batches())
    table.upsert(stream, keys=["k"])
    assert table.scan("part = 'z'").count() == 1


def test_an_append_only_table_refuses() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"delta.appendOnly": True})
    with pytest.raises(AppendOnlyError):
        table.upsert(rows(range(1)), keys=["k"])


# --- keys ------------------------------------------------------------------------------------------------------------

UTC = dt.UTC
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "\U0001f600", "b" * 50]),
    "binary": (pa.binary(), [b"a", b"\x01", b"b" * 50]),
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127, 0]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "float": (pa.float32(), [0.1, -math.inf, 0.0, math.nan]),
    "double": (pa.float64(), [1e-300, math.inf, -0.0, math.nan]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 2, 3)]),
    "decimal": (pa.decimal128(38, 18), [Decimal("1.5"), Decimal("-12345678901234567890.123456789012345678")]),
    "narrow decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-9999999.99")]),
    "timestamp": (TIMESTAMP, [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    "local time": (TIMESTAMP_NTZ, [dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1969, 1, 1)]),  # noqa: DTZ001
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("name", list(VALUES))
def test_keys_of_every_type(name: str, partitioned: bool) -> None:
    kind, values = VALUES[name]
    schema = pa.schema([("key", kind), ("s", pa.struct([("x", pa.int64())])), ("n", pa.int64())])
    table = new_table(memory_store(), schema, partition_by=["key"] if partitioned else [], properties=FEED_ON)

    def data(chosen: list[Any], n: int) -> pa.Table:
        count = len(chosen)
        return pa.table([pa.array(chosen, kind), pa.array([{"x": n}] * count), pa.array([n] * count)], schema=schema)

    table.insert(data([*values, None], 1))
    table.upsert(data(values[:-1], 2), keys=["key"])
    zeros = [-value if pt.is_floating(kind) and value == 0 else value for value in values]
    table.upsert(data(zeros, 3), keys=["key"])
    found = Counter((row["n"], row["s"]["x"]) for row in table.scan().to_arrow().to_pylist())
    assert found == Counter([(3, 3)] * len(values) + [(1, 1)])
    assert {row["key"] for row in table.scan("n = 1").to_arrow().to_pylist()} == {None}
    deletes = table.upsert(data(values, 0), keys=["key"], delete_where="n = 0")
    assert (deletes.metrics["numTargetRowsDeleted"], table.scan().count()) == (len(values), 1)


def test_where_keys_are_looked_for() -> None:
    few, many = pa.table({"k": [3, 1]}), pa.table({"k": range(100), "f": [0.5] * 99 + [math.nan]})
    both = Keys(many, ["k", "f"], "").predicate()
    assert Keys(few, ["k"], "").predicate() == In(Column(("k",)), (3, 1))
    assert both == And(Comparison(">=", Column(("k",)), Literal(0)), Comparison("<=", Column(("k",)), Literal(99)))
    binary = pa.table({"b": [b"x"]})
    assert Keys(binary, ["b"], "").predicate() == Literal(True)
    far = pa.table({"t": pa.array([2**62], pa.timestamp("us"))})
    assert Keys(far, ["t"], "").predicate() == Literal(True)


def test_files_that_cannot_hold_a_key_are_not_opened(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = type(table.store).open_input

    def open_input(self: Any, path: str) -> Any:
        opened.append(path)
        return real(self, path)

    monkeypatch.setattr(type(table.store), "open_input", open_input)
    table.upsert([row(7, "b", 0)], keys=["k"])
    assert len(set(opened)) == 1
    opened.clear()
    table.upsert([row(key, "c", 0) for key in range(100, 300)], keys=["k"])
    assert opened == []


@pytest.mark.parametrize("joined", [1, 8])
def test_files_are_looked_up_some_at_a_time(joined: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "_JOINED_ROWS", joined)
    table = new_table(memory_store(), SCHEMA)
    for start in range(0, 30, 3):
        table.insert(rows(range(start, start + 3)))
    table.upsert([row(key, "a", -1) for key in (0, 4, 29, 13)], keys=["k"])
    assert keys(table) == list(range(30))
    assert sorted(table.scan("v = -1").to_arrow()["k"].to_pylist()) == [0, 4, 13, 29]


def test_what_it_read() -> None:
    table = filled("vectors")
    transaction = table.begin().upsert([row(3, "a", 1), row(50, "b", 2)], keys=["part", "k"])
    staged = transaction._staged
    assert isinstance(staged, Staged)
    assert staged.reads is not None
    assert staged.reads.keys is not None
    assert staged.reads.keys.to_pylist() == [{"part": "a", "k": 3}, {"part": "b", "k": 50}]
    assert staged.reads.keys.schema.types == [pa.string(), pa.int64()]
    expected: Expression = And(In(Column(("part",)), ("a", "b")), In(Column(("k",)), (3, 50)))
    assert staged.reads.predicate == expected


# --- others at the same time -----------------------------------------------------------------------------------------


def test_a_staged_upsert_takes_a_later_row_of_its_key_or_loses_to_it(table: Table) -> None:
    staged = table.begin().upsert([row(60, "a", 1)], keys=["k"])
    table.insert([row(60, "z", 2)])
    has_vectors = table.properties.get("delta.enableDeletionVectors") == "true"
    if not has_vectors or table.properties.get("delta.enableChangeDataFeed") == "true":
        with pytest.raises(ConcurrentAppendException):
            staged.commit()
    else:
        committed = staged.commit()
        assert isinstance(committed, Committed)
        metrics = committed.metrics
        assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 0)
        assert table.refresh().scan("k = 60", ["part", "v"]).to_arrow().to_pylist() == [{"part": "a", "v": 1}]
    table.delete("k = 60")
    staged = table.begin().upsert([row(60, "a", 1)], keys=["k"])
    table.insert([row(61, "z", 2)])
    staged.commit()
    assert table.refresh().scan("k = 60", ["v"]).to_arrow()["v"].to_pylist() == [1]


def test_the_statement_runs_again_also_with_a_stream(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    other, begin = reopen(table), Table.begin
    raced: list[Any] = []

    def begin_and_lose(self: Table) -> Any:
        transaction = begin(self)
        if self is table and not raced:
            raced.append(other.insert([row(70, "q", 1)]))
        return transaction

    monkeypatch.setattr(Table, "begin", begin_and_lose)
    stream = pa.RecordBatchReader.from_batches(SCHEMA, pa.Table.from_pylist([row(70, "a", 2)], SCHEMA).to_batches())
    assert table.upsert(stream, keys=["k"]).metrics["numTargetRowsUpdated"] == 1
    assert table.scan("k = 70", ["v"]).to_arrow()["v"].to_pylist() == [2]


# --- a dictionary says what the rows are -----------------------------------------------------------------------------

MODEL_SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("part", pa.float64()),
        ("v", pa.int32()),
        ("s", pa.struct([("x", pa.date32())])),
    ]
)
_KEY = st.tuples(st.integers(0, 5), st.sampled_from(["", "x", "y"]), st.sampled_from([0.0, -0.0, 1.5, math.nan]))
_STEP = st.tuples(
    st.sampled_from(["upsert", "upsert", "upsert", "delete", "compact", "checkpoint"]),
    st.dictionaries(_KEY, st.tuples(st.integers(0, 99), st.booleans()), max_size=8),
)


def _plain(key: tuple[int, str, float]) -> tuple[int, str, str]:
    return key[0], key[1], str(key[2] + 0.0)


def _rows_of(table: Table) -> dict[tuple[int, str, str], int]:
    found = table.scan().to_arrow().to_pylist()
    result = {_plain((row["a"], row["b"], row["part"])): row["v"] for row in found}
    assert len(result) == len(found)
    assert all((row["s"] is None) == (row["v"] % 2 == 0) for row in found)
    return result


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(list(KINDS)), st.sampled_from([[], ["part"]]), st.lists(_STEP, min_size=1, max_size=6))
def test_it_does_what_a_dictionary_does(
    kind: str, partition_by: list[str], steps: list[tuple[str, dict[Any, tuple[int, bool]]]]
) -> None:
    """Rows, feed and net effect after upserts of keys of several columns, among deletes and compactions."""
    table = new_table(memory_store(), MODEL_SCHEMA, partition_by=partition_by, properties=KINDS[kind])
    model: dict[tuple[int, str, str], int] = {}
    for name, changes in steps:
        before, version = dict(model), table.version
        known = {_plain(key): (key, *change) for key, change in changes.items()}
        match name:
            case "upsert":
                data = [
                    {
                        "a": key[0],
                        "b": key[1],
                        "part": key[2],
                        "v": v,
                        "s": {"x": None} if v % 2 else None,
                        "gone": gone,
                    }
                    for key, v, gone in known.values()
                ]
                table.upsert(data, keys=["a", "b", "part"], delete_where="gone = true")
                for key, (_, v, gone) in known.items():
                    model.pop(key, None) if gone else model.__setitem__(key, v)
            case "delete":
                table.delete("a < 2")
                model = {key: v for key, v in model.items() if key[0] >= 2}
            case "compact":
                _compact(table)
            case _:
                table.checkpoint()
        assert _rows_of(table) == model == _rows_of(reopen(table))
        if "feed" in kind and name == "upsert" and table.version > version:
            _check_feed(table, before, model, known)


def _check_feed(table: Table, before: dict[Any, int], after: dict[Any, int], touched: Any) -> None:
    expected: Counter[tuple[str, Any, int]] = Counter()
    for key in touched:
        old, new = before.get(key), after.get(key)
        if old is not None:
            expected["delete" if new is None else "update_preimage", key, old] += 1
        if new is not None:
            expected["insert" if old is None else "update_postimage", key, new] += 1
    found = table.changes(after=table.version - 1).to_arrow().to_pylist()
    assert expected == Counter(
        (change["_change_type"], _plain((change["a"], change["b"], change["part"])), change["v"]) for change in found
    )


def _compact(table: Table) -> None:
    parts = {str(add.partition_values) for add in live_files(table)}
    for part in parts:
        group = [add for add in live_files(table) if str(add.partition_values) == part and not add.deletion_vector]
        if group:
            stage_compaction(table, group).commit()
            table.refresh()
