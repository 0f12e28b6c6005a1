"""Loading a version: from the log's files to a `LogState`, and from one `LogState` to the next."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

import pyarrow.compute as pc

from tidelog.log.errors import CorruptLogError
from tidelog.log.format.actions import Commit, Metadata, RemoveFile
from tidelog.log.state import checkpoint, checkpoint_reader, checksum, commits, files, head
from tidelog.log.state.checkpoint_reader import UnreadableCheckpointError
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head, PartialHead, Totals
from tidelog.log.state.segment import CheckpointFiles, Segment, list_segment
from tidelog.log.storage import Store

_LOGGER = logging.getLogger(__name__)

# A writer that never looks at the files would hold every commit it saw; past this many it forgets them and, asked for
# the files after all, reads the log again.
_MAX_PENDING_COMMITS = 256


class LogState:
    """One version of the table: its head now, its files when they are first asked for. Immutable to the caller.

    The head may come from a version checksum, which is somebody's claim; `replayed` is what the log itself says.
    """

    def __init__(
        self,
        store: Store,
        table_head: Head,
        base: Segment | FileState | None,
        pending: Sequence[Commit],
        *,
        replayed: Head | None = None,
    ) -> None:
        self.head = table_head
        self._replayed = replayed
        self._store = store
        self._base = base
        self._pending = tuple(pending)
        self._lock = Lock()

    def files(self) -> FileState:
        """The live files and tombstones; the first call may read a checkpoint and commits."""
        with self._lock:
            if not isinstance(self._base, FileState) or self._pending:
                if not isinstance(self._base, FileState):
                    self._base = self._materialise()
                self._base = files.apply(self._base, self._pending)
                self._pending = ()
            return self._base

    def replayed(self) -> Head:
        """The head as checkpoint and commits alone tell it, with the files counted; reads them where needed."""
        state = self.files()
        if self._replayed is None:
            raise AssertionError(self.head.version)
        return head.with_totals(self._replayed, checkpoint.totals_of(state))

    def with_metadata(self, metadata: Metadata) -> LogState:
        """The same version as it would be with other metadata."""
        with self._lock:
            changed = replace(self.head, metadata=metadata)
            return LogState(self._store, changed, self._base, self._pending, replayed=self._replayed)

    def advance(self, new_commits: Sequence[Commit]) -> LogState:
        """The state after `new_commits`, which follow directly on this version."""
        with self._lock:
            base, pending, replayed = self._base, (*self._pending, *new_commits), self._replayed
        new_head = self.head
        for commit in new_commits:
            stamp = commits.timestamp_ms(self._store, commit)
            new_head = head.advance(new_head, commit, stamp, self._store.url)
            replayed = replayed and head.advance(replayed, commit, stamp, self._store.url)
        if new_head.totals is None:
            new_head = _with_foreign_totals(self._store, new_head)
        if len(pending) > _MAX_PENDING_COMMITS:
            base = files.apply(base, pending) if isinstance(base, FileState) else None
            pending = ()
        return LogState(self._store, new_head, base, pending if base is not None else (), replayed=replayed)

    def _materialise(self) -> FileState:
        """The files without the pending commits, and with them `_replayed` where it is not known yet."""
        if isinstance(self._base, Segment):
            try:
                state, replayed = load_files(self._store, self._base, head_known=self._replayed is not None)
            except CorruptLogError:
                # The files that made up the version when it was opened may have been cleaned up since.
                _LOGGER.info("reading the log of %s anew", self._store.url)
            else:
                for commit in self._pending if replayed else ():
                    stamp = commits.timestamp_ms(self._store, commit)
                    replayed = replayed and head.advance(replayed, commit, stamp, self._store.url)
                self._replayed = replayed or self._replayed
                return state
        self._pending = ()
        state, self._replayed = load_files(self._store, list_segment(self._store, self.head.version))
        return state


def load(store: Store, version: int | None = None) -> LogState:
    """The state at `version` (None: the newest). Raises what `list_segment` raises, and CorruptLogError.

    A checkpoint that cannot be read is passed over for an older one.
    """
    unreadable: set[CheckpointFiles] = set()
    while True:
        segment = list_segment(store, version, unreadable=unreadable)
        try:
            state = _load_segment(store, segment)
        except UnreadableCheckpointError as error:
            unreadable.add(_next_older(segment, error))
            continue
        # Probing finds what was committed while the log was listed.
        return state if version is not None else state.advance(list(commits.commits_after(store, segment.version)))


def _load_segment(store: Store, segment: Segment) -> LogState:
    """The segment's state: its head from the newest usable checksum, or everything in one pass over the log."""
    start = checksum.read_head(store, segment.checksum_versions[-1]) if segment.checksum_versions else None
    if start is not None:
        rest = range(start.version + 1, segment.version + 1)
        for commit in commits.read_commits(store, rest):
            start = head.advance(start, commit, commits.timestamp_ms(store, commit), store.url)
        return LogState(store, start, segment, ())
    table_head, state = _replay(store, segment)
    return LogState(store, table_head, state if state is not None else segment, (), replayed=table_head)


def load_files(store: Store, segment: Segment, *, head_known: bool = False) -> tuple[FileState, Head | None]:
    """Files and head at the segment's version, by one pass over its checkpoint and commits.

    A checkpoint that cannot be read is passed over for an older one, or the commits alone. The head is left out (None)
    where it was replayed from the same segment before.
    """
    fold = _HeadFold(store)
    unreadable: set[CheckpointFiles] = set()
    base = files.EMPTY
    while segment.checkpoint is not None:
        try:
            if not head_known:
                fold.begin(segment, segment.checkpoint)
            base = checkpoint_reader.read_files(store, segment.checkpoint)
            break
        except UnreadableCheckpointError as error:
            unreadable.add(_next_older(segment, error))
            segment = list_segment(store, segment.version, unreadable=unreadable)
            head_known = False
    found = commits.read_commits(store, segment.commit_versions)
    state = files.apply(base, found if head_known else map(fold, found))
    # Made now, while the paths are at hand: the first refresh will want them at once.
    _ = state.add_hashes
    return state, None if head_known else fold.head(segment.version, checkpoint.totals_of(state))


def _replay(store: Store, segment: Segment) -> tuple[Head, FileState | None]:
    """Head and files in one pass over the commits, for a log without a usable checksum.

    The files are left out (None) where a checkpoint holds most of them and only its few other rows are needed now.
    """
    fold = _HeadFold(store)
    found = map(fold, commits.read_commits(store, segment.commit_versions))
    if segment.checkpoint is None:
        state = files.apply(files.EMPTY, found)
        return fold.head(segment.version, checkpoint.totals_of(state)), state
    fold.begin(segment, segment.checkpoint)
    for _ in found:
        pass
    return fold.head(segment.version, None), None


class _HeadFold:
    """Folds the head out of commits that pass by on their way to something else."""

    def __init__(self, store: Store) -> None:
        self.partial = PartialHead()
        self._store = store
        self._stamp = 0

    def begin(self, segment: Segment, start: CheckpointFiles) -> None:
        """Begin with the checkpoint `start` of the segment."""
        self.partial = checkpoint_reader.read_partial_head(self._store, start)
        checkpoint_reader.require_schema(self._store, self.partial)
        if not segment.commit_versions:
            # Its content is in the checkpoint already, but not when it was committed.
            self._stamp_only(*commits.read_commits(self._store, [start.version]))

    def __call__(self, commit: Commit) -> Commit:
        """Take one more commit in, and hand it on."""
        self._stamp_only(commit)
        self.partial = head.fold(self.partial, commit, self._stamp)
        return commit

    def head(self, version: int, totals: Totals | None) -> Head:
        """The head at `version`."""
        complete = self.partial.complete(version, self._stamp, self._store.url)
        return complete if totals is None else head.with_totals(complete, totals)

    def _stamp_only(self, commit: Commit) -> None:
        self._stamp = commits.timestamp_ms(self._store, commit)


def _with_foreign_totals(store: Store, table_head: Head) -> Head:
    """The head with the totals that another writer counted, where it left a checksum."""
    found = checksum.read_head(store, table_head.version)
    return table_head if found is None or found.totals is None else head.with_totals(table_head, found.totals)


def _next_older(segment: Segment, error: UnreadableCheckpointError) -> CheckpointFiles:
    """The checkpoint to pass over; raises the error again where the segment has none."""
    if segment.checkpoint is None:
        raise error
    _LOGGER.warning("passing over a checkpoint: %s", error)
    return segment.checkpoint


def partition_values_at(store: Store, metadata: Metadata, version: int, remove: RemoveFile) -> dict[str, str | None]:
    """The partition values of a file that was live at `version`, for a remove that does not tell them.

    Raises CorruptLogError where it was not live.
    """
    if not metadata.partition_columns:
        return {}
    live = load(store, version).files().adds
    found = files.to_adds(live.filter(pc.equal(live["path"], remove.path)))
    if not found:
        raise CorruptLogError(
            f"version {version + 1} of {store.url} removes a file that was not there: {remove.path}",
            advice="restore the log from a backup",
            path=store.url,
        )
    return found[0].partition_values
