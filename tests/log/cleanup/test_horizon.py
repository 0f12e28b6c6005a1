"""The horizon of clean-up: a vacuum that is paused before any of its calls, or that runs in any pause of another actor.

Both ways, whoever is told "committed" finds all files of the table in place, and whoever is refused left no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.log.faults import Paused
from tests.log.support import Clock, memory_store, new_table, numbers, read_numbers, stage_compaction
from tidelog.log import OperationClass, Table, Transaction
from tidelog.log.errors import ConflictError, HistoryExpiredError
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

# No retention at all, so that a vacuum deletes everything that it may.
AT_ONCE = {"tidelog.maxTransactionTime": "0 days", "delta.deletedFileRetentionDuration": "0 days"}


class Ticking(Clock):
    """A clock that moves with each look at it, so that no two files are equally old."""

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


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


def build(name: str) -> tuple[Store, Ticking, Transaction, list[Store]]:
    """The table of a scene, its clock, and the staged transaction on a store of its own, the last result."""
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
    return table.store, clock, transaction, [seam]


class Seam(Paused):
    """A store whose pause is set after it was made."""

    def pause(self, before: int, meanwhile: Callable[[], object]) -> None:
        self.calls = 0
        self._before, self._meanwhile = before, meanwhile


def vacuum(store: Store, clock: Clock) -> Any:
    return Table(store, load(store), clock).vacuum()


def commit(transaction: Transaction) -> bool:
    try:
        transaction.commit()
    except (ConflictError, HistoryExpiredError):
        return False
    return True


def check(store: Store, name: str, *, committed: bool) -> None:
    scene = SCENES[name]
    expected = scene.committed if committed else scene.refused
    assert read_numbers(Table(store, load(store))) == sorted(expected)


def pauses(count: Callable[[], int]) -> range:
    found = count()
    assert found > 3
    return range(found + 1)


@pytest.mark.parametrize("name", SCENES)
def test_a_commit_in_any_pause_of_a_vacuum(name: str) -> None:
    def run(before: int) -> int:
        store, clock, transaction, _ = build(name)
        outcome: list[bool] = []
        paused = Paused(store, before=before, meanwhile=lambda: outcome.append(commit(transaction)))
        table = Table(paused, load(paused), clock)
        table.vacuum()
        if before >= paused.calls or not outcome:
            outcome.append(commit(transaction))
        check(store, name, committed=outcome[0])
        return paused.calls

    for before in range(run(-2)):
        run(before)


@pytest.mark.parametrize("name", SCENES)
def test_a_vacuum_in_any_pause_of_a_commit(name: str) -> None:
    def run(before: int) -> int:
        store, clock, transaction, (seam,) = build(name)
        assert isinstance(seam, Seam)
        seam.pause(before, lambda: vacuum(store, clock))
        committed = commit(transaction)
        check(store, name, committed=committed)
        return seam.calls

    for before in range(run(-2)):
        run(before)
