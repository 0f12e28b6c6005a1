"""DELETE, UPDATE, OVERWRITE, TRUNCATE and RESTORE: the rows afterwards, and who wins where others commit, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import KINDS, SCHEMA, bag, filled, keys, rows
from tests.log.support import live_files, memory_store, new_table, reopen, stage_compaction
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.errors import (
    AppendOnlyError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConfigurationError,
    HistoryExpiredError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.format import deletion_vector, paths, statistics


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


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


def test_staged_changes_of_other_rows_of_a_file_all_land(table: Table) -> None:
    deleting, updating = table.begin().delete("k = 1"), table.begin().update("k = 2", {"v": "0"})
    table.delete("k = 3")
    if not has_vectors(table):
        with pytest.raises((ConcurrentDeleteDeleteException, ConcurrentAppendException)):
            updating.commit()
        return
    deleting.commit()
    assert isinstance(updating.commit(), Committed)
    assert keys(table.refresh()) == [0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert table.scan("k = 2").to_arrow()["v"].to_pylist() == [0]


def test_an_append_that_the_predicate_matches_dies_too_or_is_a_conflict(table: Table) -> None:
    deleting, updating = table.begin().delete("k = 1"), table.begin().update("k = 2", {"v": "0"})
    table.insert([{"k": number, "part": "z", "v": None, "price": None} for number in (1, 2)])
    if has_vectors(table):
        deleting.commit()
        assert keys(table.refresh()) == [0, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    else:
        with pytest.raises(ConcurrentAppendException, match="new rows match what the operation read: 1 in"):
            deleting.commit()
    with pytest.raises(ConcurrentAppendException, match="new rows match what the operation read: 1 in"):
        updating.commit()


def has_vectors(table: Table) -> bool:
    return table.properties.get("delta.enableDeletionVectors") == "true"


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
    if not has_vectors(table):
        with pytest.raises(ConcurrentDeleteDeleteException):
            deleting.commit()
        return
    deleting.commit()
    assert keys(table.refresh()) == [1, 2, 3, 4, 5, *range(7, 13)]


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
        ({"where": "k = 1"}, PredicateError, "'k' is not a partition column"),
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
    with pytest.raises(HistoryExpiredError, match="no longer exists"):
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
