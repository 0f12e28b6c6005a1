"""The history of a table: its commits, each with its operation class, whichever engine wrote it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from tidelog.log.conflict.operation_class import OperationClass, classify
from tidelog.log.conflict.partitions import FilesByPartition
from tidelog.log.errors import ConfigurationError, CorruptLogError, HistoryExpiredError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddFile, Commit, Metadata, Protocol, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.statistics import num_records
from tidelog.log.presentable import brief
from tidelog.log.read.timeline import Timeline
from tidelog.log.state.loader import LogState, load
from tidelog.log.state.table_identity import is_checkpoint_only
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime

# What tidelog and delta-spark call the counts of rows, and then delta-rs.
_INSERTED = ("numTargetRowsInserted", "num_target_rows_inserted")
_WRITTEN = ("numOutputRows", "num_added_rows")
_UPDATED = ("numUpdatedRows", "numTargetRowsUpdated", "num_updated_rows", "num_target_rows_updated")
_DELETED = ("numDeletedRows", "numTargetRowsDeleted", "num_deleted_rows", "num_target_rows_deleted")
_COPIED = ("numCopiedRows", "num_copied_rows", "num_target_rows_copied")
# No count has more digits.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit of a table's history, whichever engine wrote it.

    Attributes:
        version: The ID version.
        timestamp: The commit time, UTC.
        time_version: The commit time if the commit changed rows, else None.
        operation_class: What kind of operation it was for the conflict matrix.
        operation: The writer's name for the operation, such as `MERGE`; None if the commit does not say.
        data_change: Whether the commit changed rows.
        rows_added: The number of rows inserted: of a commit that only inserted, from the files; of an upsert, MERGE or
            overwrite, as its writer counted them. None if that is unknown, or if the commit is none of these.
        rows_updated: The number of rows that an UPDATE, upsert or MERGE updated, as its writer counted them, else None.
        rows_deleted: The number of rows that a DELETE, truncate, upsert or MERGE deleted, as its writer counted them,
            else None.
        files_added: The number of data files added; includes files whose deletion vector changed.
        files_removed: The number of data files removed; includes files whose deletion vector changed.
        engine: The name of the engine that wrote it; None if the commit does not say.
        metrics: The metrics that the writer recorded.
        user_metadata: The text that the user attached, if any.
        checkpoint_only: Whether the log has a checkpoint of the version and not its commit, as a copied log can. Then
            nothing else is known than the version and its time.
    """

    version: int
    timestamp: datetime
    time_version: datetime | None
    operation_class: OperationClass
    operation: str | None
    data_change: bool
    rows_added: int | None
    rows_updated: int | None
    rows_deleted: int | None
    files_added: int
    files_removed: int
    engine: str | None
    metrics: Mapping[str, str]
    user_metadata: str | None
    checkpoint_only: bool = False


def commit_records(timeline: Timeline, limit: int | None = None) -> Iterator[CommitRecord]:
    """The commits up to the timeline's version, newest first, at most `limit` of them.

    If the log has a checkpoint of the version before them and not its commit, that version is the last one.

    Classifying another engine's commit can need the state before it. One state is loaded for this, and each commit is
    undone in it in turn. If that state no longer exists, the commit is classified without it. Raises ConfigurationError
    for a limit that is not a whole number from 0 on.
    """
    if limit is not None and (type(limit) is not int or limit < 0):
        raise ConfigurationError(
            f"limit must be a whole number from 0 on, not {brief(limit)}",
            advice="pass a number of commits, or None for all",
        )
    most = sys.maxsize if limit is None else min(limit, sys.maxsize)
    below = timeline.version
    for _, record in recorded(timeline.store, islice(timeline.newest_first(), most)):
        yield record
        below = record.version - 1
    if timeline.version - below < most and below >= max(timeline.first_version, timeline.floor):
        yield from _of_checkpoint(timeline.store, below)


def _of_checkpoint(store: Store, version: int) -> Iterator[CommitRecord]:
    """The record of a version that is known from a checkpoint alone; none if there is no checkpoint, or a commit."""
    with suppress(CorruptLogError, HistoryExpiredError):
        if is_checkpoint_only(store, version):
            stamp = to_datetime(load(store, version).head.timestamp_ms)
            yield CommitRecord(
                version=version,
                timestamp=stamp,
                time_version=None,
                operation_class=OperationClass.NONE,
                operation=None,
                data_change=False,
                rows_added=None,
                rows_updated=None,
                rows_deleted=None,
                files_added=0,
                files_removed=0,
                engine=None,
                metrics={},
                user_metadata=None,
                checkpoint_only=True,
            )


def recorded(store: Store, commits: Iterable[tuple[Commit, int]]) -> Iterator[tuple[Commit, CommitRecord]]:
    """Each of the commits with its record. They are consecutive, newest first, each with its commit time in ms."""
    before = _Before(store)
    for commit, timestamp_ms in commits:
        before.move_below(commit)
        yield commit, _record(commit, timestamp_ms, classify(commit, before))


def _record(commit: Commit, timestamp_ms: int, operation_class: OperationClass) -> CommitRecord:
    timestamp = to_datetime(timestamp_ms)
    engine = commit.info.get("engineInfo")
    metrics = commit_info.metrics(commit.info)
    return CommitRecord(
        version=commit.version,
        timestamp=timestamp,
        time_version=timestamp if commit.data_change else None,
        operation_class=operation_class,
        operation=commit_info.operation_name(commit.info),
        data_change=commit.data_change,
        rows_added=_rows_added(commit, operation_class, metrics),
        rows_updated=_counted(metrics, _UPDATED) if commit.data_change else None,
        rows_deleted=_counted(metrics, _DELETED) if commit.data_change else None,
        files_added=len(commit.adds),
        files_removed=len(commit.removes),
        engine=engine if isinstance(engine, str) else None,
        metrics=metrics,
        user_metadata=commit_info.user_metadata(commit.info),
    )


def _rows_added(commit: Commit, operation_class: OperationClass, metrics: Mapping[str, str]) -> int | None:
    if not commit.data_change:
        return None
    if commit.removes or not commit.adds:
        inserted = _counted(metrics, _INSERTED)
        # What an UPDATE or MERGE of whole partitions wrote are not its rows alone: it copied others.
        whole = operation_class is OperationClass.OVERWRITE and not _counted(metrics, (*_UPDATED, *_COPIED))
        return _counted(metrics, _WRITTEN) if inserted is None and whole else inserted
    counts = [num_records(add.stats) for add in commit.adds]
    return None if None in counts else sum(count or 0 for count in counts)


def _counted(metrics: Mapping[str, str], names: Sequence[str]) -> int | None:
    """The first of the metrics that the commit has. Another engine's can be anything."""
    text = next((metrics[name] for name in names if name in metrics), "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


class _Before:
    """The table before a commit, in a walk from the newest commit to older ones; implements `Before`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._commit: Commit | None = None
        self._files: FilesByPartition | None = None
        self._has_no_state = False

    def move_below(self, commit: Commit) -> None:
        """Move to the table before `commit`. Call it for each commit, newest first."""
        self._commit = commit
        if self._files is not None:
            self._files.take_back(commit)

    def holds(self, adds: Sequence[AddFile]) -> bool:
        """Look only for files without data change. Files with one are treated as inserts, and looking for them would
        load a state for every insert of another engine.
        """
        if any(add.data_change for add in adds):
            return False
        files = self._files_before()
        return files is None or files.holds(adds)

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        """Look only at commits that also contain metadata or a protocol, as all known kinds of RESTORE do. Later states
        do not show which files had been removed earlier, so each look loads another state.
        """
        commit = self._commit
        if commit is None or not any(isinstance(action, (Metadata, Protocol)) for action in commit.others):
            return ()
        state = self._load(commit.version - 1) if commit.version else None
        if state is None:
            return ()
        removed = {canonical(path) for path in state.files().removes["path"].to_pylist()}
        return removed.intersection(canonical(add.path) for add in adds)

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str] | None:
        """See `FilesByPartition`."""
        known = self._files_before()
        return None if known is None else known.beside(files)

    def _files_before(self) -> FilesByPartition | None:
        """The files before the commit, loaded on the first call; None if the state no longer exists."""
        if self._files is None and self._commit is not None and not self._has_no_state:
            state = self._load(self._commit.version)
            self._has_no_state = state is None
            if state is not None:
                self._files = FilesByPartition(state.files(), state.head.metadata)
                self._files.take_back(self._commit)
        return self._files

    def _load(self, version: int) -> LogState | None:
        try:
            return load(self._store, version)
        except (CorruptLogError, HistoryExpiredError):
            return None
