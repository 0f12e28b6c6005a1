"""The version at a cut-off: the newest one that readers have had since then or longer."""

from __future__ import annotations

from tidelog.log.state import versions
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import is_older
from tidelog.log.storage import Store


def version_at_cutoff(store: Store, cutoff_ms: int, earliest_version: int, head_version: int) -> int | None:
    """The newest version committed and written by `cutoff_ms`; None if all are newer.

    A commit has the time at which its writer was about to put it. If the writer was paused then, the commit can be much
    newer than it says, and so can the removal of the files that it replaces. So the commit must have been in the log
    for that long as well, by the store's clock. In a copy of a table all files are new: nothing is before the cut-off
    for a while.
    """
    found = versions.version_at(CommitTimes(store), cutoff_ms, earliest_version, head_version)
    if found is None or is_older(store, found, cutoff_ms):
        return found
    # Versions are written one after the other, and few commits are paused, so this is rare.
    low, high, found = earliest_version, found - 1, None
    while low <= high:
        middle = (low + high) // 2
        if is_older(store, middle, cutoff_ms):
            found, low = middle, middle + 1
        else:
            high = middle - 1
    return found
