"""Find versions by time or age: binary search over commit times, and walks from the newest commit backwards."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.log.format import filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import read_commit
from tidelog.log.state.segment import first_commit
from tidelog.log.storage import Store


def newest_first(store: Store, head_version: int, first_version: int = 0) -> Iterator[Commit]:
    """The commits from `head_version` down to `first_version`, or to the oldest that still exists."""
    for version in range(head_version, first_version - 1, -1):
        try:
            yield read_commit(store, version)
        except FileNotFoundError:
            return


def earliest_commit(store: Store, head_version: int) -> int:
    """The oldest commit from which all commits up to `head_version` still exist. Lists the log once."""
    commits = set(filenames.versions(store.names(filenames.LOG_FOLDER), LogFileKind.COMMIT))
    return first_commit(store, commits, head_version)


def version_at(times: CommitTimes, at_ms: int, earliest_version: int, head_version: int) -> int | None:
    """The newest version committed at or before `at_ms`; None if all were committed later.

    Commit times increase with the version, so this reads only about log2(versions) commits. Where commits do not
    contain their times, it reads up to three, and looks at the files of others.
    """
    if times.is_by_file(head_version):
        found = times.newest_by_file(at_ms, head_version)
        if found is None or found < earliest_version:
            if times.at(earliest_version) > at_ms:
                return None
        # A table can have had in-commit timestamps for a while.
        elif times.is_by_file(found) and (found == head_version or times.is_by_file(found + 1)):
            return found
    low, high = earliest_version, head_version
    found = None
    while low <= high:
        middle = (low + high) // 2
        if times.at(middle) <= at_ms:
            found, low = middle, middle + 1
        else:
            high = middle - 1
    return found
