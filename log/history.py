"""The history of a table with the class of each commit, other engines' included."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tidelog.log.conflict.files_by_partition import FilesByPartition
from tidelog.log.conflict.operation_class import OperationClass, classify
from tidelog.log.errors import CorruptLogError, HistoryExpiredError
from tidelog.log.format.actions import AddFile, Commit, Metadata, Protocol, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.read.timeline import Timeline
from tidelog.log.state.loader import LogState, load
from tidelog.log.storage import Store


@dataclass(frozen=True, slots=True)
class ClassifiedCommit:
    """One commit of the history, its commit time in ms, and its class."""

    commit: Commit
    timestamp_ms: int
    operation_class: OperationClass


def classified_newest_first(timeline: Timeline) -> Iterator[ClassifiedCommit]:
    """The commits up to the timeline's version, newest first.

    Only the class of another engine's commit may need the state before it. One state is then loaded, and commits are
    taken back from it as the history goes on. A class that needs a state that is gone is told without it.
    """
    before = _Before(timeline.store)
    for commit, timestamp_ms in timeline.newest_first():
        before.move_below(commit)
        yield ClassifiedCommit(commit, timestamp_ms, classify(commit, before))


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
