"""Plan the change feed: which change files are between two offsets, and how far one trigger may go.

This module knows the log but not Spark. A version that changed no rows (a compaction) has no change files, so it never
moves an offset by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

from tidelog.log import Table
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.internals import Change, ChangeFile, System, commit_changes
from tidelog.streaming.datasource.offsets import COMPLETE, Offset

# A change file takes a few hundred bytes here, so the plans of this many versions take a few megabytes at most.
_CACHED_VERSIONS = 1024
# Spark polls an idle stream many times a second. While commits arrive, nearly every poll looks at the log; the longer
# the table stays quiet, the fewer do, down to one a second after half a minute.
_FASTEST_POLL_S = 0.02
_SLOWEST_POLL_S = 1.0
_QUIET_SPAN_S = 30.0


class FeedPlanner:
    """The change feed of one table, with a small cache of the change files of its versions. Not thread-safe."""

    def __init__(self, table: Table, system: System) -> None:
        self._table = table
        self._system = system
        self._cache: OrderedDict[int, list[Change]] = OrderedDict()
        self._last_news_s = system.monotonic_s()
        self._refreshed_s = float("-inf")

    @property
    def table(self) -> Table:
        """The table as of the last refresh."""
        return self._table

    def refresh_if_due(self) -> None:
        """Refresh the table, unless that was done a moment ago."""
        now = self._system.monotonic_s()
        quiet = now - self._last_news_s
        age = min(_SLOWEST_POLL_S, max(_FASTEST_POLL_S, quiet / _QUIET_SPAN_S * _SLOWEST_POLL_S))
        if now - self._refreshed_s < age:
            return
        before = self._table.version
        self._table.refresh()
        self._refreshed_s = now
        if self._table.version != before:
            self._last_news_s = now

    def advance(self, start: Offset, until_version: int, max_files: int | None) -> Offset:
        """The end of a trigger that begins at `start`: at most `max_files` change files, never past `until_version`.

        Returns `start` itself if there is no change file ahead, even if compactions were committed.
        """
        end = start
        left = max_files
        for version, files in self._versions(_last_complete(start), until_version):
            skipped = start.files if version == start.version else 0
            ahead = len(files) - skipped
            if ahead <= 0:
                continue
            if left is not None and ahead > left:
                return Offset(start.table_id, version, skipped + left) if left else end
            end = Offset(start.table_id, version)
            left = None if left is None else left - ahead
        return end

    def between(self, start: Offset, end: Offset) -> Iterator[Change]:
        """The change files after `start` up to and including `end`, in commit order."""
        for version, files in self._versions(_last_complete(start), end.version):
            low = start.files if version == start.version else 0
            high = end.files if version == end.version and end.files != COMPLETE else len(files)
            yield from files[low:high]

    def _versions(self, after: int, until: int) -> Iterator[tuple[int, list[Change]]]:
        version = after + 1
        while version <= until:
            if version in self._cache:
                self._cache.move_to_end(version)
                yield version, self._cache[version]
                version += 1
                continue
            for commit, stamp in self._table.timeline.between(version - 1, until):
                try:
                    found = commit_changes(commit, stamp, "append", self._table.change_source)
                except NotAppendOnlyError as error:
                    raise _with_options(error) from None
                # Nothing here reads the statistics, which make up most of a file's size.
                files = [replace(file, stats=None) if isinstance(file, ChangeFile) else file for file in found]
                self._remember(commit.version, files)
                yield commit.version, files
            return

    def _remember(self, version: int, files: list[Change]) -> None:
        self._cache[version] = files
        while len(self._cache) > _CACHED_VERSIONS:
            self._cache.popitem(last=False)


def _with_options(error: NotAppendOnlyError) -> NotAppendOnlyError:
    """The error with the advice that fits `format("tidelog")`, which has no change mode but `append`."""
    advice = (
        f"continue after it with startingVersion={error.version} (exclusive here, inclusive in Delta; a stream also "
        f"needs a new checkpoint), or read its changes with Table.changes(after={error.version - 1})"
    )
    return NotAppendOnlyError(error.message, advice=advice, **error.fields)


def _last_complete(offset: Offset) -> int:
    """The newest version of which all files have been read."""
    return offset.version if offset.files == COMPLETE else offset.version - 1
