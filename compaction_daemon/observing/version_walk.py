"""The newest versions of a table: what each commit did, how large the table and its debt were after it, and how fast
streams and other writers wrote.

Only the newest state and the commits are read. Going backwards, each commit is taken back: its added files go, its
removed files return.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow.compute as pc

from tidelog.compaction_daemon.observing.safe_json import values_of
from tidelog.compaction_daemon.planning.history import CostRecord, cost_of
from tidelog.log import CommitRecord, OperationClass, Snapshot, Table
from tidelog.log.commit_records import recorded
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format import commit_info, paths, properties
from tidelog.log.format.actions import AddFile, Commit, RemoveFile
from tidelog.log.format.statistics import num_records
from tidelog.log.read.debt import SMALL_SHARE
from tidelog.log.read.timeline import Timeline

# Reading more commits would take longer than a page should, and no screen shows more of them apart.
MAX_VERSIONS = 500
# An action takes one to three kilobytes in memory. A commit of a million files ends the walk.
MAX_ACTIONS = 100_000
# Commits are read in blocks, since a store can answer several requests at once. A block has at most so many commits,
# and about so many actions, if they are not larger than those of the block before.
_BLOCK, _BLOCK_ACTIONS = 50, 10_000
# Other engines can name as many applications in a commit as they like.
_MAX_APPLICATIONS = 5
# Streams that are shown; those with the newest commits.
MAX_STREAMS = 20
# The names under which writers count the rows that an operation wrote: of an upsert those that it was given.
_ROW_METRICS = ("numSourceRows", "numOutputRows")
_MAX_DIGITS = 18
# No batch takes a year; a larger number is not a time.
_MAX_MS = 366 * 86_400_000
# A stream that waited so many times as long as usual was not writing.
_PAUSE = 10
# What tidelog itself keeps as applications: ledgers of sinks, horizons, leases.
_OWN = ("tidelog/", "tidelog.")


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one version and what makes it slow to read; for the terms see `tidelog.log.Debt`.

    It is no Debt, because the walk does not know how long an older version's log tail was.

    Attributes:
        files: The number of live files.
        bytes: Their size.
        rows: The number of live rows; None if another engine left a file without a row count.
        small_files: Files below three quarters of the target size that the table has now.
        small_bytes: The size of the small files.
        dead_rows: Rows that are deleted but still stored.
        dead_row_files: Files with dead rows.
    """

    files: int
    bytes: int
    rows: int | None
    small_files: int
    small_bytes: int
    dead_rows: int
    dead_row_files: int


class _BatchRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What a sink records about a micro-batch in its commit, as far as it is shown."""

    query_id: str
    batch_id: int
    sink: str
    query_name: str | None = None
    ms: object = None


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch, or another write that an application numbered.

    Attributes:
        application: The id of the application in the log.
        batch_id: The application's number for it.
        query_id: The streaming query, if a sink of tidelog wrote it.
        sink: The sink's name, likewise.
        seconds: How long the batch took up to its commit; None if the commit does not say.
        query_name: The query's `queryName`, if it has one.
    """

    application: str
    batch_id: int
    query_id: str | None = None
    sink: str | None = None
    seconds: float | None = None
    query_name: str | None = None


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One commit, and the table after it.

    Attributes:
        commit: The commit.
        bytes_added: The size of the added files.
        bytes_removed: The size of the removed files.
        rows_written: The rows that the operation wrote, of an upsert those that it was given; None if it wrote none, or
            does not say.
        applications: The applications whose transactions the commit records, such as a stream's; at most five.
        batch: The micro-batch of a stream that it committed; None if it did not.
        rebased_over: The first and the last commit that it was rebased over; None if it was not.
        rebase_rules: The rules of the rebase that changed it.
        cost: What a compaction was predicted to cost, and did cost; None if the commit does not say.
        size: The table after the commit.
    """

    commit: CommitRecord
    bytes_added: int
    bytes_removed: int
    rows_written: int | None
    applications: tuple[str, ...]
    batch: StreamBatch | None
    rebased_over: tuple[int, int] | None
    rebase_rules: tuple[str, ...]
    cost: CostRecord | None
    size: TableSize

    def view(self) -> dict[str, Any]:
        """What is shown of it: the commit's own values beside the others, and of the cost the two that are compared."""
        cost = self.cost
        return {
            **commit_view(self.commit),
            **{name: value for name, value in values_of(self).items() if name not in ("commit", "cost")},
            "predicted": cost and cost.predicted,
            "actual": cost and cost.actual,
        }


def commit_view(commit: CommitRecord) -> dict[str, Any]:
    """What is shown of a commit: all but the metrics, of which another engine can write as many as it likes."""
    return {name: value for name, value in values_of(commit).items() if name != "metrics"}


def newest_versions(table: Table, size: TableSize, limit: int = MAX_VERSIONS) -> Iterator[VersionEntry]:
    """The newest versions up to the loaded one, newest first.

    At most `limit` of them, and fewer if they are not retained or have more than 100,000 actions together.

    Args:
        table: The table.
        size: The size of the loaded version, from `table_size`.
        limit: How many versions to read at most.
    """
    small_below = _small_below(table)
    for commit, record in recorded(table.store, _newest_first(table.timeline, limit)):
        yield _entry(commit, record, size)
        size = _before(commit, record, size, small_below)


def table_size(table: Table, snapshot: Snapshot) -> TableSize:
    """The size of a snapshot. Works on whole columns, without a Python object for each file."""
    adds = snapshot.files()
    sizes, vectors = adds["size"], adds["deletionVector"]
    small = sizes.filter(pc.less(sizes, _small_below(table)))
    rows = snapshot.state.files().values.live_rows()
    return TableSize(
        files=adds.num_rows,
        bytes=pc.sum(sizes).as_py() or 0,
        rows=None if rows.null_count else pc.sum(rows).as_py() or 0,
        small_files=len(small),
        small_bytes=pc.sum(small).as_py() or 0,
        dead_rows=pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0,
        dead_row_files=len(vectors) - vectors.null_count,
    )


def _small_below(table: Table) -> int:
    """The size from which on a file is not small, in bytes."""
    return math.ceil(properties.size_bytes(table.properties, properties.TARGET_FILE_SIZE) * SMALL_SHARE)


def _newest_first(timeline: Timeline, limit: int) -> Iterator[tuple[Commit, int]]:
    """The commits with their times, newest first. Blocks of them are read at once, and the oldest ones one by one."""
    room, last, block = MAX_ACTIONS, timeline.version, 2
    oldest = max(timeline.first_version, timeline.version - limit + 1)
    while last >= oldest:
        after = max(last - block, oldest - 1)
        try:
            found = list(timeline.between(after, last))
        except HistoryExpiredError:
            break
        for commit, timestamp_ms in reversed(found):
            room -= 1 + len(commit.actions)
            if room < 0 and commit.version < timeline.version:
                return
            yield commit, timestamp_ms
        last = after
        largest = max(len(commit.actions) for commit, _ in found)
        block = max(1, min(_BLOCK, _BLOCK_ACTIONS // (1 + largest)))
    if last >= oldest:
        for commit, timestamp_ms in timeline.newest_first(last):
            if commit.version < oldest:
                return
            yield commit, timestamp_ms


def _entry(commit: Commit, record: CommitRecord, size: TableSize) -> VersionEntry:
    found = commit.info.get("tidelog")
    rebase = found.get("rebase") if isinstance(found, dict) else None
    rebase = rebase if isinstance(rebase, dict) else {}
    over, rules = rebase.get("over"), rebase.get("rules")
    return VersionEntry(
        commit=record,
        bytes_added=sum(add.size for add in commit.adds),
        bytes_removed=sum(remove.size or 0 for remove in commit.removes),
        rows_written=_rows_written(record),
        applications=tuple(action.app_id for action in commit.transactions[:_MAX_APPLICATIONS]),
        batch=_batch(commit),
        rebased_over=_pair(over),
        rebase_rules=tuple(str(rule) for rule in rules) if isinstance(rules, list) else (),
        cost=cost_of(commit),
        size=size,
    )


def _rows_written(record: CommitRecord) -> int | None:
    if not record.data_change:
        return None
    counts = (record.metrics.get(name, "") for name in _ROW_METRICS)
    found = next((int(text) for text in counts if text.isdecimal() and len(text) <= _MAX_DIGITS), None)
    return record.rows_added if found is None else found


def _batch(commit: Commit) -> StreamBatch | None:
    if not commit.data_change:
        return None
    try:
        record = msgspec.convert(commit_info.tidelog(commit.info).get("batch"), _BatchRecord)
    except msgspec.ValidationError:  # not of a sink, or of another version of it
        others = (action for action in commit.transactions if not action.app_id.startswith(_OWN))
        return next((StreamBatch(action.app_id, action.version) for action in others), None)
    return StreamBatch(
        application=f"tidelog/{record.query_id}/{record.sink}",
        batch_id=record.batch_id,
        query_id=record.query_id,
        sink=record.sink,
        seconds=record.ms / 1000 if type(record.ms) is int and 0 <= record.ms < _MAX_MS else None,
        query_name=record.query_name,
    )


def _pair(found: object) -> tuple[int, int] | None:
    """The first and the last version of a rebase, which any engine could have written differently."""
    match found:
        case [int() as first, int() as last]:
            return first, last
        case _:
            return None


def _before(commit: Commit, record: CommitRecord, after: TableSize, small_below: int) -> TableSize:
    """The table before the commit, of what it was after it. A value that another engine got wrong ends at zero."""
    if record.operation_class is OperationClass.NONE:  # it has no files, or the same ones again
        return after
    gone, back = _Sum(small_below), _Sum(small_below)
    for add in commit.adds:
        gone.count(add, num_records(add.stats))
    records = {paths.canonical(add.path): num_records(add.stats) for add in commit.adds}
    for remove in commit.removes:
        known = num_records(remove.stats) if remove.stats else records.get(paths.canonical(remove.path))
        back.count(remove, known)
    rows = after.rows
    if commit.data_change and rows is not None:
        rows = None if gone.rows is None or back.rows is None else rows - gone.rows + back.rows
    return TableSize(
        files=max(0, after.files - gone.files + back.files),
        bytes=max(0, after.bytes - gone.bytes + back.bytes),
        rows=None if rows is None else max(0, rows),
        small_files=max(0, after.small_files - gone.small_files + back.small_files),
        small_bytes=max(0, after.small_bytes - gone.small_bytes + back.small_bytes),
        dead_rows=max(0, after.dead_rows - gone.dead_rows + back.dead_rows),
        dead_row_files=max(0, after.dead_row_files - gone.dead_row_files + back.dead_row_files),
    )


class _Sum:
    """What some files are together."""

    def __init__(self, small_below: int) -> None:
        self._small_below = small_below
        self.files = self.bytes = self.small_files = self.small_bytes = self.dead_rows = self.dead_row_files = 0
        self.rows: int | None = 0

    def count(self, file: AddFile | RemoveFile, records: int | None) -> None:
        size = file.size or 0
        vector = file.deletion_vector
        dead = 0 if vector is None else vector.cardinality
        self.files += 1
        self.bytes += size
        if size < self._small_below:
            self.small_files += 1
            self.small_bytes += size
        self.dead_rows += dead
        self.dead_row_files += vector is not None
        self.rows = None if records is None or self.rows is None else self.rows + records - dead


# --- how fast


@dataclass(frozen=True, slots=True)
class Throughput:
    """What some commits wrote.

    Attributes:
        commits: How many there are.
        rows: The rows that they wrote, as far as they say.
        bytes: The size of the files that they added.
        first: The time of the oldest one; None if there is none.
        last: The time of the newest one.
        rows_per_second: The rows by the time since the commit before, without pauses: times that are over ten times as
            long as usual. None for fewer than two commits.
    """

    commits: int
    rows: int
    bytes: int
    first: datetime | None
    last: datetime | None
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class StreamThroughput:
    """What one stream wrote; the attributes that are not explained here are those of `StreamBatch`.

    Attributes:
        last_batch: The number of its newest batch.
        seconds: How long half of its batches took at most (the median), up to the commit; None if no commit says.
        max_seconds: How long the slowest took.
        throughput: What its commits wrote.
    """

    application: str
    query_id: str | None
    query_name: str | None
    sink: str | None
    last_batch: int
    seconds: float | None
    max_seconds: float | None
    throughput: Throughput


def throughput_of(entries: Iterable[VersionEntry]) -> Throughput:
    """What those of the commits wrote that say how many rows; the commits come newest first."""
    found = [entry for entry in entries if entry.rows_written is not None]
    times = [entry.commit.timestamp for entry in found]
    return Throughput(
        commits=len(found),
        rows=sum(entry.rows_written or 0 for entry in found),
        bytes=sum(entry.bytes_added for entry in found),
        first=times[-1] if times else None,
        last=times[0] if times else None,
        rows_per_second=_rate(found),
    )


def _rate(entries: Sequence[VersionEntry]) -> float | None:
    since = [
        ((newer.commit.timestamp - older.commit.timestamp).total_seconds(), newer.rows_written or 0)
        for newer, older in itertools.pairwise(entries)
    ]
    usual_s = statistics.median(seconds for seconds, _ in since) if since else 0.0
    counted = [each for each in since if each[0] <= _PAUSE * usual_s]
    span_s = sum(seconds for seconds, _ in counted)
    return sum(rows for _, rows in counted) / span_s if span_s > 0 else None


def streams_of(entries: Iterable[VersionEntry]) -> tuple[StreamThroughput, ...]:
    """The streams whose batches are among the commits, which come newest first; at most 20, the newest first."""
    found: dict[str, list[VersionEntry]] = {}
    for entry in entries:
        if entry.batch is not None and (entry.batch.application in found or len(found) < MAX_STREAMS):
            found.setdefault(entry.batch.application, []).append(entry)
    return tuple(map(_stream, found.values()))


def _stream(entries: Sequence[VersionEntry]) -> StreamThroughput:
    batches = [entry.batch for entry in entries if entry.batch is not None]
    seconds = [batch.seconds for batch in batches if batch.seconds is not None]
    newest = batches[0]
    return StreamThroughput(
        application=newest.application,
        query_id=newest.query_id,
        query_name=newest.query_name,
        sink=newest.sink,
        last_batch=newest.batch_id,
        seconds=statistics.median(seconds) if seconds else None,
        max_seconds=max(seconds, default=None),
        throughput=throughput_of(entries),
    )
