"""Find versions by time or age: binary search over commit times, and walks from the newest commit backwards."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.log.format import filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import is_there, read_commit
from tidelog.log.state.segment import complete_checkpoints, first_commit
from tidelog.log.storage import Store


def newest_first(store: Store, head_version: int, first_version: int = 0, floor: int = 0) -> Iterator[Commit]:
    """The commits from `head_version` down to `first_version`, or to the oldest one that is retained."""
    earliest = None
    for version in range(head_version, first_version - 1, -1):
        try:
            commit = read_commit(store, version)
        except FileNotFoundError:
            return
        if version < floor:
            earliest = earliest_commit(store, head_version, floor, first_version) if earliest is None else earliest
            if version < earliest:
                return
        yield commit


def earliest_commit(store: Store, head_version: int, floor: int = 0, first_version: int = 0) -> int:
    """The oldest commit that is retained, from which all commits up to `head_version` exist. Lists the log once.

    That a file exists does not make it a commit: a writer that slept through a clean-up can put its version right below
    the oldest one that is left, and no version has its rows. So commits below the `floor` count from a checkpoint on,
    as a clean-up leaves them for a consumer, and all of them if it has not deleted any.
    """
    names = store.names(filenames.LOG_FOLDER)
    commits = set(filenames.versions(names, LogFileKind.COMMIT))
    if head_version not in commits and not is_there(store, head_version):
        return head_version  # known from a checkpoint alone, and no version before it can be rebuilt
    first = first_commit(store, commits, head_version)
    if first >= floor or first <= first_version:
        return first
    checkpoints = (max(first, found.version) for found in complete_checkpoints(names) if found.version >= first - 1)
    return min(floor, head_version, *checkpoints)


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
