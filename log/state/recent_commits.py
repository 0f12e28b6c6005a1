"""The commits that a refresh has just read, for the next reader of the history."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.log.format.actions import Commit

# An action takes one to three kilobytes with its statistics, so this many take some tens of megabytes. They are enough
# for a change feed that has fallen 10,000 small commits behind.
_MAX_ACTIONS = 2**15


class RecentCommits:
    """Commits in memory, the oldest ones within a bound. Each is given away once, so that they do not stay for long.

    They belong to the table that is loaded; the next refresh that finds news replaces them.
    """

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self._commits: dict[int, Commit] = {}
        room = _MAX_ACTIONS
        for commit in commits:
            room -= 1 + len(commit.actions)
            if room < 0:
                break
            self._commits[commit.version] = commit

    def __contains__(self, version: int) -> bool:
        return version in self._commits

    def take(self, version: int) -> Commit | None:
        """The commit at `version`, which is not held any longer; None if it is not here."""
        return self._commits.pop(version, None)
