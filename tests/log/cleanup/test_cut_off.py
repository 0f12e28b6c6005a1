"""The version at a cut-off, where commits were put long after the time that they carry."""

from __future__ import annotations

import pytest

from tests.log.cleanup.support import DAY, daily
from tests.log.faults import Around
from tests.log.support import START_MS, Clock, memory_store, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.cleanup.cut_off import version_at_cutoff
from tidelog.log.format import filenames
from tidelog.log.storage import Store


class PutLate(Around):
    """A store in which the commits from `first` on were put at `at_ms`."""

    def __init__(self, inner: Store, first: int, at_ms: int) -> None:
        super().__init__(inner)
        self._late = {filenames.commit_path(version) for version in range(first, 12)}
        self._at_ms = at_ms
        self.looks = 0

    def modified_ms(self, path: str) -> int:
        self.looks += 1
        return self._at_ms if path in self._late else super().modified_ms(path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(("first", "found"), [(11, 8), (9, 8), (8, 7), (5, 4), (1, 0), (0, None)])
def test_a_commit_that_was_put_late_is_as_new_as_its_file(clock: Clock, first: int, found: int | None) -> None:
    store = memory_store(clock)
    daily(store, clock)
    late = PutLate(store, first, START_MS + 20 * DAY)
    assert version_at_cutoff(late, START_MS + 8 * DAY, 0, 10) == found
    assert late.looks <= 5


def test_what_a_late_commit_removed_stays_for_the_retention(clock: Clock) -> None:
    """As if its writer had slept for 30 days between taking the time and putting the file."""
    store = memory_store(clock)
    table = daily(store, clock)
    table.truncate()
    clock.ms += 30 * DAY
    late = Table(PutLate(store, 11, clock.ms), table._state, clock)
    assert late.vacuum().files == ()
    assert late.expire().earliest_version < 10
    assert read_numbers(reopen(late).at(version=10)) == [*range(1, 11)]
    clock.ms += 8 * DAY
    assert len([path for path in late.vacuum().files if path.endswith(".parquet")]) == 10
