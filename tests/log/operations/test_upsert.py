"""UPSERT: rows replace those with the same key, and delete_where deletes keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import KINDS, SCHEMA, filled, keys, lose_once, rows
from tests.log.support import memory_store, new_table, reopen
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.errors import (
    AppendOnlyError,
    ConcurrentAppendException,
    ConfigurationError,
    DuplicateKeyError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.operations import upsert
from tidelog.log.state.commits import read_commit


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def row(key: int, part: str | None, v: int) -> dict[str, Any]:
    return {"k": key, "part": part, "v": v, "price": None}


def changes_of(table: Table) -> Counter[tuple[str, int, int]]:
    found = table.changes(after=table.version - 1).to_arrow()
    return Counter((change["_change_type"], change["k"], change["v"]) for change in found.to_pylist())


def test_upsert_replaces_and_inserts_rows(table: Table) -> None:
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


def test_delete_where_deletes_keys(table: Table) -> None:
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


def test_change_files_have_all_changes_of_the_commit(table: Table) -> None:
    table.upsert([row(50, "a", 1)], keys=["k"])
    commit = read_commit(table.store, table.version)
    assert bool(commit.cdc) == (table.properties.get("delta.enableChangeDataFeed") == "true")
    assert changes_of(table) == Counter([("insert", 50, 1)])
    table.upsert([{"k": 50, "op": "d"}], keys=["k"], delete_where="op = 'd'")
    commit = read_commit(table.store, table.version)
    assert bool(commit.cdc) == (table.properties.get("delta.enableChangeDataFeed") == "true")
    assert changes_of(table) == Counter([("delete", 50, 1)])


def test_an_upsert_without_effect_commits_nothing(table: Table) -> None:
    before = table.version
    for data in ([], [{"k": 99, "op": "d"}], pa.table({"k": pa.array([], pa.int64())})):
        committed = table.upsert(data, keys=["k"], delete_where="op = 'd'" if data and "op" in data[0] else None)
        assert (committed.version, table.version) == (before, before)
        assert set(committed.metrics.items()) == {(name, 0) for name in upsert.UPSERT_METRICS}
    transaction = table.begin().upsert([{"k": 99, "op": "d"}], keys=["k"], delete_where="op = 'd'")
    assert transaction._staged is None


def test_an_upsert_of_new_keys_is_not_a_blind_append(table: Table) -> None:
    table.upsert([row(77, "a", 1)], keys=["k"])
    assert table.history(1)[0].operation_class == OperationClass.UPDATE_DELETE
    assert read_commit(table.store, table.version).info["isBlindAppend"] is False


def test_all_rows_of_a_key_are_replaced(table: Table) -> None:
    """Keys are not unique in a table: the feed shows one old row as updated, and the rest as deleted."""
    table.insert([row(1, "b", 11), row(1, "b", 12)])
    committed = table.upsert([row(1, "c", 13)], keys=["k"])
    assert table.scan("k = 1", ["v"]).to_arrow()["v"].to_pylist() == [13]
    assert (committed.metrics["numTargetRowsUpdated"], committed.metrics["numTargetRowsDeleted"]) == (1, 2)
    found = changes_of(table)
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        kinds = Counter({kind: sum(n for key, n in found.items() if key[0] == kind) for kind, _, _ in found})
        assert kinds == {"update_preimage": 1, "delete": 2, "update_postimage": 1}


def test_change_types_of_two_rows_with_one_key_in_a_file(table: Table) -> None:
    table.insert([row(90, "b", 11), row(90, "b", 12)])
    table.upsert([row(90, "c", 13)], keys=["k"])
    assert table.scan("k = 90", ["v"]).to_arrow()["v"].to_pylist() == [13]
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        kinds = sorted(change[0] for change in changes_of(table).elements())
        assert kinds == ["delete", "update_postimage", "update_preimage"]


def test_the_primary_key_is_the_default() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k, part"})
    table.insert(rows(range(3)))
    table.upsert([row(1, "a", 1), row(1, "b", 2)])
    assert sorted(table.scan("k = 1", ["v"]).to_arrow()["v"].to_pylist()) == [1, 2]
    table.upsert([row(1, "a", 5)], keys=["k"], other_keys=True)
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
            "the data has several rows for 2 keys, such as k=0 or k=1;",
        ),
        (
            [{**row(1, "a", key), "op": op} for key, op in ((1, "d"), (2, "u"))],
            {"keys": ["k"], "delete_where": "op = 'd'"},
            DuplicateKeyError,
            "several rows for 1 key, such as k=1",
        ),
        ([row(1, "a", 1)], {"keys": ["k"], "delete_where": "op = 'd'"}, PredicateError, "no column 'op'"),
        ([row(1, "a", 1)], {"keys": ["k"], "delete_where": "initcap(part) = 'A'"}, PredicateError, "not supported"),
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
        ([{"k": 1, "op": [1, "a"]}], {"keys": ["k"], "delete_where": "op = 1"}, SchemaMismatchError, "'op.element'"),
        (7, {"keys": ["k"]}, SchemaMismatchError, "data cannot be of type int"),
        ([7], {"keys": ["k"], "delete_where": "op = 1"}, SchemaMismatchError, "row 0 must be a dict, not int"),
    ],
)
def test_invalid_upserts(data: Any, arguments: dict[str, Any], kind: type[TidelogError], message: str) -> None:
    table = filled("vectors, feed")
    before, files = table.version, len(list(table.store.walk()))
    with pytest.raises(kind, match=message):
        table.upsert(data, **arguments)
    assert (table.refresh().version, len(list(table.store.walk()))) == (before, files)


def test_a_deleting_row_needs_only_its_key() -> None:
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


def test_data_from_other_libraries(table: Table) -> None:
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


def test_an_append_only_table_refuses_upserts() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"delta.appendOnly": True})
    with pytest.raises(AppendOnlyError):
        table.upsert(rows(range(1)), keys=["k"])


# --- concurrent writers ----------------------------------------------------------------------------------------------


def test_a_concurrent_insert_of_the_key_is_replaced_or_a_conflict(table: Table) -> None:
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


def test_the_statement_retries_with_a_stream(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_once(table, lambda other: other.insert([row(70, "q", 1)]), monkeypatch)
    stream = pa.RecordBatchReader.from_batches(SCHEMA, pa.Table.from_pylist([row(70, "a", 2)], SCHEMA).to_batches())
    assert table.upsert(stream, keys=["k"]).metrics["numTargetRowsUpdated"] == 1
    assert table.scan("k = 70", ["v"]).to_arrow()["v"].to_pylist() == [2]
