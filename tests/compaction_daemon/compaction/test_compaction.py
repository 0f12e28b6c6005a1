"""MINOR compactions, alone and alongside writers: no row is lost, no writer fails, no file is left behind."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.compaction_daemon.support import (
    SCHEMA,
    delete_rows,
    live_files,
    logged_paths,
    memory_table,
    numbers_of,
    put,
    put_commit,
)
from tidelog.compaction_daemon import CompactionReport, PlannedGroup, compact, stage
from tidelog.compaction_daemon.compaction import applying, compaction
from tidelog.compaction_daemon.rewriting import rewrite
from tidelog.log import Committed, OperationClass, Superseded, Table, Transaction
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import (
    CompactionVerificationError,
    ConfigurationError,
    CorruptLogError,
    DataFileDamagedError,
    MetadataChangedException,
    StoreAccessError,
    TableNotFoundError,
)
from tidelog.log.state.loader import load
from tidelog.log.storage.memory import MemoryStore


def data_files(table: Table) -> set[str]:
    """Every data file in the store, named by a commit or not."""
    return {path for path in MemoryStore._shared[table.path] if path.endswith(".parquet") and "/part-" in path}


def assert_no_orphans(table: Table) -> None:
    assert data_files(table) == logged_paths(table)


def filled(*parts: str, files: int = 3) -> Table:
    table = memory_table()
    for number in range(files):
        for part in parts:
            put(table, number, part=part)
    return table


# --- alone -----------------------------------------------------------------------------------------------------------


def test_small_files_become_one_and_no_reader_of_changes_sees_it() -> None:
    table = filled("a", files=4)
    before = table.refresh().changes(mode="append").to_arrow()
    time_version, sizes = table.time_version, [add.size for add in live_files(table)]
    report = compact(table)
    assert report == CompactionReport(
        version=5,
        groups=1,
        files_removed=4,
        files_added=1,
        bytes_read=sum(sizes),
        bytes_written=live_files(table)[0].size,
        wasted_bytes=0,
        rebased_over=(),
        versions=(5,),
        levels=("minor",),
    )
    assert report.did_anything
    assert numbers_of(table) == [0, 1, 2, 3]
    assert (table.version, table.time_version) == (5, time_version)
    record = table.history(1)[0]
    assert record.operation_class is OperationClass.MINOR
    assert record.time_version is None
    assert record.metrics["numRemovedFiles"] == "4"
    assert table.changes(mode="append").to_arrow().equals(before)
    assert Table.open(table.path).at(version=4).num_files == 4


def test_nothing_to_do_writes_nothing() -> None:
    table = memory_table()
    for expected in (0, 1):
        report = compact(table)
        assert not report.did_anything
        assert report.version is None
        assert table.refresh().version == expected
        put(table, 1)
    compact(table)
    version = table.refresh().version
    assert not compact(table).did_anything
    assert table.refresh().version == version
    assert_no_orphans(table)


def test_a_table_can_be_given_by_its_path(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table = Table.create(path, SCHEMA)
    put(table, 1)
    put(table, 2)
    assert compact(path).version == 3
    with pytest.raises(TableNotFoundError):
        compact(str(tmp_path / "nothing"))


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use one of minor"):
        compact(filled("a"), "huge")
    with pytest.raises(ConfigurationError, match="use one of minor"):
        stage(filled("a"), "huge")


def test_growth_delays_a_rewrite() -> None:
    table = memory_table()
    put(table, *range(10_000))
    put(table, 1)
    assert not compact(table, growth=2.0).did_anything
    assert compact(table).did_anything


def test_one_commit_rewrites_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled("a", "b", "c")
    size = live_files(table)[0].size
    monkeypatch.setattr(compaction, "MAX_MINOR_BYTES", 7 * size)
    reports = [compact(table) for _ in range(3)]
    assert [report.groups for report in reports] == [2, 1, 0]
    assert len(live_files(table)) == 3
    assert sorted(numbers_of(table)) == sorted([0, 1, 2] * 3)


def test_a_group_above_the_bound_is_still_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled("a")
    monkeypatch.setattr(compaction, "MAX_MINOR_BYTES", 1)
    assert compact(table).groups == 1


@pytest.mark.parametrize("growth", [1.0, 2.0])
def test_data_that_compresses_well_is_rewritten_once(growth: float) -> None:
    """The rows take many times the target in memory and a fraction of it on disk: one file, then nothing to do."""
    table = memory_table(**{"tidelog.targetFileSize": "64 KiB"})
    for _ in range(10):
        table.insert(pa.table({"part": ["a"] * 5000, "n": pa.array([7] * 5000, pa.int64())}))
    assert sum(add.size for add in live_files(table)) < 48 * 1024
    assert compact(table, growth=growth).files_added == 1
    assert not compact(table, growth=growth).did_anything
    assert len(numbers_of(table)) == 50_000


def test_compactions_of_random_data_end() -> None:
    table = memory_table(**{"tidelog.targetFileSize": "16 KiB"})
    chance = random.Random(5)
    for _ in range(30):
        put(table, *[chance.getrandbits(62) for _ in range(chance.randint(1, 800))])
    before = sorted(numbers_of(table))
    files = len(live_files(table))
    for _ in range(10):
        if not compact(table).did_anything:
            break
        assert len(live_files(table)) < files, "a compaction that did not reduce the number of files"
        files = len(live_files(table))
    assert not compact(table).did_anything
    assert sorted(numbers_of(table)) == before


# --- alongside writers: something happens between the rewrite and the commit ----------------------------------------


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """`before_commit(action)` runs `action` once, after the next rewrite."""

    def arrange(action: Callable[[], object]) -> None:
        commit = Transaction.commit
        waiting = [action]

        def after_the_action(transaction: Transaction) -> Any:
            if waiting:
                waiting.pop()()
            return commit(transaction)

        monkeypatch.setattr(Transaction, "commit", after_the_action)

    return arrange


def test_concurrent_inserts_waste_no_work(before_commit: Callable[[Callable[[], object]], None]) -> None:
    table = filled("a")
    other = Table.open(table.path)

    def inserts() -> None:
        put(other, 100)
        put(other, 101)

    before_commit(inserts)
    report = compact(table)
    assert (report.version, report.rebased_over, report.wasted_bytes) == (6, (4, 5), 0)
    assert numbers_of(table) == [100, 101, 0, 1, 2]
    assert_no_orphans(table)


def test_of_two_compactions_of_the_same_files_one_is_superseded(
    before_commit: Callable[[Callable[[], object]], None],
) -> None:
    table = filled("a")
    before_commit(lambda: compact(table.path))
    report = compact(table)
    assert not report.did_anything
    assert (report.version, report.groups, report.files_removed, report.files_added) == (None, 0, 0, 0)
    assert report.wasted_bytes == report.bytes_written > 0
    assert table.refresh().version == 4
    assert numbers_of(table) == [0, 1, 2]
    assert_no_orphans(table)


def test_a_compaction_that_lost_a_group_commits_the_rest(
    before_commit: Callable[[Callable[[], object]], None],
) -> None:
    table = filled("a", "b")

    def takes_one_group() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(compaction, "MAX_MINOR_BYTES", 1)
            assert compact(table.path).groups == 1

    before_commit(takes_one_group)
    report = compact(table)
    assert (report.version, report.groups, report.rebased_over) == (8, 1, (7,))
    assert 0 < report.wasted_bytes < report.bytes_written
    assert sorted(numbers_of(table)) == [0, 0, 1, 1, 2, 2]
    assert len(live_files(table)) == 2
    assert_no_orphans(table)


def test_a_concurrently_deleted_row_stays_dead(before_commit: Callable[[Callable[[], object]], None]) -> None:
    table = filled("a")
    before_commit(lambda: delete_rows(Table.open(table.path), [0]))
    report = compact(table)
    assert (report.files_removed, report.files_added, report.wasted_bytes) == (3, 1, 0)
    assert numbers_of(table) == [1, 2]
    assert_no_orphans(table)
    (file,) = live_files(table)
    assert file.deletion_vector is not None, "the row is dead in the output"
    assert not compact(table).did_anything


def test_a_concurrent_change_of_properties_is_a_conflict_that_leaves_no_file(
    before_commit: Callable[[Callable[[], object]], None],
) -> None:
    table = filled("a")
    old = load(table.store).head.metadata
    new = msgspec.structs.replace(old, configuration={**old.configuration, "delta.appendOnly": "true"})
    before_commit(lambda: put_commit(Table.open(table.path), new))
    with pytest.raises(MetadataChangedException, match=r"the winner changed the property delta.appendOnly"):
        compact(table)
    assert_no_orphans(table)
    assert compact(table).did_anything


def test_a_staged_compaction_is_invisible_until_its_commit() -> None:
    table = filled("a")
    first, second = stage(table), stage(table)
    assert first.base_version == second.base_version == 3
    assert Table.open(table.path).version == 3
    put(table, 100)
    won = first.commit()
    assert isinstance(won, Committed)
    assert won.version == 5
    assert second.commit() == Superseded(by=5)
    assert numbers_of(table) == [100, 0, 1, 2]


def test_writers_and_compactions_in_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    path = str(tmp_path / "table")
    Table.create(path, SCHEMA, partition_by=["part"], properties={"delta.checkpointInterval": 20})
    commits, writers = 25, 3
    errors: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                errors.append(error)

        return threading.Thread(target=run)

    def writes(writer: int) -> None:
        chance = random.Random(seed + writer)
        table = Table.open(path)
        for commit in range(commits):
            put(table, writer * 1000 + commit, part=chance.choice("ab"))
            time.sleep(chance.uniform(0, 0.005))

    reports: list[CompactionReport] = []

    def compacts() -> None:
        table = Table.open(path)
        while not done.is_set():
            reports.append(compact(table))

    writing = [guarded(lambda writer=writer: writes(writer)) for writer in range(writers)]  # type: ignore[misc]
    compacting = [guarded(compacts) for _ in range(2)]
    for thread in [*writing, *compacting]:
        thread.start()
    for thread in writing:
        thread.join()
    done.set()
    for thread in compacting:
        thread.join()
    assert errors == []
    table = Table.open(path)
    expected = sorted(writer * 1000 + commit for writer in range(writers) for commit in range(commits))
    assert sorted(numbers_of(table)) == expected
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == expected
    made = [report.version for report in reports if report.version is not None]
    assert made
    assert table.version == writers * commits + len(made)
    minor = [record.version for record in table.history() if record.operation_class is OperationClass.MINOR]
    assert sorted(made) == sorted(minor)
    orphans = {file.name for file in Path(path).rglob("part-*.parquet")} - {
        name.rsplit("/", 1)[-1] for name in logged_paths(table)
    }
    assert orphans == set()


def failing(error: Exception, part: str) -> Callable[..., MoveGroup]:
    """A rewrite that fails for one partition, after it has written its files."""
    honest = rewrite.rewrite

    def fails(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, **named: Any) -> MoveGroup:
        if group.partition_values["part"] == part:
            raise error
        return honest(writer, schema, group, **named)

    return fails


def test_an_error_of_the_table_leaves_no_files_of_the_groups_that_were_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each attempt would leave some behind."""
    table = filled("a", "b", "c")
    before = data_files(table)
    monkeypatch.setattr(applying, "rewrite", failing(StoreAccessError("denied", path="x"), "b"))
    with pytest.raises(StoreAccessError):
        compact(table)
    assert data_files(table) == before
    assert table.refresh().version == 9


@pytest.mark.parametrize(
    "error",
    [
        CorruptLogError("lost", path="x"),
        DataFileDamagedError("damaged", path="x"),
        CompactionVerificationError("other rows", path="x"),
        ZeroDivisionError("a bug"),
        OSError("no space left"),
    ],
)
def test_a_group_that_cannot_be_rewritten_does_not_keep_the_rest_from_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file must not end the compaction of its table for good; the error is still raised."""
    table = filled("a", "b", "c")
    monkeypatch.setattr(applying, "rewrite", failing(error, "b"))
    with pytest.raises(type(error)):
        compact(table)
    assert len(live_files(table)) == 1 + 3 + 1
    assert sorted(numbers_of(table)) == sorted([0, 1, 2] * 3)
    assert_no_orphans(table)
    with pytest.raises(type(error)):
        stage(table)
    assert_no_orphans(table)
