"""Versions by time and by age: binary search over the commits' timestamps, and walks from the newest back."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.log.format import filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import read_commit
from tidelog.log.storage import Store


def newest_first(store: Store, head_version: int) -> Iterator[Commit]:
    """The commits from `head_version` down to the oldest that is still there."""
    for version in range(head_version, -1, -1):
        try:
            yield read_commit(store, version)
        except FileNotFoundError:
            return


def earliest_commit(store: Store, head_version: int) -> int:
    """The oldest commit from which every one up to `head_version` is still there, by one listing."""
    commits = set(filenames.versions(store.names(filenames.LOG_FOLDER), LogFileKind.COMMIT))
    earliest = head_version
    while earliest - 1 in commits:
        earliest -= 1
    return earliest


def version_at(times: CommitTimes, at_ms: int, earliest_version: int, head_version: int) -> int | None:
    """The newest version that was committed at or before `at_ms`, or None where all came later.

    Rests on commit times increasing with the version, so it reads only about log2(versions) commits.
    """
    low, high = earliest_version, head_version
    found = None
    while low <= high:
        middle = (low + high) // 2
        if times.at(middle) <= at_ms:
            found, low = middle, middle + 1
        else:
            high = middle - 1
    return found
