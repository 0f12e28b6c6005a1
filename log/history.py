"""The history of a table with the class of each commit, other engines' included."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tidelog.log.conflict.files_by_partition import FilesByPartition
from tidelog.log.conflict.operation_class import OperationClass, classify
from tidelog.log.errors import CorruptLogError, HistoryExpiredError
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddFile, Commit, Metadata, Protocol, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.statistics import num_records
from tidelog.log.read.timeline import Timeline
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store
from tidelog.log.system import to_datetime


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit of a table's history, whichever engine wrote it.

    `time_version` is None if the commit changed no rows. `operation` and `engine` are what the writer called itself
    and its operation, None if it did not say. `rows_added` counts the rows of a commit that only inserted; it is None
    for any other commit, and if the writer left no row counts. `files_added` and `files_removed` count data files; a
    file whose deletion vector changed counts in both.
    """

    version: int
    timestamp: datetime
    time_version: datetime | None
    operation_class: OperationClass
    operation: str | None
    data_change: bool
    rows_added: int | None
    files_added: int
    files_removed: int
    engine: str | None
    metrics: Mapping[str, str]
    user_metadata: str | None


def commit_records(timeline: Timeline) -> Iterator[CommitRecord]:
    """The commits up to the timeline's version, newest first.

    Classifying another engine's commit may need the state before it. One state is loaded for that, and commits are
    taken back from it as the history goes on. If that state is gone, the commit is classified without it.
    """
    before = _Before(timeline.store)
    for commit, timestamp_ms in timeline.newest_first():
        before.move_below(commit)
        yield _record(commit, timestamp_ms, classify(commit, before))


def _record(commit: Commit, timestamp_ms: int, operation_class: OperationClass) -> CommitRecord:
    timestamp = to_datetime(timestamp_ms)
    engine = commit.info.get("engineInfo")
    return CommitRecord(
        version=commit.version,
        timestamp=timestamp,
        time_version=timestamp if commit.data_change else None,
        operation_class=operation_class,
        operation=commit_info.operation_name(commit.info),
        data_change=commit.data_change,
        rows_added=_rows_added(commit),
        files_added=len(commit.adds),
        files_removed=len(commit.removes),
        engine=engine if isinstance(engine, str) else None,
        metrics=commit_info.metrics(commit.info),
        user_metadata=commit_info.user_metadata(commit.info),
    )


def _rows_added(commit: Commit) -> int | None:
    if commit.removes or not commit.adds or not commit.data_change:
        return None
    counts = [num_records(add.stats) for add in commit.adds]
    return None if None in counts else sum(count or 0 for count in counts)


class _Before:
    """What was before the commit that a walk from the newest back has come to; see `classes.Before`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._commit: Commit | None = None
        self._census: FilesByPartition | None = None
        self._is_gone = False

    def move_below(self, commit: Commit) -> None:
        """Be the table before `commit`, the one before the last that was given."""
        self._commit = commit
        if self._census is not None:
            self._census.take_back(commit)

    def holds(self, adds: Sequence[AddFile]) -> bool:
        """Looks only for files that bring no rows: a file that says it does shows in the change feed as an insert,
        and looking would need a state for every insert of another engine.
        """
        if any(add.data_change for add in adds):
            return False
        census = self._counted()
        return census is None or census.holds(adds)

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        """Looks only at a commit that states metadata or protocol as well, as every RESTORE that was seen does: what
        was removed before is not known from the states after it, so each look needs a state of its own.
        """
        commit = self._commit
        if commit is None or not any(isinstance(action, (Metadata, Protocol)) for action in commit.others):
            return ()
        state = self._load(commit.version - 1) if commit.version else None
        if state is None:
            return ()
        gone = {canonical(path) for path in state.files().removes["path"].to_pylist()}
        return gone.intersection(canonical(add.path) for add in adds)

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str] | None:
        """See `Census`."""
        census = self._counted()
        return None if census is None else census.beside(files)

    def _counted(self) -> FilesByPartition | None:
        """The census before the commit, made where there is none yet; None where its state is gone."""
        if self._census is None and self._commit is not None and not self._is_gone:
            state = self._load(self._commit.version)
            self._is_gone = state is None
            if state is not None:
                self._census = FilesByPartition(state.files(), state.head.metadata)
                self._census.take_back(self._commit)
        return self._census

    def _load(self, version: int) -> LogState | None:
        try:
            return load(self._store, version)
        except (CorruptLogError, HistoryExpiredError):
            return None
