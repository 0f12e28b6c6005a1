"""When commits were made.

With in-commit timestamps a commit says so itself. Without, its file's modification time counts; copies and restores put
those out of order, so Delta's readers make them increase: each is at least one millisecond after the one before it.
"""

from __future__ import annotations

from tidelog.log.format import commit_info, filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.state.commits import read_commit
from tidelog.log.storage import Store


class CommitTimes:
    """The commit times of one table; lists the log once, and only where a commit carries no timestamp."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file_times: dict[int, int] | None = None

    def of(self, commit: Commit) -> int:
        """The commit's time in ms since the epoch."""
        stamp = commit_info.in_commit_timestamp_ms(commit.info)
        return self._by_file(commit.version) if stamp is None else stamp

    def at(self, version: int) -> int:
        """The time of the commit at `version`; -1, before all others, where it is gone."""
        try:
            return self.of(read_commit(self._store, version))
        except FileNotFoundError:
            return -1

    def is_by_itself(self, version: int, modified_ms: int) -> bool:
        """Whether the time of the commit at `version`, whose file was modified then, rests on no earlier commit."""
        stamp = commit_info.in_commit_timestamp_ms(read_commit(self._store, version).info)
        return stamp is not None or self._by_file(version) == modified_ms

    def _by_file(self, version: int) -> int:
        if self._file_times is None or version not in self._file_times:
            self._file_times = self._list()
        return self._file_times[version]

    def _list(self) -> dict[int, int]:
        times: dict[int, int] = {}
        newest = -1
        for status in self._store.list(filenames.LOG_FOLDER):
            file = filenames.parse(status.name)
            if file and file.kind is LogFileKind.COMMIT:
                newest = max(status.modified_ms, newest + 1)
                times[file.version] = newest
        return times
