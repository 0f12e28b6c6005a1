"""The horizon of clean-up: a vacuum that is paused before any of its calls, or that runs in any pause of another actor.

Both ways, whoever is told "committed" finds all files of the table in place, and whoever is refused left no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.log.cleanup.support import AT_ONCE, DAY, Ticking, compacted, put
from tests.log.faults import Paused
from tests.log.support import (
    START_MS,
    Clock,
    live_files,
    memory_store,
    new_table,
    numbers,
    read_numbers,
    reopen,
    stage_compaction,
)
from tidelog.compaction_daemon import stage
from tidelog.log import OperationClass, Table, Transaction
from tidelog.log.commit.content import require_restorable
from tidelog.log.errors import ConflictError, DataFileMissingError, HistoryExpiredError, TransactionExpiredError
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime


@dataclass(frozen=True)
class Scene:
    """`stage` prepares a transaction, then `before` happens; the vacuum and the transaction's commit race.

    `committed` are the rows if the transaction is committed, `refused` those if it is not.
    """

    stage: Callable[[Table], Transaction]
    before: Callable[[Table], object]
    committed: Sequence[int]
    refused: Sequence[int]


def insert(value: int) -> Callable[[Table], object]:
    return lambda table: table.insert(numbers([value]))


SCENES = {
    "insert": Scene(lambda table: table.begin().insert(numbers([9])), insert(4), [1, 2, 3, 4, 9], [1, 2, 3, 4]),
    "update": Scene(lambda table: table.begin().update("n = 2", {"n": "20"}), insert(4), [1, 3, 4, 20], [1, 2, 3, 4]),
    "update over a compaction": Scene(
        lambda table: table.begin().update("n = 2", {"n": "20"}),
        lambda table: stage_compaction(table).commit(),
        [1, 3, 20],
        [1, 2, 3],
    ),
    "minor": Scene(stage_compaction, insert(4), [1, 2, 3, 4], [1, 2, 3, 4]),
    "major over an update": Scene(
        lambda table: stage_compaction(table, operation_class=OperationClass.MAJOR),
        lambda table: table.delete("n = 2"),
        [1, 3],
        [1, 3],
    ),
    "overwrite": Scene(lambda table: table.begin().overwrite(numbers([9])), insert(4), [9], [1, 2, 3, 4]),
    "restore": Scene(
        lambda table: table.begin().restore(version=3), lambda table: table.overwrite(numbers([7])), [1, 2, 3], [7]
    ),
}


class Seam(Paused):
    """A store whose pause is set after it was made."""

    def pause(self, before: int, meanwhile: Callable[[], object]) -> None:
        self.calls = 0
        self.before, self._meanwhile = before, meanwhile


def build(name: str) -> tuple[Table, Transaction, Seam]:
    """The table of a scene, and its staged transaction on a store of its own."""
    scene = SCENES[name]
    clock = Ticking()
    table = new_table(memory_store(clock), properties=AT_ONCE, system=clock)
    for value in (1, 2, 3):
        table.insert(numbers([value]))
    if name == "restore":
        table.truncate()
    seam = Seam(table.store)
    transaction = scene.stage(Table(seam, load(seam), clock))
    scene.before(table)
    return table, transaction, seam


def on(table: Table, store: Store) -> Table:
    """The same table on another store, opened again."""
    return Table(store, load(store), table._system)


def commit(transaction: Transaction) -> bool:
    try:
        transaction.commit()
    except (ConflictError, HistoryExpiredError):
        return False
    return True


def check(table: Table, name: str, *, committed: bool) -> None:
    expected = SCENES[name].committed if committed else SCENES[name].refused
    assert read_numbers(reopen(table)) == sorted(expected)


@pytest.mark.parametrize("name", SCENES)
def test_a_commit_in_any_pause_of_a_vacuum(name: str) -> None:
    def run(before: int) -> int:
        table, transaction, _ = build(name)
        outcome: list[bool] = []
        paused = Paused(table.store, before=before, meanwhile=lambda: outcome.append(commit(transaction)))
        on(table, paused).vacuum()
        check(table, name, committed=outcome[0] if outcome else commit(transaction))
        return paused.calls

    for before in range(run(-1)):
        run(before)


@pytest.mark.parametrize("name", SCENES)
def test_a_vacuum_in_any_pause_of_a_commit(name: str) -> None:
    def run(before: int) -> int:
        table, transaction, seam = build(name)
        seam.pause(before, on(table, table.store).vacuum)
        check(table, name, committed=commit(transaction))
        return seam.calls

    for before in range(run(-1)):
        run(before)


def test_a_restore_in_any_pause_of_a_vacuum_that_has_announced_its_horizon() -> None:
    """It is staged and committed within the pause."""

    def run(before: int) -> int:
        table, _, _ = build("restore")
        paused = Paused(table.store, before=before, meanwhile=lambda: outcome.append(restored(table)))
        outcome: list[bool] = []
        on(table, paused).vacuum()
        check(table, "restore", committed=outcome[0] if outcome else restored(table))
        return paused.calls

    def restored(table: Table) -> bool:
        try:
            on(table, table.store).restore(version=3)
        except HistoryExpiredError:
            return False
        return True

    for before in range(run(-1)):
        run(before)


# --- what the others are told -----------------------------------------------------------------------------------------


def test_a_statement_that_a_vacuum_has_passed_runs_again_by_itself() -> None:
    def run(before: int) -> int:
        table, _, seam = build("insert")

        def insert_and_vacuum() -> None:
            table.insert(numbers([5]))
            assert table.vacuum().commit_version is not None

        other = on(table, seam)
        seam.pause(before, insert_and_vacuum)
        other.update("n = 2", {"n": "20"})
        expected = [1, 3, 4, 5, 20] if 0 <= before < seam.calls else [1, 3, 4, 20]
        assert read_numbers(reopen(table)) == expected
        return seam.calls

    for before in range(run(-1)):
        run(before)


ROW_CHANGES: dict[str, tuple[Callable[[Transaction], Transaction], Callable[[Table], object], list[int]]] = {
    "delete": (lambda begun: begun.delete("n = 3"), lambda table: table.delete("n = 3"), [4, 5]),
    "update": (
        lambda begun: begun.update("n = 3", {"n": "30"}),
        lambda table: table.update("n = 3", {"n": "30"}),
        [4, 5, 30],
    ),
    "upsert": (
        lambda begun: begun.upsert(numbers([3]), keys=["n"]),
        lambda table: table.upsert(numbers([3]), keys=["n"]),
        [3, 4, 5],
    ),
}


def with_a_vector(*, whole: bool) -> tuple[Table, Callable[[], None]]:
    """A table with dead rows, and what takes away their vector, or the whole file, and vacuums."""
    table = new_table(memory_store(Ticking()), properties=AT_ONCE, system=Ticking())
    table.insert(numbers([1, 2, 3, 4]))
    table.delete("n = 1")

    def change_and_vacuum() -> None:
        if whole:
            table.overwrite(numbers([3, 4]))
        else:
            table.delete("n = 2")
        table.insert(numbers([5]))
        assert [path for path in table.vacuum().files if whole or "deletion_vector" in path]

    return table, change_and_vacuum


@pytest.mark.parametrize("name", ROW_CHANGES)
@pytest.mark.parametrize("whole", [False, True], ids=["vector", "file"])
def test_a_change_of_rows_whose_files_a_vacuum_has_deleted_says_so(name: str, whole: bool) -> None:
    table, change_and_vacuum = with_a_vector(whole=whole)
    transaction = on(table, table.store).begin()
    change_and_vacuum()
    with pytest.raises(TransactionExpiredError, match="has deleted files from before version") as error:
        ROW_CHANGES[name][0](transaction)
    assert (error.value.base_version, error.value.advice) == (2, "run the operation again")


@pytest.mark.parametrize("name", ROW_CHANGES)
@pytest.mark.parametrize("whole", [False, True], ids=["vector", "file"])
def test_a_statement_whose_files_a_vacuum_has_deleted_runs_again(name: str, whole: bool) -> None:
    def run(before: int) -> int:
        table, change_and_vacuum = with_a_vector(whole=whole)
        seam = Seam(table.store)
        other = on(table, seam)
        seam.pause(before, change_and_vacuum)
        ROW_CHANGES[name][1](other)
        if 0 <= before < seam.calls:
            # The file is overwritten before the statement, or after it.
            expected = [ROW_CHANGES[name][2], [3, 4, 5]] if whole else [ROW_CHANGES[name][2]]
            assert read_numbers(reopen(table)) in expected
        return seam.calls

    for before in range(run(-1)):
        run(before)


def test_a_file_that_is_missing_without_a_vacuum_is_missing() -> None:
    table, _ = with_a_vector(whole=False)
    for path, _ in list(table.store.walk("_dv")):
        table.store.delete(path)
    with pytest.raises(DataFileMissingError):
        on(table, table.store).delete("n = 3")


def test_the_error_of_a_transaction_that_a_vacuum_has_passed() -> None:
    table, transaction, _ = build("insert")
    assert table.vacuum().commit_version == 5
    with pytest.raises(TransactionExpiredError, match="run the operation again") as error:
        transaction.commit()
    assert (error.value.base_version, error.value.winning_version) == (3, 5)
    assert "before version 4" in error.value.evidence
    assert (error.value.earlier, error.value.later) == ("NONE", "INSERT")


def test_the_error_of_a_restore_behind_the_horizon() -> None:
    table, _, _ = build("restore")
    file = live_files(on(table, table.store))[0]
    table.truncate()
    table.insert(numbers([8]))
    assert table.vacuum().earliest_version == 7
    table.store.put_if_absent(file.path, b"it is still there")
    with pytest.raises(HistoryExpiredError, match="vacuum deletes such files") as error:
        table.restore(version=5)
    assert (error.value.earliest_version, error.value.latest_version) == (7, 8)


def test_a_restore_whose_proof_was_cleaned_up_is_refused() -> None:
    table, _, _ = build("restore")
    file = live_files(on(table, table.store))[0]
    table.truncate()
    table.insert(numbers([8]))
    assert table.vacuum().earliest_version == 7
    table.insert(numbers([9]))
    head = load(table.store).head
    table.store.delete("_delta_log/00000000000000000008.json")
    with pytest.raises(HistoryExpiredError, match=r"the commits since version 7, .* were cleaned up"):
        require_restorable(table.store, [file], 5, head)


def test_a_restore_brings_back_what_was_removed_after_the_horizon() -> None:
    table, _, _ = build("insert")
    table.store.put_if_absent("orphan", b"x")
    table.insert(numbers([5]))
    assert table.vacuum().earliest_version == 5
    table.truncate()
    table.restore(version=3)
    assert read_numbers(reopen(table)) == [1, 2, 3]


def test_the_vectors_that_a_compaction_read_stay_while_a_transaction_needs_them() -> None:
    """A vector that was replaced before the horizon, but while the compaction ran."""
    clock = Ticking()
    table = new_table(memory_store(clock), properties=AT_ONCE, system=clock)
    table.insert(numbers(range(10)))
    table.delete("n = 0")
    compaction = stage(on(table, table.store), "major", purge=True)
    table.delete("n = 1")
    horizon = to_datetime(clock.ms)
    update = on(table, table.store).begin().update("n = 5", {"n": "50"})
    compaction.commit()
    report = table.vacuum(older_than=horizon)
    assert (report.earliest_version, report.deletion_vectors) == (3, 0)
    update.commit()
    assert read_numbers(reopen(table)) == [2, 3, 4, 6, 7, 8, 9, 50]


# --- when there is a commit -------------------------------------------------------------------------------------------


def test_the_commit_of_a_vacuum_in_the_history() -> None:
    table, _, _ = build("overwrite")
    table.overwrite(numbers([7]))
    before = table.time_version
    version = table.vacuum().commit_version
    assert table.version == version
    (record,) = table.history(1)
    assert (record.version, record.operation, record.operation_class) == (version, "VACUUM", OperationClass.NONE)
    assert (record.time_version, table.time_version, record.data_change) == (None, before, False)
    assert table.transactions == {"tidelog/horizon": version - 1 if version else 0}
    assert table.changes(after=table.version - 1).to_arrow().num_rows == 0


def test_a_vacuum_each_day_commits_nothing_on_a_table_without_changes(clock: Clock) -> None:
    table = compacted(clock)
    assert table.vacuum().commit_version == 5
    for _ in range(30):
        clock.ms += DAY
        assert table.vacuum().commit_version is None
    assert reopen(table).version == 5


def test_a_file_after_the_newest_version_is_deleted_after_one_retention(clock: Clock) -> None:
    """A version has to follow it, which a vacuum makes if nobody else does."""
    table = compacted(clock)
    table.vacuum()
    put(table, clock, "orphan", days_ago=0)
    found = []
    for day in range(30):
        clock.ms += DAY
        report = table.vacuum()
        found += [(day, report.commit_version, report.files)] if report.commit_version else []
    assert found == [(0, 6, ()), (7, 7, ("orphan",))]


def test_a_file_from_the_future_makes_no_commits(clock: Clock) -> None:
    table = compacted(clock)
    table.vacuum()
    put(table, clock, "orphan", days_ago=-100)
    assert [table.vacuum().commit_version for _ in range(3)] == [None, None, None]


def test_the_horizon_never_decreases(clock: Clock) -> None:
    table = compacted(clock)
    put(table, clock, "old", days_ago=18.5)
    table.vacuum(older_than=timedelta(days=2))
    assert table.transactions["tidelog/horizon"] == 4
    put(table, clock, "new", days_ago=0)
    report = table.vacuum(older_than=timedelta(days=18, hours=12))
    assert (report.commit_version, report.earliest_version) == (6, 4)
    assert table.transactions["tidelog/horizon"] == 4


def test_of_two_vacuums_at_once_the_later_horizon_stays(clock: Clock) -> None:
    def run(before: int) -> int:
        clock.ms = START_MS
        fresh = compacted(clock)
        put(fresh, clock, "old", days_ago=19.5)
        paused = Paused(fresh.store, before=before, meanwhile=on(fresh, fresh.store).vacuum)
        on(fresh, paused).vacuum(older_than=timedelta(days=18, hours=12))
        horizon = reopen(fresh).transactions["tidelog/horizon"]
        assert horizon == (4 if 0 <= before < paused.calls else 2)
        return paused.calls

    for before in range(run(-1)):
        run(before)


def test_a_change_of_the_schema_meanwhile_does_not_stop_a_vacuum() -> None:
    def run(before: int) -> int:
        table, _, _ = build("restore")

        def change_the_schema() -> None:
            on(table, table.store).set_properties({"delta.enableChangeDataFeed": True})

        paused = Paused(table.store, before=before, meanwhile=change_the_schema)
        assert on(table, paused).vacuum().commit_version is not None
        return paused.calls

    for before in range(run(-1)):
        run(before)
