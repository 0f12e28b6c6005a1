"""Finding versions by time, and commit times with and without in-commit timestamps."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.faults import Counting
from tests.log.support import NUMBERS, START_MS, add, memory_store, new_table, numbers, put_commit, reopen
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.state import commit_times, versions
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.storage import Store
from tidelog.log.storage.local import LocalStore


def log_at(stamps: list[int]) -> Store:
    store = memory_store()
    for version, stamp in enumerate(stamps):
        put_commit(store, version, add(f"f{version}"), info={"inCommitTimestamp": stamp})
    return store


@pytest.fixture
def foreign(tmp_path: Path) -> Counting:
    """Five commits without in-commit timestamps, with file times out of order, in a store that counts requests."""
    table = new_table(LocalStore(str(tmp_path)), NUMBERS, properties={"delta.enableInCommitTimestamps": False})
    for number in range(4):
        table.insert(numbers([number]))
    for version, second in enumerate([100, 900, 200, 300, 1000]):
        os.utime(tmp_path / filenames.commit_path(version), (second, second))
    return Counting(table.store)


def test_file_times_are_listed_once_and_new_ones_looked_up(foreign: Counting, tmp_path: Path) -> None:
    times = CommitTimes(foreign)
    assert [times.at(version) for version in range(5)] == [100_000, 900_000, 900_001, 900_002, 1_000_000]
    assert foreign.lists == 1
    reopen(Table.open(str(tmp_path))).insert(numbers([5]))
    os.utime(tmp_path / filenames.commit_path(5), (50, 50))
    assert times.at(5) == 1_000_001
    assert foreign.lists == 1


def test_after_many_lookups_the_log_is_listed_again(
    foreign: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that stays open for months must forget commits that were cleaned up."""
    monkeypatch.setattr(commit_times, "_MAX_NEW", 2)
    times = CommitTimes(foreign)
    times.at(4)
    table = Table.open(str(tmp_path))
    for version in range(5, 8):
        table.insert(numbers([version]))
        assert times.at(version) > 1_000_000
    assert foreign.lists == 2
    store = foreign.inner
    store.delete(filenames.commit_path(0))
    assert times.at(0) == -1


def test_a_commit_that_disappears_before_its_lookup_is_skipped(foreign: Counting, tmp_path: Path) -> None:
    times = CommitTimes(foreign)
    times.at(4)
    table = Table.open(str(tmp_path))
    for version in (5, 6):
        table.insert(numbers([version]))
        os.utime(tmp_path / filenames.commit_path(version), (2000 + version,) * 2)
    foreign.delete(filenames.commit_path(5))
    assert times.at(6) == 2_006_000
    assert foreign.lists == 1


@settings(deadline=None)
@given(
    stamps=st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True).map(sorted),
    at=st.integers(-1, 61),
    expired=st.integers(0, 5),
)
def test_binary_search_agrees_with_linear_search(stamps: list[int], at: int, expired: int) -> None:
    store = log_at(stamps)
    earliest = min(expired, len(stamps) - 1)
    for version in range(earliest):
        store.delete(filenames.commit_path(version))
    linear = [version for version, stamp in enumerate(stamps) if stamp <= at and version >= earliest]
    assert versions.version_at(CommitTimes(store), at, earliest, len(stamps) - 1) == (linear[-1] if linear else None)


def by_definition(file_times: Mapping[int, int]) -> dict[int, int]:
    """Each commit's time: its file's, but at least a millisecond after the one before."""
    found: dict[int, int] = {}
    newest = -1
    for version in sorted(file_times):
        newest = found[version] = max(file_times[version], newest + 1)
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file_times=st.lists(st.integers(0, 40), min_size=1, max_size=25),
    first=st.integers(0, 3),
    at=st.integers(-1, 70),
    looked_up=st.integers(0, 25),
)
def test_file_times_in_any_order_give_the_times_of_the_definition(
    tmp_path: Path, file_times: list[int], first: int, at: int, looked_up: int
) -> None:
    """Also for commits that are looked up one by one after the listing, and with other files in the log."""
    folder = tmp_path / str(uuid.uuid4())
    (folder / filenames.LOG_FOLDER).mkdir(parents=True)
    known = {first + number: time for number, time in enumerate(file_times)}
    store = LocalStore(str(folder))
    times = CommitTimes(store)

    def put(version: int) -> None:
        put_commit(store, version, add(f"f{version}"), info={"inCommitTimestamp": None})
        os.utime(folder / filenames.commit_path(version), ns=(0, known[version] * 1_000_000))
        store.replace(filenames.checksum_path(version), b"{}")

    expected = by_definition(known)
    for version in known:
        put(version)
        if version == first + looked_up:
            assert times.at(version) == expected[version]
    assert {version: times.at(version) for version in known} == expected
    assert {version: CommitTimes(store).at(version) for version in known} == expected
    linear = [version for version, time in expected.items() if time <= at]
    newest = max(known)
    assert versions.version_at(CommitTimes(store), at, first, newest) == (linear[-1] if linear else None)


def test_only_commits_are_asked_for_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log has checksums and checkpoints as well, and asking is what takes the time."""
    table = new_table(LocalStore(str(tmp_path)), NUMBERS, properties={"delta.enableInCommitTimestamps": False})
    table.insert(numbers([1]))
    table.checkpoint()
    (tmp_path / filenames.commit_path(2)).mkdir()
    (tmp_path / filenames.commit_path(3)).symlink_to(tmp_path / filenames.commit_path(3))
    asked: list[str] = []
    stat = os.stat

    def watched(name: str, *, dir_fd: int | None = None) -> os.stat_result:
        asked.append(str(name))
        return stat(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "stat", watched)
    found = LocalStore(str(tmp_path)).modified_times(filenames.LOG_FOLDER, ".json")
    assert sorted(name for name, _ in found) == [f"{version:020d}.json" for version in range(2)]
    assert {name[20:] for name in asked} == {".json"}
    assert LocalStore(str(tmp_path / "none")).modified_times(filenames.LOG_FOLDER, ".json") == []


def test_the_search_reads_few_commits() -> None:
    store = Counting(log_at(list(range(0, 4096, 2))))
    assert versions.version_at(CommitTimes(store), 1001, 0, 2047) == 500
    assert len(store.reads) <= math.ceil(math.log2(2048)) + 1


def test_the_time_of_a_missing_commit_is_not_guessed() -> None:
    """A checkpoint's own commit can be gone, and then its time is unknown."""
    store = log_at([10, 20, 30])
    store.delete(filenames.commit_path(0))
    assert versions.version_at(CommitTimes(store), 20, 0, 2) == 1
    assert versions.version_at(CommitTimes(store), 5, 0, 2) != 1


def test_walking_back_ends_at_the_oldest_existing_commit() -> None:
    store = log_at([10, 20, 30, 40])
    store.delete(filenames.commit_path(1))
    assert [commit.version for commit in versions.newest_first(store, 3)] == [3, 2]
    assert [commit.version for commit in versions.newest_first(store, 2)] == [2]
    assert versions.earliest_commit(store, 3) == 2
    assert versions.earliest_commit(log_at([10, 20, 30]), 2) == 0


@pytest.mark.parametrize(
    "seconds",
    [
        [100, 200, 300, 400],
        [100, 100, 100, 100],
        [100, 50, 60, 400],
        [400, 300, 200, 100],
        [100, 900, 200, 1000],
    ],
)
def test_file_times_are_adjusted_to_increase(tmp_path: Path, seconds: list[int]) -> None:
    """Without in-commit timestamps, a commit's time is its file's, which copying or restoring puts out of order.

    Readers make the times increase by at least 1 ms, because a search by time would fail otherwise.
    """
    table = new_table(LocalStore(str(tmp_path)), NUMBERS, properties={"delta.enableInCommitTimestamps": False})
    for number in range(1, len(seconds)):
        table.insert(numbers([number]))
    expected: list[int] = []
    for version, second in enumerate(seconds):
        os.utime(tmp_path / filenames.commit_path(version), (START_MS // 1000 + second,) * 2)
        stamp = (START_MS // 1000 + second) * 1000
        expected.append(max(stamp, expected[-1] + 1) if expected else stamp)
    table = reopen(table)
    found = [int(record.timestamp.timestamp() * 1000) for record in reversed(table.history())]
    assert [stamp - START_MS for stamp in found] == [stamp - START_MS for stamp in expected]
    for version, record in enumerate(reversed(table.history())):
        snapshot = table.at(timestamp=record.timestamp)
        assert (snapshot.version, snapshot.timestamp) == (version, record.timestamp)
