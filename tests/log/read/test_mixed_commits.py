"""Commits that take rows away and add rows, without change files: which rows changed, and how."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import live_files, memory_store, new_table, put_commit, put_vector, remove, stage_compaction
from tests.randomness import seed
from tidelog.log import Table, predicate
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.format.actions import Action, AddFile, Commit
from tidelog.log.read import mixed_commits
from tidelog.log.read.commit_changes import changed_rows, commit_changes, read_change_batches
from tidelog.log.read.mixed_commits import Change, MixedFiles, pruned
from tidelog.log.state.loader import load

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
COPIES = {"delta.enableDeletionVectors": False}
NAMES = ("k", "v", "p")
Row = tuple[Any, ...]


def table_of(*rows: Row, partitioned: bool = False, **properties: object) -> Table:
    given = {**COPIES, **{name.replace("_", "."): value for name, value in properties.items()}}
    table = new_table(memory_store(), SCHEMA, partition_by=["p"] if partitioned else [], properties=given)
    table.insert(dicts(rows))
    return table


def dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


def written(table: Table, *rows: Row) -> list[AddFile]:
    """Files with these rows, as another writer would add them."""
    writer = DataWriter(table.store, load(table.store).head.metadata, table._system)
    return writer.write(pa.Table.from_pylist(dicts(rows), table.schema))


def foreign(table: Table, *actions: Action, operation: str = "MERGE", **parameters: str) -> None:
    head = load(table.store).head
    info = {"operation": operation, "operationParameters": parameters, "inCommitTimestamp": head.timestamp_ms + 1}
    put_commit(table.store, head.version + 1, *actions, info=info)


def changes(table: Table, **options: Any) -> list[tuple[Any, ...]]:
    """The changes of the newest version, in order: the change type and the values of a row."""
    found = table.changes(after=table.refresh().version - 1, **options).to_arrow()
    names = [name for name in ("_change_type", *NAMES) if name in found.column_names]
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def newest(table: Table) -> tuple[Commit, int]:
    table.refresh()
    return next(table.timeline.newest_first())


def units(table: Table) -> list[Change]:
    commit, stamp = newest(table)
    return commit_changes(commit, stamp, "cdc", table.change_source)


# --- which rows changed ----------------------------------------------------------------------------------------------


def test_rows_that_were_copied_are_no_changes() -> None:
    table = table_of((1, 10, "a"), (2, 20, "a"), (3, 30, "a"))
    table.delete("k = 2")
    assert changes(table) == [("delete", 2, 20, "a")]
    table.update("k = 3", {"v": "31"})
    assert changes(table) == [("update_preimage", 3, 30, "a"), ("update_postimage", 3, 31, "a")]
    table.update("k > 0", {"v": "v"})
    assert changes(table) == []


def test_equal_rows_cancel_each_other_one_by_one() -> None:
    table = table_of(*[(1, 10, "a")] * 3, (2, 20, "a"))
    (file,) = live_files(table)
    foreign(table, remove(file), *written(table, (1, 10, "a"), *[(2, 20, "a")] * 3))
    assert changes(table) == [("delete", 1, 10, "a")] * 2 + [("insert", 2, 20, "a")] * 2


def test_a_row_differs_if_any_column_does_even_one_that_is_not_read() -> None:
    table = table_of((1, 10, "a"), (2, 20, None))
    (file,) = live_files(table)
    foreign(table, remove(file), *written(table, (1, 11, "a"), (2, 20, None)))
    stamps = ["-_commit_version", "-_commit_timestamp"]
    assert changes(table, columns=["k", "-_change_type", *stamps]) == [(1,), (1,)]
    assert changes(table, columns=["_change_type", "k", *stamps]) == [("delete", 1), ("insert", 1)]
    assert table.changes(after=1).count() == 2
    assert table.changes(after=1, columns=[]).to_arrow().num_rows == 2
    found = table.changes(after=1, columns=["_commit_version", "_commit_timestamp"]).to_arrow()
    assert found["_commit_version"].to_pylist() == [2, 2]


def test_deletes_come_before_inserts_each_in_the_order_of_the_files() -> None:
    table = table_of((1, 1, "a"), (2, 2, "a"), (3, 3, "a"))
    table.insert(dicts([(4, 4, "a"), (5, 5, "a")]))
    old = live_files(table)
    new = [*written(table, (9, 9, "a"), (3, 3, "a")), *written(table, (5, 5, "a"), (8, 8, "a"))]
    foreign(table, *new, *map(remove, old))
    expected = [("delete", n, n, "a") for n in (1, 2, 4)] + [("insert", n, n, "a") for n in (9, 8)]
    assert changes(table) == expected


@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
def test_an_update_that_moves_rows_to_other_partitions(vectors: bool) -> None:
    table = table_of((1, 10, "a"), (2, 20, "b"), partitioned=True, delta_enableDeletionVectors=vectors)
    table.update("k = 1", {"p": "'b'"})
    assert changes(table) == [("update_preimage", 1, 10, "a"), ("update_postimage", 1, 10, "b")]


# --- change types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
def test_an_upsert_has_images_for_keys_that_were_there(vectors: bool) -> None:
    table = table_of((1, 10, "a"), (2, 20, "a"), (3, 30, "a"), (4, 40, "a"), delta_enableDeletionVectors=vectors)
    table.upsert([*dicts([(1, 11, "a"), (2, -1, "a"), (3, 30, "a"), (5, 50, "a")])], keys=["k"], delete_where="v < 0")
    assert sorted(changes(table)) == [
        ("delete", 2, 20, "a"),
        ("insert", 5, 50, "a"),
        ("update_postimage", 1, 11, "a"),
        ("update_preimage", 1, 10, "a"),
    ]


def test_the_first_of_several_rows_of_a_key_is_replaced_and_the_others_are_deleted() -> None:
    """As in change files."""
    expected = [("delete", 1, 20), ("delete", 1, 30), ("update_postimage", 1, 40), ("update_preimage", 1, 10)]
    for feed in (False, True):
        table = table_of((1, 10, "a"), (1, 20, "a"), delta_enableChangeDataFeed=feed)
        table.insert(dicts([(1, 30, "a")]))
        table.upsert(dicts([(1, 40, "a")]), keys=["k"])
        assert sorted(change[:3] for change in changes(table)) == expected


@pytest.mark.parametrize("key", ["k", "k,p", None])
def test_a_merge_of_another_engine_has_images_if_the_table_declares_its_key(key: str | None) -> None:
    table = table_of((1, 10, "a"), (2, 20, "b"), partitioned=True, **({"tidelog_primaryKey": key} if key else {}))
    files = live_files(table)
    foreign(table, *map(remove, files), *written(table, (1, 11, "a"), (2, 20, "b"), (3, 30, "b")))
    labels = ("update_preimage", "update_postimage") if key else ("delete", "insert")
    assert sorted(changes(table)) == sorted([(labels[0], 1, 10, "a"), (labels[1], 1, 11, "a"), ("insert", 3, 30, "b")])


def test_keys_that_the_table_no_longer_has_are_ignored() -> None:
    table = table_of((1, 10, "a"), tidelog_primaryKey="k")
    (file,) = live_files(table)
    foreign(table, remove(file), *written(table, (1, 11, "a")))
    commit, stamp = newest(table)
    head = load(table.store).head
    other = msgspec.structs.replace(head.metadata, configuration={"tidelog.primaryKey": "gone"})
    source = type(table.change_source)(table.store, other)
    (change,) = commit_changes(commit, stamp, "cdc", source)
    assert isinstance(change, MixedFiles)
    assert change.keys == ()


@pytest.mark.parametrize(
    ("operation", "parameters", "is_overwrite"),
    [
        ("WRITE", {"mode": "Overwrite"}, True),
        ("WRITE", {"mode": "Overwrite", "predicate": "(p = 'a')"}, True),
        ("WRITE", {"mode": "Overwrite", "predicate": "(v >= 10)"}, False),
        ("WRITE", {"mode": "Overwrite", "predicate": "nobody knows"}, False),
        ("WRITE", {"mode": "Append"}, False),
        ("STREAMING UPDATE", {"outputMode": "Complete"}, True),
        ("STREAMING UPDATE", {"outputMode": "Append"}, False),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, True),
        ("REPLACE TABLE", {}, True),
        ("RESTORE", {}, False),
        ("MERGE", {}, False),
        ("", {}, False),
    ],
)
def test_an_overwrite_of_another_engine_is_all_deletes_and_inserts(
    operation: str, parameters: Mapping[str, str], is_overwrite: bool
) -> None:
    """delta-spark shows it so. Otherwise rows that are there again did not change."""
    table = table_of((1, 10, "a"), (2, 20, "a"), partitioned=True)
    (file,) = live_files(table)
    foreign(table, remove(file), *written(table, (1, 10, "a"), (3, 30, "a")), operation=operation, **parameters)
    both = [("delete", 1, 10, "a")] * is_overwrite, [("insert", 1, 10, "a")] * is_overwrite
    assert changes(table) == [*both[0], ("delete", 2, 20, "a"), *both[1], ("insert", 3, 30, "a")]


def test_an_overwrite_shows_all_rows_it_replaces() -> None:
    table = table_of((1, 10, "a"), (2, 20, "a"))
    table.overwrite(dicts([(1, 10, "a")]))
    assert changes(table) == [("delete", 1, 10, "a"), ("delete", 2, 20, "a"), ("insert", 1, 10, "a")]
    table.truncate()
    assert changes(table) == [("delete", 1, 10, "a")]


def test_a_restore_shows_what_differs() -> None:
    """It brings back the files of before an update, and those hold the rows that the update left as they were."""
    table = table_of((1, 10, "a"), (2, 20, "a"))
    table.update("k = 1", {"v": "11"})
    table.restore(version=1)
    assert changes(table) == [("delete", 1, 11, "a"), ("insert", 1, 10, "a")]


# --- deletion vectors ------------------------------------------------------------------------------------------------


def with_vectors(before: Sequence[int] | None, after: Sequence[int] | None, operation: str) -> Table:
    """A file of which the rows `before` are dead, and then the rows `after`."""
    table = table_of(*[(n, n, "a") for n in range(6)], delta_enableDeletionVectors=True)
    (file,) = live_files(table)
    for number, positions in enumerate((before, after)):
        vector = None if positions is None else put_vector(table.store, positions, f"{number}.bin")
        new = msgspec.structs.replace(file, deletion_vector=vector)
        foreign(table, remove(file), new, operation=operation)
        file = new
    return table


@pytest.mark.parametrize(
    ("before", "after", "operation", "gone", "back", "number"),
    [
        (None, [1], "DELETE", [1], [], 1),
        ([1], [1, 2], "DELETE", [2], [], 1),
        ([1, 2], [1], "RESTORE", [], [2], 1),
        ([1], None, "RESTORE", [], [1], 1),
        ([1, 2], [2, 3, 4], "RESTORE", [3, 4], [1], 1),
        ([1, 2], [3, 4], "RESTORE", [3, 4], [1, 2], 1),
        ([1, 2], [3, 4], "", [3, 4], [1, 2], 1),
        ([1, 2, 3], [4, 3], "", [4], [1, 2], 1),
    ],
)
def test_two_vectors_differ_in_the_rows_that_died_and_came_back(
    before: Sequence[int] | None, after: Sequence[int] | None, operation: str, gone: Any, back: Any, number: int
) -> None:
    table = with_vectors(before, after, operation)
    assert changes(table) == [*(("delete", n, n, "a") for n in gone), *(("insert", n, n, "a") for n in back)]
    assert len(units(table)) == number


def test_units_without_rows_are_left_out() -> None:
    table = table_of((1, 10, "a"), delta_enableDeletionVectors=True)
    (file,) = live_files(table)
    none = '{"numRecords":0}'
    foreign(table, msgspec.structs.replace(file, path="empty", stats=none), operation="WRITE")
    assert units(table) == []
    assert changes(table, mode="append") == []
    table.insert(dicts([(2, 20, "a")]))
    assert [unit.rows for unit in units(table)] == [1]


def test_metadata_compactions_and_empty_commits_have_no_units() -> None:
    table = table_of((1, 10, "a"))
    table.insert(dicts([(2, 20, "a")]))
    stage_compaction(table).commit()
    assert units(table) == []
    table.set_properties({"mine": "1"})
    assert units(table) == []
    foreign(table, operation="")
    assert units(table) == []
    assert table.changes(after=2).to_arrow().num_rows == 0


# --- append ----------------------------------------------------------------------------------------------------------


def test_append_mode_can_skip_commits_that_changed_rows() -> None:
    table = table_of((1, 10, "a"), (2, 20, "a"))
    table.delete("k = 1")
    table.insert(dicts([(3, 30, "a")]))
    found = list(table.timeline.between(0, table.version))
    assert [changed_rows(commit) for commit, _ in found] == [False, True, False]
    source = table.change_source
    kept = [commit_changes(commit, stamp, "append", source, skip_changes=True) for commit, stamp in found]
    assert [len(files) for files in kept] == [1, 0, 1]
    with pytest.raises(NotAppendOnlyError, match="version 2"):
        commit_changes(*found[1], "append", source)


# --- units -----------------------------------------------------------------------------------------------------------


def test_a_rewrite_is_split_by_partition_and_picklable() -> None:
    table = table_of(*[(n, n, "abcd"[n % 4]) for n in range(16)], partitioned=True)
    table.delete("k = 0 OR k = 1 OR p = 'c'")
    found = units(table)
    assert [type(unit).__name__ for unit in found] == ["ChangeFile", "MixedFiles", "MixedFiles"]
    for unit in found:
        assert unit.version == table.version
        assert unit.num_files == len(unit.files)
        assert unit.size_bytes == sum(file.size_bytes for file in unit.files)
        assert unit.rows is not None
        copy = pickle.loads(pickle.dumps(unit))
        assert copy == unit
        one, other = (
            pa.Table.from_batches(read_change_batches(table.store, given, SCHEMA), schema=SCHEMA)
            for given in (unit, copy)
        )
        assert one == other
    assert Counter(changes(table)) == Counter(("delete", n, n, "abcd"[n % 4]) for n in (0, 1, 2, 6, 10, 14))


def test_partitions_are_the_same_if_their_values_are() -> None:
    """Writers do not agree on the text of a timestamp or a number."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    table = new_table(memory_store(), schema, partition_by=["t"], properties=COPIES)
    table.insert(pa.table({"k": [1], "t": pa.array([0], schema.field("t").type)}))
    (file,) = live_files(table)
    assert file.partition_values == {"t": "1970-01-01T00:00:00.000000Z"}
    (new,) = DataWriter(table.store, load(table.store).head.metadata, table._system).write(table.scan().to_arrow())
    foreign(table, remove(file), msgspec.structs.replace(new, partition_values={"t": "1970-01-01 00:00:00"}))
    assert table.changes(after=1).count() == 0
    (unit,) = units(table)
    assert isinstance(unit, MixedFiles)


@pytest.mark.parametrize("partitioned", [False, True])
def test_pruning_by_statistics_loses_no_change_and_makes_none(partitioned: bool) -> None:
    """A file that is left out on one side can hold the equal of a row on the other."""
    table = table_of((1, 10, "a"), (2, 20, "a"), partitioned=partitioned)
    table.insert(dicts([(3, 30, "a"), (4, 40, "a")]))
    old = live_files(table)
    new = [*written(table, (1, 10, "a"), (4, 40, "a"), (5, 50, "a")), *written(table, (2, 20, "a"), (3, 31, "a"))]
    foreign(table, *map(remove, old), *new)
    every = changes(table)
    assert every == [("delete", 3, 30, "a"), ("insert", 5, 50, "a"), ("insert", 3, 31, "a")]
    cases: dict[str, Callable[[Row], bool]] = {
        "k <= 2": lambda row: row[1] <= 2,
        "k >= 4": lambda row: row[1] >= 4,
        "k = 3": lambda row: row[1] == 3,
        "v > 30": lambda row: row[2] > 30,
        "v <= 30": lambda row: row[2] <= 30,
        "_change_type = 'insert' AND v < 45": lambda row: row[0] == "insert" and row[2] < 45,
    }
    for where, test in cases.items():
        assert changes(table, where=where) == [row for row in every if test(row)], where


def test_files_that_cannot_match_are_not_opened() -> None:
    table = table_of((1, 10, "a"), (2, 20, "a"))
    table.insert(dicts([(3, 30, "a")]))
    table.update("k >= 1", {"v": "v + 1"})
    (unit,) = units(table)
    tree = predicate.parse("v = 30", SCHEMA)
    kept = pruned([unit], tree, SCHEMA, load(table.store).head.metadata)
    assert sum(change.num_files for change in kept) < unit.num_files


def test_with_keys_the_change_type_does_not_depend_on_the_predicate() -> None:
    """The old row alone does not match, but without it the new one would look like an insert."""
    table = table_of((1, 10, "a"), (2, 20, "a"))
    table.upsert(dicts([(1, 1000, "a"), (3, 2000, "a")]), keys=["k"])
    assert changes(table, where="v >= 1000") == [("update_postimage", 1, 1000, "a"), ("insert", 3, 2000, "a")]
    assert changes(table, where="v < 1000") == [("update_preimage", 1, 10, "a")]


# --- many rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [2**23, 64, 8])
def test_the_result_does_not_depend_on_the_memory_that_is_used(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little memory there are several passes over the hashes, many if no row has an equal."""
    monkeypatch.setattr(mixed_commits, "MAX_WAITING_ROWS", bound)
    monkeypatch.setattr(mixed_commits, "_FIRST_COMPARISON_ROWS", min(bound, 16))
    randomness = random.Random(seed())
    for share in (0.02, 0.5, 1.0):
        old = [(n % 40, randomness.randrange(3), "a") for n in range(120)]
        table = table_of(*old[:70])
        table.insert(dicts(old[70:]))
        new = [(k, v + 10, p) if randomness.random() < share else (k, v, p) for k, v, p in old]
        randomness.shuffle(new)
        foreign(table, *map(remove, live_files(table)), *written(table, *new[:50]), *written(table, *new[50:]))
        before, after = Counter(old), Counter(new)
        found = Counter(changes(table))
        assert found == Counter(
            [("delete", *row) for row in (before - after).elements()]
            + [("insert", *row) for row in (after - before).elements()]
        )
