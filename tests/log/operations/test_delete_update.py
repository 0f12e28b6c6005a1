"""DELETE and UPDATE: matching rows, new values, files and deletion vectors."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import KINDS, SCHEMA, filled, keys, rows
from tests.log.support import (
    live_files,
    memory_store,
    new_table,
    read_numbers,
    reopen,
)
from tidelog.log import OperationClass, Table
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.errors import (
    AppendOnlyError,
    ConfigurationError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.format import deletion_vector, statistics


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def test_delete_removes_matching_rows(table: Table) -> None:
    committed = table.delete("k IN (1, 2) OR part = 'b' AND k > 7")
    assert keys(table) == [0, 3, 4, 5, 6, 7, 10, 11, 12] == keys(reopen(table))
    assert committed.metrics["numDeletedRows"] == 4
    assert table.at().num_rows == 9
    (record,) = table.history(1)
    assert (record.operation_class, record.data_change) == (OperationClass.UPDATE_DELETE, True)
    table.delete("k = 3")
    assert keys(table) == [0, 4, 5, 6, 7, 10, 11, 12]


def test_a_delete_without_matches_commits_nothing(table: Table) -> None:
    before = table.version
    committed = table.delete("k > 99")
    assert (committed.version, table.version, committed.metrics["numDeletedRows"]) == (before, before, 0)


def test_a_predicate_that_is_null_does_not_match(table: Table) -> None:
    table.delete("part != 'a'")
    assert keys(table) == [0, 1, 2, 3, 4, 5, 10, 11, 12]
    table.delete("part IS NULL")
    assert keys(table) == [0, 1, 2, 3, 4, 5]


def test_update_uses_old_values_and_moves_rows_between_partitions(table: Table) -> None:
    committed = table.update("k BETWEEN 4 AND 7", {"v": "k + 1", "PART": "'c'", "k": "v * 10", "price": "1.25"})
    assert committed.metrics["numUpdatedRows"] == 4
    changed = table.scan("part = 'c'").to_arrow().sort_by("k").to_pylist()
    assert changed == [{"k": key * 100, "part": "c", "v": key + 1, "price": Decimal("1.25")} for key in (4, 5, 6, 7)]
    assert table.scan().count() == 13


# --- files and deletion vectors --------------------------------------------------------------------------------------


def test_a_second_delete_extends_the_vector_in_its_folder() -> None:
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


def test_a_commit_writes_one_vector_file() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["part"])
    table.insert([*rows(range(3)), *rows(range(3, 6), "b"), *rows(range(6, 9), "c")])
    table.delete("k IN (0, 3, 6)")
    names = {deletion_vector.location(add.deletion_vector).path for add in live_files(table) if add.deletion_vector}  # type: ignore[union-attr]
    assert len(names) == 1
    assert keys(table) == [1, 2, 4, 5, 7, 8]


def test_deleting_the_last_rows_of_a_file() -> None:
    table = new_table(memory_store(), SCHEMA)
    table.insert(rows(range(3)))
    table.delete("k >= 0")
    # A file without a vector is removed.
    assert live_files(table) == []
    table.insert(rows(range(3)))
    table.delete("k = 0")
    table.delete("k >= 0")
    # A file with a vector stays, with all rows dead: another engine reads a plain removal as the deletion of all rows.
    (left,) = live_files(table)
    assert left.deletion_vector is not None
    assert left.deletion_vector.cardinality == 3
    assert (keys(table), table.at().num_rows) == ([], 0)
    deleted = table.changes(after=table.version - 1).to_arrow()
    assert sorted(deleted["k"].to_pylist()) == [1, 2]


def test_statistics_keep_their_digits_when_a_vector_is_added() -> None:
    text = '{"numRecords":3,"minValues":{"d":12345678901234567890.123456789012345678},"tightBounds":true}'
    assert statistics.widened(text, 3) == text.replace("true", "false")
    assert statistics.widened(None, 7) == '{"numRecords":7,"tightBounds":false}'
    assert statistics.widened("{", 7) == '{"numRecords":7,"tightBounds":false}'


def test_metrics_of_a_file_whose_vector_covers_all_rows() -> None:
    table = new_table(memory_store())
    table.insert([{"n": n} for n in range(3)])
    table.delete("n = 0")
    metrics = table.delete("n >= 0").metrics
    assert (metrics["numRemovedFiles"], metrics["numDeletionVectorsAdded"], metrics["numDeletedRows"]) == (0, 1, 2)


# --- new values ------------------------------------------------------------------------------------------------------


def test_new_values_have_the_type_of_the_column() -> None:
    kinds = {"x": pa.float64(), "f": pa.float32(), "d": pa.decimal128(10, 2), "i": pa.int64()}
    table = new_table(memory_store(), pa.schema(list(kinds.items())))
    table.insert([{"x": 0.0, "f": 0.0, "d": Decimal("0.10"), "i": 3}])

    def updated(**assignments: str) -> list[Any]:
        table.update("true = true", assignments)
        (row,) = table.scan().to_arrow().to_pylist()
        return [row[name] for name in assignments]

    assert updated(x="1.5", f="1.5", d="1", i="-9223372036854775808") == [1.5, 1.5, Decimal("1.00"), -(2**63)]
    assert updated(d="d + 0.10") == [Decimal("1.10")]
    assert updated(d="(d + 1) * 2 - 0.05", x="d") == [Decimal("4.15"), 1.1]
    assert updated(i="7", d="12345678.91") == [7, Decimal("12345678.91")]
    assert updated(d="i", f="0.1") == [Decimal("7.00"), pytest.approx(0.1)]
    with pytest.raises(SchemaMismatchError, match="value of 'd'"):
        updated(d="d + 99999999.99")
    with pytest.raises(SchemaMismatchError, match="value of 'd'"):
        updated(d="d * 0.001")


@pytest.mark.parametrize(
    ("assignments", "kind", "message"),
    [
        ({}, ConfigurationError, "set is empty, so the update would change nothing"),
        ({"missing": "1"}, ConfigurationError, "there is no column 'missing' to set"),
        ({"v": "nothing + 1"}, PredicateError, "there is no column 'nothing'"),
        ({"v": "initcap(part)"}, PredicateError, "not supported"),
        ({"v": "'text'"}, SchemaMismatchError, "the new value of 'v' is string, but the column is int; use"),
        ({"v": "3000000000"}, SchemaMismatchError, "'v' is bigint, but the column is int \\(Integer value 3000000000"),
        ({"v": "k * 1000000000"}, SchemaMismatchError, "'v' is bigint, but the column is int"),
        ({"k": "k * 9000000000000000000"}, PredicateError, "cannot be evaluated on all rows: overflow"),
        ({"price": "1.255"}, SchemaMismatchError, r"but the column is decimal\("),
        ({"v": 1}, PredicateError, r"must be SQL text \(got int\)"),
    ],
)
def test_invalid_updates(assignments: dict[str, Any], kind: type[TidelogError], message: str, table: Table) -> None:
    before = table.version
    with pytest.raises(kind, match=message):
        table.update("k > 5", assignments)
    assert table.refresh().version == before


def test_update_to_null_in_a_required_column() -> None:
    table = new_table(memory_store(), pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    table.insert([{"k": 1}])
    with pytest.raises(SchemaMismatchError, match="'k' is null in 1 of the rows, but the column cannot"):
        table.update("k = 1", {"k": "NULL"})


# --- predicates ------------------------------------------------------------------------------------------------------


def test_long_lists_work_and_deep_nesting_is_an_error() -> None:
    table = new_table(memory_store())
    table.insert([{"n": n} for n in range(10)])
    table.delete(f"n IN ({', '.join(map(str, range(5, 50_000)))})")
    assert read_numbers(table) == [0, 1, 2, 3, 4]
    for text in ("(" * 500 + "n = 1" + ")" * 500, "NOT " * 600 + "n = 1"):
        with pytest.raises(PredicateError, match="nested too deeply"):
            table.delete(text)


@pytest.mark.parametrize("name", ["position", "__tidelog_position", "__tidelog_row", "", "Position"])
def test_columns_named_like_internal_ones(name: str) -> None:
    for partition_by in ([], [name]):
        schema = pa.schema([(name, pa.int64()), ("n", pa.int64())])
        table = new_table(memory_store(), schema, partition_by=partition_by)
        table.insert([{name: n, "n": n} for n in range(4)])
        table.delete("n = 1")
        table.update("n = 2", {"n": "20"})
        if name:
            table.truncate(where=f"`{name}` = 3") if partition_by else table.delete(f"`{name}` = 3")
            assert read_numbers(table) == [0, 20]


def test_errors_list_the_table_columns_only() -> None:
    table = new_table(memory_store())
    with pytest.raises(PredicateError) as caught:
        table.delete("missing = 1")
    assert "the columns are n" in str(caught.value)
    assert "position" not in str(caught.value)


def test_an_append_only_table_refuses_row_changes() -> None:
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
