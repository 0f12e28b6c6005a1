"""DELETE, UPDATE, OVERWRITE, TRUNCATE and RESTORE: the rows afterwards, and what the change feed tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import live_files, memory_store, new_table, reopen, stage_compaction
from tidelog.log import OperationClass, Table
from tidelog.log.dead_rows import read_dead_rows
from tidelog.log.errors import (
    AppendOnlyError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConfigurationError,
    DuplicateKeyError,
    HistoryExpiredError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.format import deletion_vector, paths, statistics
from tidelog.log.state.commits import read_commit

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int32()), ("price", pa.decimal128(10, 2))])
VECTORS_OFF: dict[str, object] = {"delta.enableDeletionVectors": False}
FEED_ON: dict[str, object] = {"delta.enableChangeDataFeed": True}
KINDS: dict[str, dict[str, object]] = {
    "vectors": {},
    "copies": VECTORS_OFF,
    "vectors, feed": FEED_ON,
    "copies, feed": {**VECTORS_OFF, **FEED_ON},
}


def rows(keys: range, part: str | None = "a") -> list[dict[str, Any]]:
    return [{"k": key, "part": part, "v": key * 10, "price": Decimal(key)} for key in keys]


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=KINDS[request.param])
    table.insert([*rows(range(6)), *rows(range(6, 10), "b")])
    table.insert(rows(range(10, 13), None))
    return table


def keys(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow()["k"].to_pylist())


def bag(data: Any) -> Counter[str]:
    names = [name for name in data.column_names if not name.startswith("_")]
    return Counter(repr(row) for row in data.select(names).to_pylist())


def test_a_delete(table: Table) -> None:
    committed = table.delete("k IN (1, 2) OR part = 'b' AND k > 7")
    assert keys(table) == [0, 3, 4, 5, 6, 7, 10, 11, 12] == keys(reopen(table))
    assert committed.metrics["numDeletedRows"] == 4
    assert table.at().num_rows == 9
    (record,) = table.history(1)
    assert (record.operation_class, record.data_change) == (OperationClass.UPDATE_DELETE, True)
    table.delete("k = 3")
    assert keys(table) == [0, 4, 5, 6, 7, 10, 11, 12]


def test_a_delete_of_nothing_commits_nothing(table: Table) -> None:
    before = table.version
    committed = table.delete("k > 99")
    assert (committed.version, table.version, committed.metrics["numDeletedRows"]) == (before, before, 0)


def test_null_does_not_match(table: Table) -> None:
    table.delete("part != 'a'")
    assert keys(table) == [0, 1, 2, 3, 4, 5, 10, 11, 12]
    table.delete("part IS NULL")
    assert keys(table) == [0, 1, 2, 3, 4, 5]


def test_an_update_computes_from_the_old_row_and_moves_between_partitions(table: Table) -> None:
    committed = table.update("k BETWEEN 4 AND 7", {"v": "k + 1", "PART": "'c'", "k": "v * 10", "price": "1.25"})
    assert committed.metrics["numUpdatedRows"] == 4
    changed = table.scan("part = 'c'").to_arrow().sort_by("k").to_pylist()
    assert changed == [{"k": key * 100, "part": "c", "v": key + 1, "price": Decimal("1.25")} for key in (4, 5, 6, 7)]
    assert table.scan().count() == 13


def test_vectors_stay_below_their_own_folder_and_grow() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(8)))
    (before,) = live_files(table)
    for key in (1, 5):
        table.delete(f"k = {key}")
    (after,) = live_files(table)
    assert after.path == before.path
    assert after.deletion_vector is not None
    assert list(read_dead_rows(table.store, after.deletion_vector)) == [1, 5]
    stored = deletion_vector.location(after.deletion_vector)
    assert isinstance(stored, deletion_vector.StoredBitmap)
    assert stored.path.startswith("_dv/deletion_vector_")
    assert '"tightBounds":false' in str(after.stats)
    assert statistics.num_records(after.stats) == 8


def test_one_file_of_vectors_for_a_commit() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["part"])
    table.insert([*rows(range(3)), *rows(range(3, 6), "b"), *rows(range(6, 9), "c")])
    table.delete("k IN (0, 3, 6)")
    names = {deletion_vector.location(add.deletion_vector).path for add in live_files(table) if add.deletion_vector}  # type: ignore[union-attr]
    assert len(names) == 1
    assert keys(table) == [1, 2, 4, 5, 7, 8]


def test_the_last_rows_of_a_file() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    table.delete("k >= 0")
    # A file without a vector goes.
    assert live_files(table) == []
    table.insert(rows(range(3)))
    table.delete("k = 0")
    table.delete("k >= 0")
    # One with a vector stays, all its rows dead: a bare removal was seen to mislead other readers of changes.
    (left,) = live_files(table)
    assert left.deletion_vector is not None
    assert left.deletion_vector.cardinality == 3
    assert (keys(table), table.at().num_rows) == ([], 0)
    deleted = table.changes(after=table.version - 1).to_arrow()
    assert sorted(deleted["k"].to_pylist()) == [1, 2]


def test_statistics_under_a_vector_keep_their_digits() -> None:
    text = '{"numRecords":3,"minValues":{"d":12345678901234567890.123456789012345678},"tightBounds":true}'
    assert statistics.widened(text, 3) == text.replace("true", "false")
    assert statistics.widened(None, 7) == '{"numRecords":7,"tightBounds":false}'
    assert statistics.widened("{", 7) == '{"numRecords":7,"tightBounds":false}'


@pytest.mark.parametrize(
    ("assignments", "kind", "message"),
    [
        ({}, ConfigurationError, "an update sets no column"),
        ({"missing": "1"}, PredicateError, "there is no column 'missing' to set"),
        ({"v": "nothing + 1"}, PredicateError, "there is no column 'nothing'"),
        ({"v": "upper(part)"}, PredicateError, "not supported"),
        ({"v": "'text'"}, SchemaMismatchError, "column 'v' is int32 in the table"),
        ({"v": "3000000000"}, SchemaMismatchError, "column 'v' is int32"),
        ({"v": "k * 1000000000"}, SchemaMismatchError, "column 'v' is int32"),
        ({"k": "k * 9000000000000000000"}, PredicateError, "cannot be evaluated on all rows: overflow"),
        ({"price": "1.255"}, SchemaMismatchError, "column 'price' is decimal128"),
        ({"v": 1}, PredicateError, "not SQL text"),
    ],
)
def test_a_wrong_update(assignments: dict[str, Any], kind: type[TidelogError], message: str, table: Table) -> None:
    before = table.version
    with pytest.raises(kind, match=message):
        table.update("k > 5", assignments)
    assert table.refresh().version == before


def test_a_value_that_may_not_be_null() -> None:
    table = new_table(memory_store(), pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    table.insert([{"k": 1}])
    with pytest.raises(SchemaMismatchError, match="cannot be null"):
        table.update("k = 1", {"k": "NULL"})


def test_an_append_only_table_refuses() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"delta.appendOnly": True})
    table.insert(rows(range(3)))
    operations: list[Callable[[], Any]] = [
        lambda: table.delete("k = 1"),
        lambda: table.update("k = 1", {"v": "1"}),
        lambda: table.overwrite(rows(range(1))),
        table.truncate,
        lambda: table.restore(version=0),
    ]
    for operation in operations:
        with pytest.raises(AppendOnlyError, match=r"delta.appendOnly to false"):
            operation()
    assert keys(table) == [0, 1, 2]


# --- others at the same time -----------------------------------------------------------------------------------------


def test_a_statement_runs_again_where_another_came_first(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    other = reopen(table)
    begin = Table.begin
    raced: list[Any] = []

    def begin_and_lose(self: Table) -> Any:
        transaction = begin(self)
        if self is table and not raced:
            raced.append(other.insert([{"k": 50, "part": "a", "v": 1, "price": None}]))
        return transaction

    monkeypatch.setattr(Table, "begin", begin_and_lose)
    assert table.delete("k > 4").metrics["numDeletedRows"] == 9
    assert keys(table) == [0, 1, 2, 3, 4]


def test_a_staged_transaction_loses_where_its_rows_may_differ(table: Table) -> None:
    deleting, updating = table.begin().delete("k = 1"), table.begin().update("k = 2", {"v": "0"})
    table.delete("k = 3")
    with pytest.raises((ConcurrentDeleteDeleteException, ConcurrentAppendException)):
        deleting.commit()
    with pytest.raises((ConcurrentDeleteDeleteException, ConcurrentAppendException)):
        updating.commit()
    assert keys(table.refresh()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_an_append_that_the_predicate_may_match(table: Table) -> None:
    deleting = table.begin().delete("k = 1")
    table.insert([{"k": 1, "part": "z", "v": None, "price": None}])
    with pytest.raises(ConcurrentAppendException, match="which the predicate may match"):
        deleting.commit()


def test_appends_that_the_predicate_cannot_match(table: Table) -> None:
    deleting = table.begin().delete("k = 1 AND part = 'a'")
    table.insert(rows(range(1, 2), "z"))
    table.insert(rows(range(20, 22), "a"))
    deleting.commit()
    assert keys(table.refresh()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20, 21]


def test_an_overwrite_replaces_what_came_meanwhile(table: Table) -> None:
    overwriting = table.begin().overwrite(rows(range(100, 102)), where="part = 'a'")
    table.insert(rows(range(20, 22)))
    table.delete("k = 3")
    outcome = overwriting.commit()
    assert keys(table.refresh()) == [6, 7, 8, 9, 10, 11, 12, 100, 101]
    assert getattr(outcome, "retried", False) is True


def test_a_compaction_and_a_delete(table: Table) -> None:
    group = [add for add in live_files(table) if add.partition_values["part"] == "a"]
    compacting = stage_compaction(table, group)
    table.delete("k = 0")
    compacting.commit()
    assert keys(table.refresh()) == list(range(1, 13))
    deleting = table.begin().delete("k = 6")
    stage_compaction(table, [add for add in live_files(table) if add.partition_values["part"] == "b"]).commit()
    with pytest.raises(ConcurrentDeleteDeleteException):
        deleting.commit()


# --- whole scopes ----------------------------------------------------------------------------------------------------


def test_overwrites(table: Table) -> None:
    committed = table.overwrite(rows(range(90, 92), "b"), where="part = 'b' OR part IS NULL")
    assert keys(table) == [0, 1, 2, 3, 4, 5, 90, 91]
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    assert committed.metrics["numRemovedFiles"] == 2
    table.overwrite([*rows(range(70, 71), "new"), *rows(range(71, 72), "b")], dynamic=True)
    assert keys(table) == [0, 1, 2, 3, 4, 5, 70, 71]
    table.overwrite(rows(range(2), None), dynamic=True)
    table.overwrite(rows(range(3, 5), None), dynamic=True)
    assert keys(table) == [0, 1, 2, 3, 3, 4, 4, 5, 70, 71]
    table.overwrite(rows(range(1)))
    assert keys(table) == [0]
    assert table.overwrite([]).version == table.version
    assert keys(table) == []
    version = table.version
    assert table.overwrite([]).version == version


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"where": "k = 1"}, PredicateError, "'k' is no partition column"),
        ({"where": "part = 'a'", "dynamic": True}, ConfigurationError, "both where and dynamic"),
        ({"where": "part = 'b'"}, ConfigurationError, "2 of 2 rows lie outside of where"),
        ({"where": "part = 'a' AND"}, PredicateError, "cannot be parsed"),
    ],
)
def test_a_wrong_overwrite(arguments: dict[str, Any], kind: type[TidelogError], message: str, table: Table) -> None:
    before = table.version
    with pytest.raises(kind, match=message):
        table.overwrite(rows(range(2)), **arguments)
    assert table.refresh().version == before


def test_dynamic_needs_partitions() -> None:
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(ConfigurationError, match="the table is not partitioned"):
        table.overwrite(rows(range(2)), dynamic=True)


def test_a_truncate(table: Table) -> None:
    assert table.truncate(where="part IN ('a', 'nowhere')").metrics["numDeletedRows"] == 6
    assert keys(table) == [6, 7, 8, 9, 10, 11, 12]
    version = table.version
    assert table.truncate(where="part = 'a'").version == version
    table.truncate()
    assert (keys(table), table.at().num_files) == ([], 0)


def test_partition_values_are_compared_as_values() -> None:
    schema = pa.schema(
        [("day", pa.date32()), ("number", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("k", pa.int64())]
    )
    table = new_table(memory_store(), schema, partition_by=["day", "number", "at"])
    at = table.history(1)[0].timestamp
    data = [{"day": at.date() + timedelta(n), "number": n, "at": at + timedelta(n), "k": n} for n in range(20)]
    table.insert(data)
    table.overwrite([{**data[3], "k": 333}], dynamic=True)
    table.truncate(where="number >= 9 AND number < 12")
    assert keys(table) == sorted({*range(20), 333} - {3, 9, 10, 11})


def test_many_partitions_in_one_commit() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.int64()), ("k", pa.int64())]), partition_by=["p"])
    data = pa.table({"p": pa.array(range(300)), "k": pa.array(range(300))})
    table.insert(data)
    before = table.version
    table.overwrite(data.slice(100), dynamic=True)
    assert (table.version, table.at().num_files) == (before + 1, 300)


# --- restore ---------------------------------------------------------------------------------------------------------


def test_a_restore(table: Table) -> None:
    wanted = table.version
    expected = bag(table.scan().to_arrow())
    table.delete("k < 3")
    table.update("k > 10", {"v": "0"})
    table.overwrite(rows(range(40, 42)), where="part = 'a'")
    committed = table.restore(version=wanted)
    assert bag(table.scan().to_arrow()) == expected == bag(reopen(table).scan().to_arrow())
    assert committed.version == wanted + 4
    assert table.history(1)[0].operation_class == OperationClass.OVERWRITE
    assert table.restore(version=wanted).version == committed.version
    table.restore(timestamp=table.at(version=wanted + 1).timestamp)
    assert keys(table) == list(range(3, 13))


def test_a_restore_of_what_was_vacuumed(table: Table) -> None:
    doomed = live_files(table)
    table.overwrite(rows(range(1)))
    for add in doomed[:1]:
        table.store.delete(paths.to_storage_path(add.path))
    with pytest.raises(HistoryExpiredError, match="removed by a vacuum"):
        table.restore(version=table.version - 1)
    assert keys(table.refresh()) == [0]
    with pytest.raises(HistoryExpiredError):
        table.restore(version=99)
    with pytest.raises(ConfigurationError, match="exactly one"):
        table.restore()


def test_the_progress_of_applications_outlives_a_restore(table: Table) -> None:
    table.insert(rows(range(50, 51)), idempotency_key=("app", 7))
    table.restore(version=0)
    assert keys(table) == []
    assert table.transactions == {"app": 7}


# --- the feed --------------------------------------------------------------------------------------------------------


def test_change_types(table: Table) -> None:
    feed = table.properties.get("delta.enableChangeDataFeed") == "true"
    start = table.version
    table.delete("k = 1")
    table.update("k = 2", {"v": "5"})
    found = table.changes(after=start, where="k < 3", columns=["k", "v", "_change_type", "_commit_version"]).to_arrow()
    triples = Counter(
        (version, kind, value)
        for version, kind, value, key in zip(
            found["_commit_version"].to_pylist(),
            found["_change_type"].to_pylist(),
            found["v"].to_pylist(),
            found["k"].to_pylist(),
            strict=True,
        )
        if key in {1, 2}
    )
    if feed:
        assert triples == Counter(
            [(start + 1, "delete", 10), (start + 2, "update_preimage", 20), (start + 2, "update_postimage", 5)]
        )
        log = read_commit(table.store, start + 2)
        assert all(cdc.path.startswith("_change_data/") and not cdc.data_change for cdc in log.cdc)
    else:
        assert {(start + 1, "delete", 10), (start + 2, "delete", 20), (start + 2, "insert", 5)} <= set(triples)


def test_a_vacuumed_change(table: Table) -> None:
    start = table.version
    for add in live_files(table):
        table.store.delete(paths.to_storage_path(add.path))
    with pytest.raises(HistoryExpiredError, match="removed by a vacuum"):
        table.changes(until=start).to_arrow()


def test_a_vacuumed_vector() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(5)))
    table.delete("k = 1")
    start = table.version
    table.delete("k = 2")
    table.delete("k = 3")
    for path, _ in list(table.store.walk()):
        if path.startswith("_dv/"):
            table.store.delete(path)
    for until in (start, table.version):
        with pytest.raises(HistoryExpiredError, match="removed by a vacuum"):
            table.changes(after=start - 1, until=until).to_arrow()


def test_net_changes() -> None:
    table = new_table(memory_store(), SCHEMA, properties={"tidelog.primaryKey": "k"})
    table.insert(rows(range(5)))
    start = table.version
    table.insert(rows(range(5, 8)))  # 5: inserted and changed, 6: inserted and deleted, 7: inserted
    table.update("k = 5 OR k = 1", {"v": "7"})
    table.delete("k = 6 OR k = 2")
    table.update("k = 3", {"v": "99"})
    table.update("k = 3", {"v": "30"})  # as it was
    net = table.changes(after=start, mode="net").to_arrow().sort_by("k")
    kinds = dict(zip(net["k"].to_pylist(), net["_change_type"].to_pylist(), strict=True))
    assert kinds == {1: "update_postimage", 2: "delete", 5: "insert", 7: "insert"}
    assert net["v"].to_pylist() == [7, 20, 7, 70]
    assert net["_commit_version"].to_pylist() == [start + 2, start + 3, start + 2, start + 1]
    only = table.changes(after=start, mode="net", where="_change_type = 'insert'", columns=["k"]).to_arrow()
    assert only.to_pydict() == {"k": [7, 5]}


def test_net_changes_need_a_key_that_is_one() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    with pytest.raises(ConfigurationError, match="no keys are given"):
        table.changes(mode="net")
    with pytest.raises(ConfigurationError, match="there is no key column 'id'"):
        table.changes(mode="net", keys=["id"])
    with pytest.raises(ConfigurationError, match="keys is one text"):
        table.changes(mode="net", keys="k")
    table.insert(rows(range(1)))
    with pytest.raises(DuplicateKeyError, match=r"the key \{'k': 0\}"):
        table.changes(mode="net", keys=["k"]).to_arrow()
    with pytest.raises(ConfigurationError, match="there is no change mode 'all'"):
        table.changes(mode="all")


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "update", "overwrite", "truncate", "restore", "compact", "checkpoint"]),
        st.integers(0, 11),
        st.integers(0, 11),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(KINDS)), _OPERATIONS, st.integers(0, 8), st.integers(0, 8))
def test_the_feed_replays_every_interval(
    kind: str, operations: list[tuple[str, int, int]], first: int, last: int
) -> None:
    """The rows at one version and the changes up to another give the rows at that one; and so does the net effect."""
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], properties=KINDS[kind])
    expected: dict[int, Counter[str]] = {0: Counter()}
    fresh = iter(range(0, 10_000, 3))
    for name, one, two in operations:
        _run(table, name, one, two, fresh)
        expected[table.version] = bag(table.scan().to_arrow())
    versions = sorted(expected)
    start, end = sorted((versions[first % len(versions)], versions[last % len(versions)]))
    changes = table.changes(after=start, until=end).to_arrow()
    _replayed(expected[start], changes, expected[end])
    net = table.changes(after=start, until=end, mode="net", keys=["k"]).to_arrow()
    assert len(set(net["k"].to_pylist())) == net.num_rows
    before, after = (table.at(version=version).scan().to_arrow() for version in (start, end))
    gained, lost = bag(after) - bag(before), bag(before) - bag(after)
    kinds = net["_change_type"].to_pylist()
    gives = net.filter(pa.array([change != "delete" for change in kinds], pa.bool_()))
    assert bag(gives) == gained
    deleted = net.filter(pa.array([change == "delete" for change in kinds], pa.bool_()))
    assert bag(deleted) <= lost
    assert len(kinds) - gives.num_rows == len(set(before["k"].to_pylist()) - set(after["k"].to_pylist()))


def _replayed(start: Counter[str], changes: pa.Table, end: Counter[str]) -> None:
    found = Counter(start)
    for version in sorted(set(changes["_commit_version"].to_pylist())):
        own = changes.filter(pa.compute.equal(changes["_commit_version"], version))
        takes = pa.compute.is_in(own["_change_type"], pa.array(["delete", "update_preimage"]))
        taken, given_ = bag(own.filter(takes)), bag(own.filter(pa.compute.invert(takes)))
        assert taken <= found
        found = found - taken + given_
    assert found == end


def _run(table: Table, name: str, one: int, two: int, fresh: Any) -> None:
    part = "abc"[one % 3]
    low, high = min(one, two) * 2, max(one, two) * 3
    match name:
        case "insert":
            first = next(fresh)
            table.insert([*rows(range(first, first + 2), part), *rows(range(first + 2, first + 3), None)])
        case "delete":
            table.delete(f"k >= {low} AND k < {high}")
        case "update":
            table.update(f"k >= {low} AND k < {high}", {"v": f"v + {one - 5}", "part": f"'{part}'"})
        case "overwrite":
            table.overwrite(rows(range(next(fresh), next(fresh) - 1), part), where=f"part = '{part}'")
        case "truncate":
            table.truncate(where=f"part = '{part}'")
        case "restore":
            table.restore(version=one % (table.version + 1))
        case "compact":
            group = [
                add for add in live_files(table) if add.partition_values["part"] == part and not add.deletion_vector
            ]
            if group:
                stage_compaction(table, group).commit()
                table.refresh()
        case _:
            table.checkpoint()
