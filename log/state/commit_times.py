"""The commit times of a table.

With in-commit timestamps, a commit contains its time. Without, the modification time of its file counts. Copying or
restoring a table can put those out of order, so Delta's readers make them increase: each time is at least one
millisecond after the one before.
"""

from __future__ import annotations

import numpy as np

from tidelog.log.format import commit_info, filenames
from tidelog.log.format.actions import Commit
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.state.commits import read_info
from tidelog.log.storage import Store

# Up to this many new commits are looked up one by one; for more, listing the log is faster.
_MAX_SINGLE = 64
# After this many single lookups the log is listed again, which forgets commits that were cleaned up since.
_MAX_SINCE_LISTING = 2**16


class CommitTimes:
    """The commit times of one table.

    If commits carry no timestamp, the log is listed once and each new file is looked up after that. None can be
    skipped, because the time of a commit depends on all commits before it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file_times: dict[int, int] = {}
        self._newest = -1
        self._single = 0

    def of(self, commit: Commit) -> int:
        """The commit's time in ms since the epoch."""
        stamp = commit_info.in_commit_timestamp_ms(commit.info)
        return self._by_file(commit.version) if stamp is None else stamp

    def at(self, version: int) -> int:
        """The time of the commit at `version` in ms since the epoch; -1, which is before all others, if it is gone."""
        try:
            stamp = commit_info.in_commit_timestamp_ms(read_info(self._store, version))
        except FileNotFoundError:
            return -1
        return self._by_file(version) if stamp is None else stamp

    def is_by_itself(self, version: int, modified_ms: int) -> bool:
        """Whether the time of the commit at `version` (file time `modified_ms`) does not depend on earlier commits."""
        stamp = commit_info.in_commit_timestamp_ms(read_info(self._store, version))
        return stamp is not None or self._by_file(version) == modified_ms

    def _by_file(self, version: int) -> int:
        if version not in self._file_times:
            ahead = version - self._newest
            known = bool(self._file_times) and 0 < ahead <= _MAX_SINGLE
            if not (known and self._single < _MAX_SINCE_LISTING and self._look_up_each(version)):
                self._list()
        return self._file_times[version]

    def _look_up_each(self, until: int) -> bool:
        """Look up the commits up to `until` one by one; False if one of them is gone."""
        for version in range(self._newest + 1, until + 1):
            try:
                self._record(version, self._store.modified_ms(filenames.commit_path(version)))
            except FileNotFoundError:
                return False
            self._single += 1
        return True

    def _list(self) -> None:
        by_name = dict(self._store.modified_times(filenames.LOG_FOLDER, filenames.COMMIT_SUFFIX))
        names = sorted(by_name)
        versions = filenames.versions(names, LogFileKind.COMMIT)
        if len(versions) < len(names):
            names = [filenames.commit_name(version) for version in versions]
        places = np.arange(len(names))
        # Each time is the file's, or one more than the time before, whichever is later. So minus their places the times
        # are the largest value so far; and the first one is at least 0.
        ahead = np.maximum.accumulate(np.fromiter((by_name[name] for name in names), np.int64, len(names)) - places)
        self._file_times = dict(zip(versions, (np.maximum(ahead, 0) + places).tolist(), strict=True))
        self._newest, self._single = versions[-1] if versions else -1, 0

    def _record(self, version: int, modified_ms: int) -> None:
        before = self._file_times.get(self._newest, -1)
        self._file_times[version] = max(modified_ms, before + 1)
        self._newest = version
