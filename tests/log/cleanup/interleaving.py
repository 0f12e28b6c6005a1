"""Writers, a compaction, a restorer and two vacuums on one table, in a random interleaving of their store calls.

Each actor runs the real code in a greenlet of its own, and hands over before each store call. The schedule comes from a
seed: an actor is chosen and goes on for some calls, few or many, so that the others pause for any length of time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from greenlet import getcurrent, greenlet

from tests.log.cleanup.support import AT_ONCE, Ticking
from tests.log.faults import Paused
from tests.log.support import memory_store, new_table, numbers, read_numbers, stage_compaction
from tidelog.log import Table, Transaction
from tidelog.log.conflict.fences import horizon_of
from tidelog.log.errors import ConflictError, DataFileMissingError, HistoryExpiredError, TidelogError
from tidelog.log.format import commit_info
from tidelog.log.state.commits import read_info
from tidelog.log.state.loader import load
from tidelog.log.storage import Store

# How many store calls an actor makes before another one may go on.
_BURSTS = (1, 1, 2, 5, 20, 1000)
# What an actor may be refused with. It reads files of its base version, which a vacuum without retention deletes.
_REFUSALS = (ConflictError, HistoryExpiredError, DataFileMissingError)


class ObjectionError(AssertionError):
    """The table is not what its committed operations make of it."""


class _Stepping(Paused):
    """Hands over to the schedule before each call."""

    def _step(self) -> None:
        schedule = getcurrent().parent
        if schedule is not None:
            schedule.switch()


class _Seeded(Ticking):
    """A clock that also takes ids and jitter from the seed."""

    def __init__(self, chosen: random.Random) -> None:
        super().__init__()
        self._random = chosen

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


Effect: TypeAlias = Callable[[list[int], list[list[int]]], list[int]]
"""What a commit makes of the rows before it; the second argument is the rows of all versions before it."""


@dataclass
class World:
    """The table, the effects of the commits by the names in their records, and the names that were refused."""

    store: Store
    clock: Ticking
    effects: dict[str, Effect] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def table(self) -> Table:
        store = _Stepping(self.store)
        return Table(store, load(store), self.clock)

    def insert(self, value: int) -> None:
        self._commit(self.table().begin().insert(numbers([value])), lambda rows, _: [*rows, value])

    def update(self, old: int, new: int) -> None:
        transaction = self.table().begin().update(f"n = {old}", {"n": str(new)})
        self._commit(transaction, lambda rows, _: [new if n == old else n for n in rows])

    def overwrite(self, value: int) -> None:
        self._commit(self.table().begin().overwrite(numbers([value])), lambda _rows, _: [value])

    def restore(self, versions_back: int) -> None:
        transaction = self.table().begin()
        version = max(1, transaction.base_version - versions_back)
        self._commit(transaction.restore(version=version), lambda _rows, history: history[version])

    def _commit(self, transaction: Transaction, effect: Effect) -> None:
        name = str(len(self.effects))
        self.effects[name] = effect
        try:
            transaction.note(record={"actor": name}).commit()
        except _REFUSALS:
            self.refused.add(name)
            raise

    def compact(self) -> None:
        stage_compaction(self.table()).commit()

    def vacuum(self, *, listing: bool = True) -> None:
        self.table().vacuum(listing=listing)

    def check(self) -> None:
        """Read each version since the horizon, and compare it with what the committed operations make of the table."""
        head = load(self.store).head
        table = Table(self.store, load(self.store))
        history: list[list[int]] = []
        for version in range(head.version + 1):
            before = history[-1] if history else []
            name = commit_info.tidelog(read_info(self.store, version)).get("actor")
            if name in self.refused:
                raise ObjectionError(f"version {version} is by an actor that was refused")
            history.append(sorted(self.effects[name](before, history)) if name else before)
        for version in range(horizon_of(head.transactions), head.version + 1):
            try:
                found = read_numbers(table.at(version=version))
            except TidelogError as error:
                raise ObjectionError(f"version {version} cannot be read: {error}") from error
            if found != history[version]:
                raise ObjectionError(f"version {version} holds {found} instead of {history[version]}")


def run(seed: int) -> World:
    """Run one schedule and check the table. Raises ObjectionError, or whatever error an actor did not expect."""
    chosen = random.Random(seed)
    clock = _Seeded(chosen)
    world = World(memory_store(clock), clock)
    new_table(world.store, properties=AT_ONCE, system=clock)
    for value in (1, 2, 3):
        world.insert(value)
    world.overwrite(4)
    actors: Sequence[Callable[[], None]] = (
        partial(world.insert, 5),
        partial(world.update, 4, 40),
        partial(world.overwrite, 6),
        partial(world.restore, chosen.randrange(1, 5)),
        world.compact,
        world.vacuum,
        partial(world.vacuum, listing=chosen.random() < 0.5),
    )
    running = [greenlet(partial(_unless_refused, actor)) for actor in actors]
    while running:
        actor = chosen.choice(running)
        for _ in range(chosen.choice(_BURSTS)):
            actor.switch()
            if actor.dead:
                running.remove(actor)
                break
    world.check()
    return world


def _unless_refused(actor: Callable[[], None]) -> None:
    with suppress(*_REFUSALS):
        actor()
