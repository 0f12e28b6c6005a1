"""Scans, counts and change feeds open only the files that can match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.read.test_scan import mapped_table, put_parquet
from tests.log.support import add, live_files, memory_store, new_table, numbers, put_foreign, put_vector, remove
from tidelog.log import Table
from tidelog.log.errors import CorruptLogError
from tidelog.log.state.loader import load


def grown(partition_by: Sequence[str] = ()) -> Table:
    """Ten files of ten numbers each, alternating between the partitions 0 and 1."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64()), ("p", pa.int64())]), partition_by=partition_by)
    for start in range(0, 100, 10):
        table.insert([{"n": number, "p": start // 10 % 2} for number in range(start, start + 10)])
    return table


def delete_files_except(table: Table, *keep: int) -> None:
    """Delete all data files but those with these numbers, in order of insertion, so that reading one fails."""
    for position, each in enumerate(live_files(table)):
        if position not in keep:
            table.store.delete(each.path)


def test_only_files_that_can_match_are_opened() -> None:
    table = grown()
    delete_files_except(table, 2)
    assert table.scan("n BETWEEN 20 AND 22").to_arrow()["n"].to_pylist() == [20, 21, 22]
    assert table.changes(where="n = 20").to_arrow()["n"].to_pylist() == [20]
    assert table.scan("n > 100").to_arrow().num_rows == 0
    with pytest.raises(CorruptLogError):
        table.scan("n >= 20").to_arrow()


def test_commit_columns_of_the_feed_drop_no_file() -> None:
    table = grown()
    assert table.changes(where="_commit_version = 3 AND n < 100").to_arrow()["n"].to_pylist() == list(range(20, 30))
    delete_files_except(table, 2)
    assert table.changes(where="_commit_version = 3 AND n = 25").to_arrow()["n"].to_pylist() == [25]


def test_explain_counts_the_files_that_each_rule_dropped() -> None:
    text = grown(["p"]).scan("p = 1 AND n < 40", ["n"]).explain()
    assert text.splitlines() == [
        "files: 2 of 10",
        "dropped by partition values: 5",
        "dropped by statistics: 3",
        "columns read: n, p",
        "predicate: p = 1 AND n < 40",
    ]


def test_counting_opens_no_file_with_statistics() -> None:
    table = grown(["p"])
    delete_files_except(table)
    assert table.scan().count() == table.at().num_rows == 100
    assert table.scan("p = 1").count() == 50
    assert table.scan("p = 1 OR p IS NULL", ["n"]).count() == 50
    with pytest.raises(CorruptLogError):
        table.scan("p = 1 AND n < 95").count()


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("n >= 0", 100),
        ("n < 30", 30),
        ("p = 1 AND n >= 40", 30),
        ("NOT (n < 10 OR n >= 90)", 80),
        ("n IS NOT NULL AND n != 200", 100),
    ],
)
def test_counting_opens_no_file_that_statistics_decide(where: str, count: int) -> None:
    table = grown(["p"])
    assert table.scan(where).to_arrow().num_rows == count
    delete_files_except(table)
    assert table.scan(where).count() == count


def test_statistics_decide_nothing_about_nulls_nan_and_arithmetic() -> None:
    schema = pa.schema([("n", pa.int64()), ("f", pa.float64())])
    table = new_table(memory_store(), schema)
    table.insert(pa.table({"n": [1, None], "f": [1.0, float("nan")]}, schema=schema))
    # The null is neither 1 nor another number, and the NaN is not below 2.
    counts = {
        "n = 1": 1,
        "NOT n = 2": 1,
        "n IN (1, 2)": 1,
        "n IN (1, NULL)": 1,
        "f < 2": 1,
        "n + 1 = 2": 1,
        "f != 2": 2,
    }
    assert {where: table.scan(where).count() for where in counts} == counts


def test_counting_reads_only_the_columns_of_the_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown()
    asked: list[list[str]] = []
    iterate = pq.ParquetFile.iter_batches

    def spied(parquet: pq.ParquetFile, *args: Any, columns: list[str], **more: Any) -> Any:
        asked.append(columns)
        return iterate(parquet, *args, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spied)
    assert table.scan("n < 95").count() == 95
    assert table.changes(where="n < 95").count() == 95
    assert asked == [["n"]] * 11
    assert table.changes().count() == 100
    assert asked == [["n"]] * 11


def test_counting_skips_deleted_rows_and_reads_files_without_statistics() -> None:
    table = grown()
    first, second, *_ = live_files(table)
    vector = put_vector(table.store, [0, 1, 2], "dv.bin")
    without_statistics = msgspec.structs.replace(second, stats=None)
    put_foreign(table, remove(first), msgspec.structs.replace(first, deletion_vector=vector), without_statistics)
    table.refresh()
    assert table.scan().count() == 97
    # An impossible row count is ignored.
    wrong_count = msgspec.structs.replace(second, stats='{"numRecords":-1}')
    put_foreign(table, wrong_count)
    assert table.refresh().scan().count() == 97


def test_counting_reads_a_file_that_holds_the_partition_column() -> None:
    table = grown(["p"])
    rows = pa.table({"n": [1, 2, 3], "p": [1, 2, 1]})
    put_parquet(table, "own", rows, partition_values={}, stats='{"numRecords":3}')
    assert table.scan("p = 1").count() == 52
    assert table.scan().count() == 103


def test_null_counts_after_deletions() -> None:
    """With wide bounds, a count of some nulls proves nothing. A count of none or all still does."""
    table = new_table(memory_store(), pa.schema([("n", pa.int64())]))
    for values in ([1, None], [None, None], [1, 2]):
        table.insert([{"n": value} for value in values])
    for position, each in enumerate(live_files(table)):
        stats = (each.stats or "").replace('"tightBounds":true', '"tightBounds":false')
        vector = put_vector(table.store, [position % 2], f"{position}.bin")
        put_foreign(table, remove(each), msgspec.structs.replace(each, deletion_vector=vector, stats=stats))
    table.refresh()
    assert [table.scan(f"n IS {word}").explain().splitlines()[0] for word in ("NULL", "NOT NULL")] == [
        "files: 2 of 3"
    ] * 2
    assert table.scan("n IS NULL").to_arrow()["n"].to_pylist() == [None, None]
    assert table.scan("n IS NOT NULL").to_arrow()["n"].to_pylist() == [2]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_pruned_by_their_physical_names(mode: str) -> None:
    table = mapped_table(mode)
    stats = {"numRecords": 1, "minValues": {"col-1": 5, "n": 1, "col-2": {"col-4": "k"}}, "maxValues": {"col-1": 6}}
    put_foreign(table, add("f", partition_values={"col-3": "a", "p": "b"}, stats=json.dumps(stats)))
    table.refresh()

    def files_of(where: str) -> str:
        return table.scan(where).explain().splitlines()[0]

    dropped = ["n = 7", "n < 5", "p = 'b'", "st.x < 'k'"]
    assert {where: files_of(where) for where in dropped} == dict.fromkeys(dropped, "files: 0 of 1")
    possible = ["n = 5", "p = 'a'", "st.x > 'k'"]
    assert {where: files_of(where) for where in possible} == dict.fromkeys(possible, "files: 1 of 1")


def test_a_refreshed_table_prunes_its_new_files() -> None:
    table = grown()
    assert table.scan("n = 100").count() == 0
    table.insert(numbers(range(100, 110)).append_column("p", pa.array([0] * 10)))
    assert table.scan("n = 100").count() == 1
    assert load(table.store).files().values.rows().to_pylist() == [10] * 11


@pytest.mark.parametrize(
    "where", ["st.a = 12", "st['A'] = '12'", "st.In.c = 'c12'", "st['in'].c > 'c11' AND st.a < 13"]
)
def test_a_field_of_a_struct_prunes_and_changes_rows(where: str) -> None:
    inner = pa.struct([("c", pa.string())])
    schema = pa.schema([("k", pa.int64()), ("st", pa.struct([("a", pa.int64()), ("In", inner)]))])

    def row(k: int) -> dict[str, Any]:
        return {"k": k, "st": {"a": k, "In": {"c": f"c{k:02}"}} if k % 5 else None}

    def filled() -> Table:
        table = new_table(memory_store(), schema)
        for first in (0, 10, 20):
            table.insert([row(k) for k in range(first, first + 10)])
        return table

    assert filled().scan(where).files.num_rows == 1
    assert filled().scan(where).to_arrow()["k"].to_pylist() == [12]
    assert filled().delete(where).metrics["numDeletedRows"] == 1
    assert filled().update(where, {"k": "-1"}).metrics["numUpdatedRows"] == 1
    assert filled().overwrite([], where=where).metrics["numDeletedRows"] == 1
