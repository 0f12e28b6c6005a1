"""MAJOR compactions: the same rows in better files, invisible to readers."""

from __future__ import annotations

import random
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.compaction_daemon.compaction.test_compaction import data_files
from tests.compaction_daemon.support import (
    SCHEMA,
    delete_rows,
    live_files,
    logged_paths,
    memory_table,
    numbers_of,
    put,
)
from tidelog.compaction_daemon import compact, plan, stage
from tidelog.compaction_daemon.compaction import compaction
from tidelog.compaction_daemon.planning.candidates import MIN_DEAD_SHARE
from tidelog.log import OperationClass, Table
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.reader import DataFile, physical_rows
from tidelog.log.errors import DataFileDamagedError
from tidelog.log.format import commit_info, lineage
from tidelog.log.format.actions import AddFile
from tidelog.log.state.commits import read_commit


def random_numbers(count: int, seed: int = 1) -> list[int]:
    chance = random.Random(seed)
    return [chance.getrandbits(62) for _ in range(count)]


def test_readers_see_the_same_rows_in_fewer_files() -> None:
    table = memory_table()
    for number in range(3):
        put(table, number, number + 10)
        put(table, number, part="b")
    table.delete("n = 11")
    rows, changes = numbers_of(table, part="a"), table.refresh().changes().to_arrow()
    time_version = table.time_version
    report = compact(table, "major")
    assert (report.version, report.groups, report.files_removed, report.files_added) == (8, 2, 6, 2)
    assert (report.groups_left, report.wasted_bytes) == (0, 0)
    assert numbers_of(table, part="a") == [0, 10, 1, 2, 12], "in the order of their commits"
    assert sorted(rows) == [0, 1, 2, 10, 12]
    assert numbers_of(table, part="b") == [0, 1, 2]
    assert (table.version, table.time_version) == (8, time_version)
    assert table.changes().to_arrow().equals(changes)
    assert table.changes(after=7).to_arrow().num_rows == 0
    record = table.history(1)[0]
    assert (record.operation_class, record.time_version) == (OperationClass.MAJOR, None)
    assert all(add.deletion_vector is None for add in live_files(table))
    assert Table.open(table.path).at(version=7).scan().count() == 8
    assert not compact(table, "major").did_anything
    assert not compact(table).did_anything


def test_only_the_partitions_asked_for_are_rewritten() -> None:
    table = memory_table()
    for number in range(2):
        for part in ("a", "b", None):
            put(table, number, part=part)
    assert compact(table, "major", where="part is null").groups == 1
    assert sorted(add.partition_values["part"] or "" for add in live_files(table)) == ["", "a", "a", "b", "b"]
    assert compact(table, where="part = 'b'").groups == 1
    assert len(live_files(table)) == 4
    assert compact(table, "major", where="part = 'b'").version is None


def test_files_with_a_tenth_of_dead_rows_are_rewritten_and_all_of_them_with_purge() -> None:
    table = memory_table(**{"tidelog.targetFileSize": 1000})
    wanted = random_numbers(200)
    put(table, *wanted[:100])
    put(table, *wanted[100:])
    delete_rows(table, [0], file=0)
    delete_rows(table, range(10), file=1)
    assert MIN_DEAD_SHARE == 0.1
    before = numbers_of(table)
    assert compact(table, "major").files_removed == 1
    assert numbers_of(table) == before
    assert sorted(physical_rows(table.store, DataFile.of(add)) for add in live_files(table)) == [90, 100]
    assert compact(table, "major").version is None
    assert compact(table, "major", purge=True).files_removed == 1
    assert sorted(physical_rows(table.store, DataFile.of(add)) for add in live_files(table)) == [90, 99]
    assert sorted(numbers_of(table)) == sorted(before)
    assert compact(table, "major", purge=True).version is None


def test_rows_beyond_the_target_become_several_files_in_order() -> None:
    table = memory_table(**{"tidelog.targetFileSize": "16 KiB"})
    wanted = random_numbers(12_000)
    for start in range(0, 12_000, 1000):
        put(table, *wanted[start : start + 1000])
    sizes = [add.size for add in live_files(table)]
    report = compact(table, "major")
    assert report.files_added == round(sum(sizes) / (16 * 1024)) > 4
    assert numbers_of(table) == wanted
    found = live_files(table)
    assert min(add.size for add in found) >= 12 * 1024
    assert max(add.size for add in found) < 24 * 1024
    recorded = lineage.from_builtins(commit_info.tidelog(read_commit(table.store, table.version).info)["lineage"])
    assert recorded is not None
    (group,) = recorded.groups
    assert [entry.path for entry in group.outputs] == [add.path for add in found]
    assert [entry.rows for entry in group.outputs] == [physical_rows(table.store, DataFile.of(add)) for add in found]
    assert sum(entry.rows for entry in group.inputs) == sum(entry.rows for entry in group.outputs) == 12_000
    assert group.row_map is None
    assert plan(table, "major").groups == plan(table).groups == ()


def test_the_outputs_keep_their_place_among_other_files() -> None:
    table = memory_table(**{"tidelog.targetFileSize": "8 KiB"})
    for seed in range(3):
        put(table, *random_numbers(500, seed))
    inputs = live_files(table)
    compact(table, "major")
    assert {add.modification_time for add in live_files(table)} == {max(add.modification_time for add in inputs)}
    assert {tuple((add.tags or {}).items()) for add in live_files(table)} == {
        (("tidelog.oldestCommit", str(min(add.modification_time for add in inputs))),)
    }


def test_compactions_of_random_histories_end_with_the_same_rows() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = memory_table(**{"tidelog.targetFileSize": "8 KiB"})
    for _ in range(25):
        put(table, *[chance.getrandbits(40) for _ in range(chance.randint(1, 1500))], part=chance.choice("ab"))
        if chance.random() < 0.3:
            low = chance.getrandbits(40)
            table.delete(f"n between {low} and {low + 2 ** chance.randint(34, 39)}")
        if chance.random() < 0.2:
            compact(table, chance.choice(["minor", "major"]))
    rows = {part: numbers_of(table, part=part) for part in "ab"}
    for purge in (False, True):
        for _ in range(10):
            if not compact(table, "major", purge=purge).did_anything:
                break
        assert not compact(table, "major", purge=purge).did_anything
        assert {part: sorted(numbers_of(table, part=part)) for part in "ab"} == {
            part: sorted(found) for part, found in rows.items()
        }
    assert all(add.deletion_vector is None for add in live_files(table))
    assert data_files(table) >= {add.path for add in live_files(table)}
    assert data_files(table) == logged_paths(table)


# --- files without a live row ----------------------------------------------------------------------------------------


def wholly_dead(table: Table) -> AddFile:
    """A file without a live row, which a deletion vector keeps in the table."""
    put(table, 1, 2)
    put(table, 3, *range(10, 100))
    delete_rows(table, [0])
    table.delete("n = 2")
    (dead,) = [add for add in live_files(table) if add.deletion_vector]
    assert dead.deletion_vector is not None
    assert len(read_dead_rows(table.store, dead.deletion_vector)) == 2
    return dead


@pytest.mark.parametrize("level", ["minor", "major"])
def test_a_dead_file_is_dropped_without_reading_its_rows(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory_table(**{"tidelog.targetFileSize": 100})
    dead = wholly_dead(table)
    time_version, changes = table.refresh().time_version, table.changes().to_arrow()
    monkeypatch.setattr("tidelog.compaction_daemon.rewriting.inputs.read_coded_batches", None)
    report = compact(table, level)
    assert (report.groups, report.files_removed, report.files_added) == (1, 1, 0)
    assert (report.bytes_read, report.bytes_written) == (0, 0)
    assert dead.key not in {add.key for add in live_files(table)}
    assert numbers_of(table) == [3, *range(10, 100)]
    assert table.time_version == time_version
    assert table.changes().to_arrow().equals(changes)
    (group,) = recorded_groups(table)
    assert [(entry.path, entry.rows) for entry in group.inputs] == [(dead.path, 2)]
    assert group.outputs == ()
    assert compact(table, level).version is None


def recorded_groups(table: Table) -> tuple[lineage.LineageGroup, ...]:
    recorded = lineage.from_builtins(commit_info.tidelog(read_commit(table.store, table.version).info)["lineage"])
    assert recorded is not None
    return recorded.groups


def test_a_file_whose_statistics_count_too_few_rows_loses_none() -> None:
    """Another writer's statistics say that every row is dead; the footer counts, and the live rows are written."""
    table = memory_table(**{"tidelog.targetFileSize": 100})
    put(table, *range(5))
    delete_rows(table, [0, 1])
    (add,) = live_files(table)
    path = f"_delta_log/{table.version:020}.json"
    content = table.store.read(path)
    lying = content.replace(b'\\"numRecords\\":5', b'\\"numRecords\\":2')
    assert lying != content
    table.store.replace(path, lying)
    table.store.delete(f"_delta_log/{table.version:020}.crc")
    opened = Table.open(table.path)
    assert [group.outputs for group in plan(opened).groups] == [0]
    compact(opened)
    assert numbers_of(opened) == [2, 3, 4]
    assert live_files(opened)[0].path != add.path


# --- the bounds ------------------------------------------------------------------------------------------------------


def test_one_commit_rewrites_a_bounded_number_of_bytes_and_reports_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = memory_table()
    for part in "abc":
        put(table, 1, part=part)
        put(table, 2, part=part)
    monkeypatch.setattr(compaction, "MAX_MAJOR_BYTES", 4 * live_files(table)[0].size)
    reports = [compact(table, "major") for _ in range(3)]
    assert [(report.groups, report.groups_left) for report in reports] == [(2, 1), (1, 0), (0, 0)]


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_group_that_fails_half_way_leaves_no_file() -> None:
    table = memory_table(**{"tidelog.targetFileSize": "8 KiB"})
    for seed in range(4):
        put(table, *random_numbers(500, seed))
    last = live_files(table)[-1]
    content = table.store.read(last.path)
    table.store.replace(last.path, content[:200] + bytes(100) + content[300:])
    before = data_files(table)
    with pytest.raises(DataFileDamagedError, match=last.path):
        compact(table, "major")
    assert data_files(table) == before


def test_a_staged_compaction_can_be_inspected_and_aborted() -> None:
    table = memory_table()
    put(table, 1)
    put(table, 2)
    transaction = stage(table, "major", where="part = 'a'")
    staged = transaction._staged
    assert staged is not None
    assert staged.operation_class is OperationClass.MAJOR
    assert [len(group.inputs) for group in staged.moves] == [2]
    transaction.abort()
    assert table.refresh().version == 2


@pytest.mark.interop
def test_delta_rs_reads_a_compacted_table(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "t"), SCHEMA, partition_by=["part"], properties={"tidelog.targetFileSize": "8 KiB"}
    )
    for seed in range(4):
        put(table, *random_numbers(500, seed), part="a" if seed % 2 else None)
    before = sorted(numbers_of(table))
    assert compact(table, "major").files_added == 2
    assert compact(table, "major", cluster_by=["n"]).did_anything
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.path)).execute("select n from t")
    assert sorted(pa.table(reader.read_all())["n"].to_pylist()) == before
