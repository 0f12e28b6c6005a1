"""Long random histories: several transactions in flight at once, committed in any order, foreign commits in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.oracle.compactions import Compaction
from tests.log.oracle.foreign import Foreign, ForeignKind
from tests.log.oracle.model import Row, Where
from tests.log.oracle.operations import (
    Compact,
    Delete,
    ForeignWrite,
    Insert,
    Operation,
    Overwrite,
    Restore,
    Truncate,
    Update,
    Upsert,
)
from tests.log.oracle.settings import SETTINGS, Setting
from tests.log.oracle.world import Pending, World

# With more transactions in flight they only lose to each other, which shows nothing new.
MAX_IN_FLIGHT = 4
NIGHTLY_TRANSACTIONS = 20_000
# After APPEND_ONLY nothing could be changed any more.
_FOREIGN = [kind for kind in ForeignKind if kind is not ForeignKind.APPEND_ONLY]
_COMPARISONS = ("=", "<=", ">=")

Numbers = tuple[int, int, int]
NUMBERS = st.tuples(st.integers(0, 11), st.integers(0, 9), st.integers(1, 2))


def _rows(serial: int, numbers: Numbers) -> tuple[Row, ...]:
    """Rows with values that no other operation of the history writes."""
    k, more, p = numbers
    return tuple(Row((k + index) % 12, p, 10_000 + 10 * serial + index) for index in range(1 + more % 3))


def _where(numbers: Numbers) -> Where:
    k, choice, p = numbers
    if choice == 0:
        return Where("p", "=", p)
    if choice == 1:
        return Where("v", ">=", 10_000)
    return Where("k", _COMPARISONS[choice % 3], k)


def _update(serial: int, numbers: Numbers) -> Operation:
    k, choice, p = numbers
    column, added, number = (("v", True, 100_000), ("k", False, (k + 5) % 12), ("p", False, p))[choice % 3]
    return Update(f"UPDATE #{serial} {_where(numbers).sql}, {column}", _where(numbers), column, added, number)


def _upsert(serial: int, numbers: Numbers) -> Operation:
    rows = _rows(serial, numbers)
    if numbers[1] % 2:
        rows = (*rows[:-1], rows[-1]._replace(v=-1))
    return Upsert(f"UPSERT #{serial} of {[row.k for row in rows]}", rows)


def _overwrite(serial: int, numbers: Numbers) -> Operation:
    return Overwrite(f"OVERWRITE #{serial}", _rows(serial, numbers))


def _compaction(serial: int, numbers: Numbers) -> Operation:
    count, choice, p = numbers
    level = "MINOR" if choice < 5 else "MAJOR"
    files = None if choice % 2 else 2 + count % 3
    compaction = Compaction(level, files, pieces=p if level == "MAJOR" else 1, clustered=choice == 9)
    return Compact(f"{compaction} #{serial}", compaction)


def _foreign(serial: int, numbers: Numbers) -> Operation:
    del serial
    kind = _FOREIGN[numbers[0] % len(_FOREIGN)]
    return ForeignWrite(kind.value, Foreign(kind))


Maker = Callable[[int, Numbers], Operation]
_MAKERS: dict[str, Maker] = {
    "insert": lambda serial, numbers: Insert(f"INSERT #{serial}", _rows(serial, numbers)),
    "delete": lambda serial, numbers: Delete(f"DELETE #{serial} {_where(numbers).sql}", _where(numbers)),
    "update": _update,
    "upsert": _upsert,
    "compaction": _compaction,
    "overwrite": _overwrite,
    "truncate": lambda serial, _numbers: Truncate(f"TRUNCATE #{serial}"),
    "restore": lambda serial, _numbers: Restore(f"RESTORE #{serial}"),
    "foreign": _foreign,
}
# Operations that replace the whole table are rare, or it would never grow.
_OFTEN = ["insert", "insert", "delete", "update", "upsert", "compaction", "compaction", "compaction"]
STEPS = st.tuples(st.sampled_from([*["commit"] * 8, *_OFTEN * 2, *_MAKERS]), NUMBERS)


class History:
    """A world with transactions in flight. `trail` records what happened, for the message of a failure."""

    def __init__(self, setting: Setting, *, thorough: bool) -> None:
        self.world = World(setting, thorough=thorough)
        self.in_flight: list[Pending] = []
        self.trail: list[str] = []
        self.commits = 0

    def step(self, kind: str, numbers: Numbers) -> None:
        if kind == "commit":
            if self.in_flight:
                self.commit(self.in_flight.pop(numbers[0] % len(self.in_flight)))
            return
        operation = _MAKERS[kind](len(self.trail), numbers)
        if isinstance(operation, ForeignWrite) and operation.foreign.kind.vectors and not self.world.setting.vectors:
            return
        pending = self.world.stage(operation)
        if isinstance(operation, ForeignWrite):
            self.commit(pending)
        elif pending.possible:
            self.trail.append(f"stage {operation.name}")
            self.in_flight.append(pending)
            if len(self.in_flight) > MAX_IN_FLIGHT:
                self.commit(self.in_flight.pop(0))

    def commit(self, pending: Pending) -> None:
        verdict = self.world.commit(pending)
        self.commits += 1
        self.trail.append(f"commit {pending.operation.name}: {verdict.outcome}")
        assert not verdict.findings, "\n".join([self.world.setting.name, *self.trail, *map(str, verdict.findings)])

    def finish(self) -> None:
        while self.in_flight:
            self.commit(self.in_flight.pop())


def play(setting: Setting, steps: list[tuple[str, Numbers]], *, thorough: bool) -> int:
    """Run the steps. Returns the number of transactions that were committed or lost."""
    history = History(setting, thorough=thorough)
    try:
        for kind, numbers in steps:
            history.step(kind, numbers)
        history.finish()
    finally:
        history.world.close()
    return history.commits


SETTING = st.sampled_from(list(SETTINGS.values()))
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=25, suppress_health_check=_SLOW)
@given(SETTING, st.lists(STEPS, min_size=10, max_size=50))
def test_random_histories(setting: Setting, steps: list[tuple[str, Numbers]]) -> None:
    play(setting, steps, thorough=True)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_many_random_histories() -> None:
    transactions = 0

    @settings(max_examples=1500, suppress_health_check=_SLOW)
    @given(SETTING, st.lists(STEPS, min_size=30, max_size=80))
    def search(setting: Setting, steps: list[tuple[str, Numbers]]) -> None:
        nonlocal transactions
        transactions += play(setting, steps, thorough=False)

    search()
    assert transactions >= NIGHTLY_TRANSACTIONS
