"""Compactions: the commit, and the rebase over winners."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from tests.log.conflict.tables import filled, rows
from tests.log.support import (
    NUMBERS,
    live_files,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_foreign,
    put_vector,
    read_numbers,
    remove,
    reopen,
    stage_compaction,
)
from tidelog.compaction_daemon import stage
from tidelog.log import Committed, OperationClass, Superseded, Table
from tidelog.log.errors import ConfigurationError, MetadataChangedException
from tidelog.log.format import commit_info, lineage
from tidelog.log.format.actions import AddFile, SetTransaction
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load


@pytest.fixture
def table() -> Table:
    """Four files with one row each."""
    table = new_table(memory_store(), NUMBERS)
    for number in range(4):
        table.insert(numbers([number]))
    return table


def committed(outcome: Committed | Superseded) -> Committed:
    assert isinstance(outcome, Committed)
    return outcome


def test_a_compaction_moves_rows_and_changes_none(table: Table) -> None:
    before = live_files(table)
    result = committed(stage_compaction(table).commit())
    assert result.version == 5
    assert read_numbers(table) == read_numbers(reopen(table)) == [0, 1, 2, 3]
    (after,) = live_files(table)
    assert result.metrics == {
        "numRemovedFiles": 4,
        "numRemovedBytes": sum(file.size for file in before),
        "numAddedFiles": 1,
        "numAddedBytes": after.size,
    }


def test_the_commit_of_a_compaction_changes_no_data_and_records_lineage(table: Table) -> None:
    before = live_files(table)
    stage_compaction(table).commit()
    commit = read_commit(table.store, 5)
    assert not commit.data_change
    assert [action.key for action in commit.removes] == [file.key for file in before]
    assert commit.info["operation"] == "OPTIMIZE"
    assert commit.info["isolationLevel"] == "SnapshotIsolation"
    assert commit.info["isBlindAppend"] is False
    assert commit.info["readVersion"] == 4
    record = commit_info.tidelog(commit.info)
    assert record["class"] == "MINOR"
    found = lineage.from_builtins(record["lineage"])
    assert found is not None
    (group,) = found.groups
    assert [(part.path, part.dv_id, part.rows) for part in group.inputs] == [(file.path, None, 1) for file in before]
    assert [(part.path, part.rows) for part in group.outputs] == [(commit.adds[0].path, 4)]


def test_a_compaction_is_rebased_over_inserts(table: Table) -> None:
    transaction = stage_compaction(table)
    reopen(table).insert(numbers([4]))
    reopen(table).insert(numbers([5]))
    result = committed(transaction.commit())
    assert (result.version, result.rebased_over, result.retried) == (7, (5, 6), True)
    assert read_numbers(table) == [0, 1, 2, 3, 4, 5]
    assert len(live_files(table)) == 3
    assert read_commit(table.store, 7).info["readVersion"] == 6
    assert transaction.dropped == ()


def test_an_insert_is_rebased_over_a_compaction(table: Table) -> None:
    transaction = table.begin().insert(numbers([4]))
    stage_compaction(reopen(table)).commit()
    result = committed(transaction.commit())
    assert (result.version, result.rebased_over, result.retried) == (6, (5,), True)
    assert read_numbers(table) == [0, 1, 2, 3, 4]


def test_a_compaction_of_the_same_files_is_superseded(table: Table) -> None:
    second = stage_compaction(table)
    stage_compaction(reopen(table)).commit()
    assert second.commit() == Superseded(by=5)
    assert len(second.dropped) == 1
    assert reopen(table).version == 5
    assert table.version == 5, "the table object moved to the winner's version"
    assert read_numbers(table) == [0, 1, 2, 3]


@pytest.mark.parametrize("position", [0, 1])
def test_a_group_that_lost_its_inputs_is_dropped_and_the_other_is_committed(table: Table, position: int) -> None:
    files = live_files(table)
    groups = [files[:2], files[2:]]
    transaction = stage_compaction(table, *groups)
    lost = groups[position]
    stage_compaction(reopen(table), lost).commit()
    result = committed(transaction.commit())
    assert (result.version, result.rebased_over) == (6, (5,))
    assert [[part.path for part in group.inputs] for group in transaction.dropped] == [[file.path for file in lost]]
    assert read_numbers(table) == read_numbers(reopen(table)) == [0, 1, 2, 3]
    assert len(live_files(table)) == 2
    commit = read_commit(table.store, 6)
    kept = groups[1 - position]
    assert [action.path for action in commit.removes] == [file.path for file in kept]
    record = lineage.from_builtins(commit_info.tidelog(commit.info)["lineage"])
    assert record is not None
    assert [[part.path for part in group.inputs] for group in record.groups] == [[file.path for file in kept]]


def test_metrics_describe_the_commit_after_a_rebase(table: Table) -> None:
    files = live_files(table)
    transaction = stage_compaction(table, files[:2], files[2:])
    stage_compaction(reopen(table), files[:2]).commit()
    result = committed(transaction.commit())
    commit = read_commit(table.store, 6)
    expected = {
        "numRemovedFiles": 2,
        "numRemovedBytes": sum(action.size or 0 for action in commit.removes),
        "numAddedFiles": 1,
        "numAddedBytes": sum(action.size for action in commit.adds),
    }
    assert result.metrics == expected
    assert commit.info["operationMetrics"] == {name: str(value) for name, value in expected.items()}


def test_a_compaction_that_loses_all_groups_to_several_winners_is_superseded(table: Table) -> None:
    files = live_files(table)
    transaction = stage_compaction(table, files[:2], files[2:])
    stage_compaction(reopen(table), files[:2]).commit()
    reopen(table).insert(numbers([4]))
    stage_compaction(reopen(table), files[2:]).commit()
    reopen(table).insert(numbers([5]))
    assert transaction.commit() == Superseded(by=7), "the version that took the last group"
    assert len(transaction.dropped) == 2
    assert read_numbers(table) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("how", ["removed", "deletion vector", "re-added"])
def test_a_compaction_keeps_another_engines_change_of_an_input(table: Table, how: str) -> None:
    files = live_files(table)
    transaction = stage_compaction(table, files[:2], files[2:])
    victim = files[0]
    if how == "removed":
        put_foreign(table, remove(victim))
        expected = [1, 2, 3]
    elif how == "deletion vector":
        vector = put_vector(table.store, [0], "dv.bin")
        put_foreign(table, remove(victim), msgspec.structs.replace(victim, deletion_vector=vector))
        expected = [1, 2, 3]
    else:
        put_foreign(table, msgspec.structs.replace(victim, data_change=False, tags={"t": "v"}))
        expected = [0, 1, 2, 3]
    committed(transaction.commit())
    assert transaction.dropped == ()
    assert read_numbers(table) == read_numbers(reopen(table)) == expected
    assert len(live_files(reopen(table))) == 2


def test_a_compaction_does_not_lose_a_restored_file(table: Table) -> None:
    """RESTORE by another engine: a removed file is added again under the same path."""
    files = live_files(table)
    transaction = stage_compaction(table, files[:2])
    put_foreign(table, remove(files[0]))
    put_foreign(table, files[0])
    assert isinstance(transaction.commit(), Superseded)
    assert read_numbers(reopen(table)) == [0, 1, 2, 3]


def test_rows_of_an_unrelated_delete_stay_deleted(table: Table) -> None:
    files = live_files(table)
    transaction = stage_compaction(table, files[:2])
    put_foreign(table, remove(files[3]))
    assert committed(transaction.commit()).rebased_over == (5,)
    assert read_numbers(table) == [0, 1, 2]


def test_a_compaction_is_rebased_over_progress_of_a_stream(table: Table) -> None:
    transaction = stage_compaction(table)
    put_foreign(table, SetTransaction(app_id="stream", version=7))
    committed(transaction.commit())
    assert table.transactions == {"stream": 7}


def test_a_compaction_conflicts_with_a_schema_change(table: Table) -> None:
    transaction = stage_compaction(table)
    old = load(table.store).head.metadata
    required = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    put_foreign(table, metadata(required, id=old.id, configuration=old.configuration))
    with pytest.raises(MetadataChangedException):
        transaction.commit()
    assert read_numbers(reopen(table)) == [0, 1, 2, 3]


def test_a_compaction_is_rebased_over_a_new_nullable_column(table: Table) -> None:
    transaction = stage_compaction(table)
    old = load(table.store).head.metadata
    wider = pa.schema([("n", pa.int64()), ("s", pa.string())])
    put_foreign(table, metadata(wider, id=old.id, configuration=old.configuration))
    committed(transaction.commit())
    assert sorted(row["n"] for row in table.scan().to_arrow().to_pylist()) == [0, 1, 2, 3]


def test_an_append_only_table_can_be_compacted() -> None:
    table = new_table(memory_store(), properties={"delta.appendOnly": True})
    table.insert(numbers([1]))
    table.insert(numbers([2]))
    committed(stage_compaction(table).commit())
    assert read_numbers(table) == [1, 2]


def test_a_compaction_keeps_partitions() -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.string())])
    table = new_table(memory_store(), schema, partition_by=["p"])
    for number in range(4):
        table.insert([{"n": number, "p": "a"}, {"n": 10 + number, "p": None}])
    by_value: dict[str | None, list[AddFile]] = {}
    for file in live_files(table):
        by_value.setdefault(file.partition_values["p"], []).append(file)
    committed(stage_compaction(table, *by_value.values()).commit())
    assert {file.partition_values["p"] for file in live_files(table)} == {"a", None}
    assert table.at().num_files == 2
    rows = table.scan(where="p = 'a'").to_arrow()["n"].to_pylist()
    assert rows == [0, 1, 2, 3]


def test_staging_twice_or_nothing_is_refused(table: Table) -> None:
    transaction = stage_compaction(table)
    with pytest.raises(ConfigurationError):
        transaction.stage_moves([], operation_class=OperationClass.MINOR)
    empty = table.begin().stage_moves([], operation_class=OperationClass.MINOR)
    assert committed(empty.commit()).version == 4
    assert reopen(table).version == 4


def test_a_major_compaction_is_recorded_as_one(table: Table) -> None:
    stage_compaction(table, operation_class=OperationClass.MAJOR).commit()
    assert table.history(1)[0].operation_class == OperationClass.MAJOR


def test_metrics_count_the_files_that_the_commit_removed() -> None:
    table = filled((1, 1), (2, 2), (3, 3))
    major = stage(reopen(table), "major")
    stage(reopen(table), "minor").commit()
    outcome = committed(major.commit())
    assert outcome.metrics["numRemovedFiles"] == len(read_commit(table.store, outcome.version).removes) == 1


def test_a_minor_compaction_does_not_move_rows_that_a_major_one_placed() -> None:
    table = filled((1, 1), (2, 2), (3, 3))
    a, b, c = live_files(table)
    minor = stage_compaction(reopen(table), [a, c])
    stage_compaction(reopen(table), [a, b], operation_class=OperationClass.MAJOR).commit()
    (placed,) = [file for file in live_files(reopen(table)) if file.path != c.path]
    outcome = minor.commit()
    assert isinstance(outcome, Committed)
    assert outcome.metrics["numRemovedFiles"] == 1
    after = {file.path: file for file in live_files(reopen(table))}
    assert after[placed.path] == placed, "the output of the major compaction is unchanged"
    assert c.path not in after
    assert rows(table) == [(1, 1), (2, 2), (3, 3)]
