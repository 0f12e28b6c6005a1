"""OVERWRITE and TRUNCATE: whole tables and whole partitions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.operations.changing_rows import KINDS, SCHEMA, filled, keys, rows
from tests.log.support import (
    live_files,
    memory_store,
    new_table,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tidelog.compaction_daemon import compact
from tidelog.log import Committed, OperationClass, Table
from tidelog.log.errors import (
    ConfigurationError,
    CorruptLogError,
    NotAppendOnlyError,
    PredicateError,
    SchemaMismatchError,
    TidelogError,
)
from tidelog.log.state.commits import read_commit


@pytest.fixture(params=list(KINDS))
def table(request: pytest.FixtureRequest) -> Table:
    return filled(request.param)


def test_overwrite_where_dynamic_and_whole_table(table: Table) -> None:
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


def test_overwrite_of_the_rows_that_match_a_predicate(table: Table) -> None:
    before = keys(table)
    committed = table.overwrite(rows([1, 3, 500], "a"), where="k IN (1, 2, 3) OR k >= 500")
    assert keys(table) == sorted([*(k for k in before if k not in (1, 2, 3)), 1, 3, 500])
    record = table.history(1)[0]
    assert (record.operation, record.operation_class) == ("WRITE", OperationClass.UPDATE_DELETE)
    assert (committed.metrics["numDeletedRows"], committed.metrics["numOutputRows"]) == (3, 3)
    found = table.changes(after=committed.version - 1).to_arrow()
    changes = zip(found["_change_type"].to_pylist(), found["k"].to_pylist(), strict=True)
    signs = [(-1 if kind in {"delete", "update_preimage"} else 1, k) for kind, k in changes]
    # Which changes show depends on whether rows are equal; what they add up to does not.
    net = {k: sum(sign for sign, other in signs if other == k) for k in {k for _, k in signs}}
    assert {k: number for k, number in net.items() if number} == {2: -1, 500: 1}
    # None of the new rows, or none of the old ones.
    assert table.overwrite([], where="k = 500").metrics["numDeletedRows"] == 1
    table.overwrite(rows([600]), where="k >= 600")
    assert keys(table)[-1] == 600
    assert 500 not in keys(table)
    version = table.version
    assert table.overwrite([], where="k > 9000").version == version == table.version


def test_a_row_for_which_the_predicate_is_null_does_not_match(table: Table) -> None:
    before = keys(table)
    with pytest.raises(ConfigurationError, match="1 of 1 rows are outside"):
        table.overwrite([{"k": None, "part": "a"}], where="k > 0")
    assert keys(table) == before


def test_what_others_insert_meanwhile_is_replaced_too() -> None:
    table = filled("vectors")
    staged = table.begin().overwrite(rows([3], "a"), where="k <= 3")
    table.insert(rows([2, 700], "a"))
    outcome = staged.commit()
    assert isinstance(outcome, Committed)
    assert outcome.rebased_over
    found = keys(table.refresh())
    assert [k for k in found if k <= 3] == [3]
    assert 700 in found


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"where": "k = 1"}, ConfigurationError, "1 of 2 rows are outside where='k = 1'"),
        ({"where": "k < 9", "dynamic": True}, ConfigurationError, "both where and dynamic"),
        ({"where": "nowhere = 1"}, PredicateError, "there is no column 'nowhere'"),
        ({"where": "part = 'a'", "dynamic": True}, ConfigurationError, "both where and dynamic"),
        ({"where": "part = 'b'"}, ConfigurationError, "2 of 2 rows are outside where"),
        ({"where": "part = 'a' AND"}, PredicateError, "cannot be parsed"),
    ],
)
def test_invalid_overwrites(arguments: dict[str, Any], kind: type[TidelogError], message: str, table: Table) -> None:
    before = table.version
    with pytest.raises(kind, match=message):
        table.overwrite(rows(range(2)), **arguments)
    assert table.refresh().version == before


def test_dynamic_needs_a_partitioned_table() -> None:
    table = new_table(memory_store(), SCHEMA)
    with pytest.raises(ConfigurationError, match="the table is not partitioned"):
        table.overwrite(rows(range(2)), dynamic=True)


def test_truncate_partitions_and_the_whole_table(table: Table) -> None:
    assert table.truncate(where="part IN ('a', 'nowhere')").metrics["numDeletedRows"] == 6
    assert keys(table) == [6, 7, 8, 9, 10, 11, 12]
    version = table.version
    assert table.truncate(where="part = 'a'").version == version
    table.truncate()
    assert (keys(table), table.at().num_files) == ([], 0)


# --- files that hold only dead rows ----------------------------------------------------------------------------------

EMPTIED: dict[str, Callable[[Table], Committed]] = {
    "truncate": lambda table: table.truncate(where="part = 'a'"),
    "overwrite where": lambda table: table.overwrite([], where="part = 'a'"),
    "dynamic overwrite": lambda table: table.overwrite([], dynamic=True),
}
REPLACED: dict[str, Callable[[Table], Committed]] = {
    "overwrite where": lambda table: table.overwrite(rows(range(90, 92)), where="part = 'a'"),
    "dynamic overwrite": lambda table: table.overwrite(rows(range(90, 92)), dynamic=True),
}


def with_dead_files(kind: str = "vectors, feed") -> Table:
    """No row of partition a is live, but two of its files are: their vectors hold all rows."""
    table = filled(kind)
    table.insert(rows(range(20, 24)))
    for where in ("k = 1 OR k = 21", "part = 'a'"):
        table.delete(where)
    assert sum(file.partition_values["part"] == "a" for file in live_files(table)) == 2
    assert table.scan("part = 'a'").count() == 0
    return table


@pytest.mark.parametrize("how", EMPTIED)
def test_emptying_what_is_empty_makes_no_commit(how: str) -> None:
    table = with_dead_files()
    before, files = table.version, table.at().num_files
    committed = EMPTIED[how](table)
    assert (committed.version, set(committed.metrics.values())) == (before, {0})
    assert Table.open(table.path).version == before
    assert compact(table).did_anything
    assert table.refresh().at().num_files == files - 2, "a compaction drops the files"


@pytest.mark.parametrize("how", REPLACED)
def test_new_rows_over_dead_ones_are_an_append_for_readers(how: str) -> None:
    table = with_dead_files()
    before = table.version
    committed = REPLACED[how](table)
    assert committed.metrics["numRemovedFiles"] == 2
    assert keys(table) == [6, 7, 8, 9, 10, 11, 12, 90, 91]
    assert table.at().num_files == 3
    appended = table.changes(after=before, mode="append").to_arrow()
    assert sorted(appended["k"].to_pylist()) == [90, 91]
    changes = table.changes(after=before).to_arrow()
    assert set(changes["_change_type"].to_pylist()) == {"insert"}
    assert table.time_version == committed.timestamp


def test_only_files_with_live_rows_change_rows_when_a_table_is_emptied() -> None:
    table = with_dead_files()
    before = table.version
    assert table.truncate().metrics == {"numRemovedFiles": 4, "numDeletedRows": 7}
    removes = read_commit(table.store, table.version).removes
    assert sorted((remove.partition_values or {})["part"] or "" for remove in removes if remove.data_change) == [
        "",
        "b",
    ]
    assert [(remove.partition_values or {})["part"] for remove in removes if not remove.data_change] == ["a", "a"]
    assert sorted(table.changes(after=before).to_arrow()["k"].to_pylist()) == [6, 7, 8, 9, 10, 11, 12]
    assert table.truncate().version == table.version
    with pytest.raises(NotAppendOnlyError):
        table.changes(after=before, mode="append").to_arrow()


def test_what_others_have_emptied_meanwhile_needs_no_commit() -> None:
    table = filled("vectors, feed")
    table.delete("k = 1")
    staged = table.begin().truncate(where="part = 'a'")
    Table.open(table.path).delete("part = 'a'")
    assert staged.commit().version == table.refresh().version  # type: ignore[union-attr]
    assert table.history(1)[0].operation == "DELETE"


def test_a_restore_that_only_takes_dead_files_changes_no_rows() -> None:
    table = filled("vectors")
    empty = new_table(memory_store(), SCHEMA, partition_by=["part"])
    empty.insert(rows(range(3)))
    empty.delete("k = 1")
    empty.delete("k >= 0")
    before = empty.version
    empty.restore(version=0)
    assert empty.at().num_files == 0
    assert empty.changes(after=before, mode="append").to_arrow().num_rows == 0
    table.delete("k = 1")
    table.delete("part = 'a'")
    table.restore(version=2)
    assert keys(table) == list(range(13)), "rows come back as a change"
    assert table.changes(after=table.version - 1).to_arrow().num_rows == 6


def test_a_table_without_live_rows_is_dropped_with_its_files() -> None:
    table = with_dead_files()
    table.delete("k >= 0")
    Table.drop(table.path)
    assert not [path for path, _ in table.store.walk() if not path.startswith("_delta_log/")]


def test_a_file_without_a_count_of_its_rows_counts_as_live() -> None:
    table = with_dead_files()
    (first, *_) = [file for file in live_files(table) if file.partition_values["part"] == "a"]
    put_foreign(table, msgspec.structs.replace(first, stats=None, data_change=False))
    table.refresh().truncate(where="part = 'a'")
    removes = read_commit(table.store, table.version).removes
    assert sorted(remove.data_change for remove in removes) == [False, True]


def test_overwrite_of_many_partitions() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.int64()), ("k", pa.int64())]), partition_by=["p"])
    data = pa.table({"p": pa.array(range(300)), "k": pa.array(range(300))})
    table.insert(data)
    before = table.version
    table.overwrite(data.slice(100), dynamic=True)
    assert (table.version, table.at().num_files) == (before + 1, 300)


# --- partition values ------------------------------------------------------------------------------------------------


def test_partition_values_are_compared_as_values_not_text() -> None:
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


def test_an_empty_string_is_in_the_null_partition() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by=["p"])
    for n in range(3):
        table.overwrite([{"p": "", "n": n}], dynamic=True)
    assert table.scan().to_arrow().to_pylist() == [{"p": None, "n": 2}]
    with pytest.raises(ConfigurationError, match="1 of 1 rows are outside"):
        table.overwrite([{"p": "", "n": 9}], where="p = ''")
    strict = new_table(
        memory_store(), pa.schema([pa.field("p", pa.string(), nullable=False), ("n", pa.int64())]), partition_by=["p"]
    )
    for write in (strict.insert, strict.overwrite):
        with pytest.raises(SchemaMismatchError, match="an empty string in it counts as null"):
            write([{"p": "", "n": 1}])


def test_minus_zero_is_in_the_partition_of_zero() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.float64()), ("n", pa.int64())]), partition_by=["p"])
    table.overwrite([{"p": 0.0, "n": 1}], dynamic=True)
    table.overwrite([{"p": -0.0, "n": 2}], dynamic=True)
    assert read_numbers(table) == [2]


def test_a_predicate_that_fails_for_a_partition_changes_nothing() -> None:
    table = new_table(memory_store(), pa.schema([("p", pa.int32()), ("n", pa.int64())]), partition_by=["p"])
    table.insert([{"p": p, "n": p} for p in (1, 2, 2**31 - 1)])
    version = table.version
    with pytest.raises(PredicateError, match="cannot be evaluated on all rows: overflow"):
        table.overwrite([{"p": 1, "n": 9}], where="p + 1 = 2")
    with pytest.raises(PredicateError, match="cannot be evaluated on all rows: overflow"):
        table.truncate(where="p + 1 = 2")
    assert table.refresh().version == version
    table.overwrite([{"p": 1, "n": 9}], where="p < 3 AND p + 1 = 2")
    assert read_numbers(table) == [2, 9, 2**31 - 1]


def test_a_predicate_without_columns_selects_the_whole_table_or_nothing() -> None:
    for partition_by in (["p"], []):
        table = new_table(memory_store(), pa.schema([("p", pa.int32()), ("n", pa.int64())]), partition_by=partition_by)
        table.insert([{"p": 1, "n": 1}, {"p": 2, "n": 2}])
        table.overwrite([{"p": 1, "n": 9}], where="1 = 1")
        assert read_numbers(table) == [9]
        version = table.version
        assert table.truncate(where="1 = 2").version == version


def test_a_file_with_an_unreadable_partition_value_is_an_error() -> None:
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    table.insert([{"p": 1, "n": 1}])
    (file,) = live_files(table)
    odd = [msgspec.structs.replace(file, path="a/odd", partition_values=values) for values in ({}, {"p": "x"})]
    for add in odd:
        table = reopen(table)
        put_foreign(table, add)
        for where in ("p = 1", "p IS NULL"):
            with pytest.raises(CorruptLogError, match="has no readable value"):
                table.truncate(where=where)
        with pytest.raises(CorruptLogError, match="has no readable value"):
            table.overwrite([{"p": 1, "n": 2}], dynamic=True)
        put_foreign(table, remove(add))
    assert table.refresh().truncate(where="p = 1").metrics["numRemovedFiles"] == 1
