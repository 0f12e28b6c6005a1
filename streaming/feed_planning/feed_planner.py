"""Plan the change feed: how far a micro-batch goes from an offset, and what lies between two offsets.

A commit that changed no rows (a compaction, a property) has nothing to read, so it never moves an offset by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidelog.log.errors import NotAppendOnlyError, SchemaChangedError
from tidelog.log.format.actions import Metadata
from tidelog.log.read.mixed_commits import Change
from tidelog.log.read.table_reader import TableReader
from tidelog.log.state.segment import range_error
from tidelog.log.system import System, to_datetime, utc_text
from tidelog.streaming.feed_planning.feed_units import CommitReader, CommitUnits, SnapshotUnits
from tidelog.streaming.feed_planning.limits import Admission, ReadLimits
from tidelog.streaming.feed_planning.offsets import COMPLETE, Offset
from tidelog.streaming.feed_planning.query_columns import LoadedColumns, QueryColumns

# Spark polls an idle stream many times a second. On a disk each poll looks at the log, which takes 20 microseconds. In
# an object store a look is a request: while commits arrive, nearly every poll makes one; the longer the table stays
# quiet, the fewer do, down to one a second after half a minute.
_FASTEST_POLL_S = 0.02
_SLOWEST_POLL_S = 1.0
_QUIET_SPAN_S = 30.0


class FeedPlanner:
    """The change feed of one table. Not thread-safe.

    `loaded` has the columns of the query: a later version with other columns ends it. None if the query chose its
    columns itself.

    Raises:
        SchemaChangedError: The table has other columns already, as when a query is started again without a new load.
    """

    def __init__(
        self,
        table: TableReader,
        system: System,
        columns: QueryColumns,
        *,
        skips_changes: bool = False,
        counts_rows: bool = False,
        loaded: LoadedColumns | None = None,
    ) -> None:
        self._system = system
        self._columns = columns
        self._counts_rows = counts_rows
        self._loaded = loaded
        self.table_schema = table.schema if loaded is None else loaded.schema
        self._selection = columns.selection(self.table_schema)
        self._require_same_columns(table.version, table.head.metadata, table.path)
        self._commits = CommitReader(
            table, columns.mode or "append", self._selection, skips_changes=skips_changes, counts_rows=counts_rows
        )
        self._snapshot: SnapshotUnits | None = None
        # An offset, and how far the commits after it have nothing to read.
        self._quiet: tuple[Offset, Offset] | None = None
        self._last_news_s = system.monotonic_s()
        self._refreshed_s = float("-inf")

    @property
    def table(self) -> TableReader:
        """The table as of the last refresh."""
        return self._commits.table

    def refresh_if_due(self) -> None:
        """Refresh the table, unless that costs a request and was done a moment ago."""
        now = self._system.monotonic_s()
        if self.table.store.small_reads_at_once > 1:
            quiet = now - self._last_news_s
            age = min(_SLOWEST_POLL_S, max(_FASTEST_POLL_S, quiet / _QUIET_SPAN_S * _SLOWEST_POLL_S))
            if now - self._refreshed_s < age:
                return
        before = self.table.version
        self.table.refresh()
        self._refreshed_s = now
        if self.table.version != before:
            self._last_news_s = now

    def require_reached(self, offset: Offset) -> None:
        """Raise HistoryExpiredError if the table has no version that the stream has read, even after a refresh."""
        if offset.version > self.table.version and offset.version > self.table.refresh().version:
            raise range_error(
                self.table.store,
                f"the stream has read version {offset.version} of {self.table.path}, which no longer exists: the table "
                "was restored from an older copy, and the stream would miss the commits that reuse its versions",
                self.table.timeline.oldest_version(),
                self.table.version,
            )

    def snapshot_start(self) -> Offset:
        """Where a stream begins that reads the table as it is, then what follows."""
        table = self.table
        units = self._units_of_snapshot(table.version)
        offset = Offset(table.id, table.version)
        return replace(offset, files=0, snapshot=True) if units.has_rows else offset

    def resumed(self, start: Offset) -> Offset:
        """Where to go on from `start`: further, if the commits after it are known to have nothing to read.

        So a long time without rows is not read again and again, and its commits may expire.
        """
        return self._quiet[1] if self._quiet and self._quiet[0] == start else start

    def note_quiet(self, start: Offset, version: int) -> None:
        """Take for granted that the commits after `start` up to `version` have nothing to read."""
        self._quiet = start, replace(start, version=version, files=COMPLETE)

    def advance(self, start: Offset, until_version: int, limits: ReadLimits) -> Offset:
        """The end of a micro-batch that begins at `start`, within `limits`, never past `until_version`.

        Returns `start` itself if nothing is ahead, even if compactions were committed. What comes before a commit that
        cannot be shown is read first; the next call raises its error.

        Raises:
            HistoryExpiredError: A commit that the stream needs is expired.
            NotAppendOnlyError: The next commit removed or changed rows, in the mode `append`.
            SchemaChangedError: The next commit changed the columns that the query reads.
        """
        admission = Admission(limits)
        if start.snapshot:
            return self._advance_in_snapshot(start, admission)
        self._snapshot = None
        begin = self.resumed(start)
        seen: CommitUnits | None = None
        skipped, has_rows = 0, False
        try:
            for commit in self._commits.between(begin.last_complete, until_version):
                self._require_same_columns(commit.version, commit.metadata, self.table.path)
                done = begin.files if commit.version == begin.version and begin.files != COMPLETE else 0
                taken = done + commit.taken(done, admission)
                rows_taken = any(unit.files for unit in commit.units[done:taken])
                if taken < len(commit.units):
                    if rows_taken:
                        return replace(_after(begin, seen, skipped), version=commit.version, files=taken)
                    break
                has_rows = has_rows or rows_taken
                skipped += commit.is_skipped
                seen = commit
        except (NotAppendOnlyError, SchemaChangedError):
            if not has_rows:
                raise
        end = _after(begin, seen, skipped)
        if has_rows:
            return end
        self._quiet = start, end
        return start

    def between(self, start: Offset, end: Offset) -> Iterator[Change]:
        """What to read after `start`, up to and including `end`, in commit order."""
        if start.snapshot:
            units = self._units_of_snapshot(start.version)
            yield from units.between(start.files, end.files if end.snapshot else units.count)
            start = replace(start, files=COMPLETE, snapshot=False)
        if end.snapshot:
            return
        for commit in self._commits.between(start.last_complete, end.version):
            low = start.files if commit.version == start.version else 0
            high = end.files if commit.version == end.version and end.files != COMPLETE else len(commit.units)
            yield from (unit.change for unit in commit.units[low:high] if unit.files)

    def _advance_in_snapshot(self, start: Offset, admission: Admission) -> Offset:
        units = self._units_of_snapshot(start.version)
        taken = units.advance(start.files, admission)
        if taken < units.count:
            return replace(start, files=taken)
        until = utc_text(to_datetime(units.timestamp_ms))
        return replace(start, files=COMPLETE, snapshot=False, complete_until=until)

    def _units_of_snapshot(self, version: int) -> SnapshotUnits:
        if self._snapshot is None or self._snapshot.version != version:
            snapshot = self.table.at(version=version)
            count_in = self.table.store if self._counts_rows else None
            self._snapshot = SnapshotUnits(snapshot, self._selection, count_in=count_in)
        return self._snapshot

    def _require_same_columns(self, version: int, metadata: Metadata | None, path: str) -> None:
        if self._loaded is not None and metadata is not None and version > self._loaded.version:
            self._columns.require_same(self._selection.schema, version, metadata, path)


def _after(begin: Offset, last: CommitUnits | None, skipped: int) -> Offset:
    """The offset after the commit `last`, with `skipped` more commits left out since `begin`."""
    if last is None:
        return begin
    until = utc_text(to_datetime(last.timestamp_ms))
    skipped += begin.skipped
    return replace(begin, version=last.version, files=COMPLETE, complete_until=until, skipped=skipped)
