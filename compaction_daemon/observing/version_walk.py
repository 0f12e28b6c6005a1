"""The newest versions of a table: what each commit did, and how large the table and its debt were after it.

Only the newest state and the commits are read. Going backwards, each commit is taken back: its added files go, its
removed files return.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from tidelog.compaction_daemon.observing.safe_json import values_of
from tidelog.compaction_daemon.planning.history import CostRecord, cost_of
from tidelog.log import CommitRecord, OperationClass, Snapshot, Table
from tidelog.log.commit_records import recorded
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format import paths, properties
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


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one version and what makes it slow to read; for the terms see `tidelog.log.Debt`.

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


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One commit, and the table after it.

    Attributes:
        commit: The commit.
        bytes_added: The size of the added files.
        bytes_removed: The size of the removed files.
        applications: The applications whose transactions the commit records, such as a stream's; at most five.
        rebased_over: The first and the last commit that it was rebased over; None if it was not.
        rebase_rules: The rules of the rebase that changed it.
        cost: What a compaction was predicted to cost, and did cost; None if the commit does not say.
        size: The table after the commit.
    """

    commit: CommitRecord
    bytes_added: int
    bytes_removed: int
    applications: tuple[str, ...]
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
        for commit, timestamp_ms in replace(timeline, version=last).newest_first():
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
        applications=tuple(action.app_id for action in commit.transactions[:_MAX_APPLICATIONS]),
        rebased_over=_pair(over),
        rebase_rules=tuple(str(rule) for rule in rules) if isinstance(rules, list) else (),
        cost=cost_of(commit),
        size=size,
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
