"""The version at a cut-off, where commits were put long after the time that they carry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.log.cleanup.support import DAY, daily
from tests.log.faults import Around
from tests.log.support import NUMBERS, START_MS, Clock, memory_store, numbers, read_numbers, reopen
from tidelog.log import Table
from tidelog.log.cleanup.cut_off import version_at_cutoff
from tidelog.log.format import filenames
from tidelog.log.state.commits import is_older, written_ms
from tidelog.log.storage import Store
from tidelog.log.storage.local import Disk
from tidelog.log.system import REAL_SYSTEM


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

    def appeared_ms(self, path: str) -> int:
        return self.modified_ms(path)


class Chowned(Around):
    """A store on a disk on which the owner of each file was changed at `at_ms`."""

    def __init__(self, inner: Store, at_ms: int) -> None:
        super().__init__(inner)
        self._at_ms = at_ms

    def appeared_ms(self, path: str) -> int:
        return max(self._at_ms, super().appeared_ms(path))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(("first", "found"), [(11, 8), (9, 8), (8, 7), (5, 4), (1, 0), (0, None)])
def test_a_commit_that_was_put_late_is_as_new_as_its_file(clock: Clock, first: int, found: int | None) -> None:
    store = memory_store(clock)
    daily(store, clock)
    late = PutLate(store, first, START_MS + 20 * DAY)
    assert version_at_cutoff(late, START_MS + 8 * DAY, 0, 10) == found
    assert late.looks <= 9


def test_a_version_that_has_a_successor_is_at_least_as_old_as_that(clock: Clock) -> None:
    store = memory_store(clock)
    daily(store, clock)
    chowned = Chowned(store, START_MS + 20 * DAY)
    assert version_at_cutoff(store, START_MS + 8 * DAY, 0, 10) == 8
    assert version_at_cutoff(chowned, START_MS + 8 * DAY, 0, 10) == 7
    assert version_at_cutoff(store, START_MS + 12 * DAY, 0, 10) == 10
    assert version_at_cutoff(chowned, START_MS + 12 * DAY, 0, 10) == 9


def test_on_a_disk_a_commit_appears_when_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer sleeps in between; the time of the file stays that of its content."""
    path = str(tmp_path / "table")
    table = Table.create(path, NUMBERS)
    link = Disk.link

    def slept(disk: Disk, source: Path, target: Path) -> None:
        os.utime(source, (1_000_000, 1_000_000))
        link(disk, source, target)

    monkeypatch.setattr(Disk, "link", slept)
    before_ms = REAL_SYSTEM.now_ms()
    table.insert(numbers([1]))
    store, commit = table.store, filenames.commit_path(1)
    assert store.modified_ms(commit) == 1_000_000_000
    assert store.appeared_ms(commit) >= before_ms - 10  # the clock of files is coarser
    assert written_ms(store, 1) == 1_000_000_000
    assert not is_older(store, 1, before_ms - 10_000)
    assert is_older(store, 1, before_ms + 60_000)


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
