"""Loading a version: from the log's files to a `LogState`, and from one `LogState` to the next."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Lock

from tidelog.log.format.actions import Commit
from tidelog.log.state import checkpoint_reader, checksum, commits, files, head
from tidelog.log.state.checkpoint_reader import UnreadableCheckpointError
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head
from tidelog.log.state.segment import CheckpointFiles, Segment, list_segment
from tidelog.log.storage import Store

_LOGGER = logging.getLogger(__name__)

# A writer that never looks at the files would hold every commit it saw; past this many it forgets them and, asked for
# the files after all, reads the log again.
_MAX_PENDING_COMMITS = 256


class LogState:
    """One version of the table: its head now, its files when they are first asked for. Immutable to the caller."""

    def __init__(
        self, store: Store, table_head: Head, base: Segment | FileState | None, pending: Sequence[Commit]
    ) -> None:
        self.head = table_head
        self._store = store
        self._base = base
        self._pending = tuple(pending)
        self._lock = Lock()

    def files(self) -> FileState:
        """The live files and tombstones; the first call may read a checkpoint and commits."""
        with self._lock:
            if not isinstance(self._base, FileState) or self._pending:
                self._base = files.apply(self._materialise(), self._pending)
                self._pending = ()
            return self._base

    def advance(self, new_commits: Sequence[Commit]) -> LogState:
        """The state after `new_commits`, which follow directly on this version."""
        new_head = self.head
        for commit in new_commits:
            stamp = commits.timestamp_ms(self._store, commit)
            new_head = head.advance(new_head, commit, stamp, self._store.url)
        with self._lock:
            base, pending = self._base, (*self._pending, *new_commits)
        if len(pending) > _MAX_PENDING_COMMITS:
            base = files.apply(base, pending) if isinstance(base, FileState) else None
            pending = ()
        return LogState(self._store, new_head, base, pending if base is not None else ())

    def _materialise(self) -> FileState:
        if isinstance(self._base, FileState):
            return self._base
        segment = self._base or list_segment(self._store, self.head.version)
        return load_files(self._store, segment)


def load(store: Store, version: int | None = None) -> LogState:
    """The state at `version` (None: the newest). Raises what `list_segment` raises, and CorruptLogError.

    A checkpoint that cannot be read is passed over for an older one.
    """
    unreadable: set[CheckpointFiles] = set()
    while True:
        segment = list_segment(store, version, unreadable=unreadable)
        try:
            table_head = load_head(store, segment)
        except UnreadableCheckpointError as error:
            unreadable.add(_next_older(segment, error))
            continue
        # Probing finds what was committed while the log was listed.
        state = LogState(store, table_head, segment, ())
        return state if version is not None else state.advance(list(commits.commits_after(store, segment.version)))


def load_head(store: Store, segment: Segment) -> Head:
    """The head at the segment's version, from its newest usable checksum or by replay."""
    if segment.checksum_versions:
        start = checksum.read_head(store, segment.checksum_versions[-1])
        if start is not None:
            rest = range(start.version + 1, segment.version + 1)
            for commit in commits.read_commits(store, rest):
                start = head.advance(start, commit, commits.timestamp_ms(store, commit), store.url)
            return start
    return _replay_head(store, segment)


def load_files(store: Store, segment: Segment) -> FileState:
    """The files at the segment's version, by replay of its checkpoint and commits.

    A checkpoint that cannot be read is passed over for an older one, or the commits alone.
    """
    base = files.EMPTY
    unreadable: set[CheckpointFiles] = set()
    while segment.checkpoint is not None:
        try:
            base = checkpoint_reader.read_files(store, segment.checkpoint)
            break
        except UnreadableCheckpointError as error:
            unreadable.add(_next_older(segment, error))
            segment = list_segment(store, segment.version, unreadable=unreadable)
    return files.apply(base, commits.read_commits(store, segment.commit_versions))


def _replay_head(store: Store, segment: Segment) -> Head:
    partial = head.EMPTY
    stamp = 0
    if segment.checkpoint is not None:
        partial = checkpoint_reader.read_partial_head(store, segment.checkpoint)
        if not segment.commit_versions:
            (commit,) = commits.read_commits(store, [segment.checkpoint.version])
            stamp = commits.timestamp_ms(store, commit)
    for commit in commits.read_commits(store, segment.commit_versions):
        stamp = commits.timestamp_ms(store, commit)
        partial = head.fold(partial, commit, stamp)
    return partial.complete(segment.version, stamp, store.url)


def _next_older(segment: Segment, error: UnreadableCheckpointError) -> CheckpointFiles:
    """The checkpoint to pass over; raises the error again where the segment has none."""
    if segment.checkpoint is None:
        raise error
    _LOGGER.warning("passing over a checkpoint: %s", error)
    return segment.checkpoint
