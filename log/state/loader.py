"""Load a version of the table from the log's files as a `LogState`, and advance a `LogState` by new commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import Lock

import pyarrow.compute as pc

from tidelog.log.errors import CorruptLogError, HistoryExpiredError, StoreUnavailableError
from tidelog.log.format import commit_info, filenames, hive_paths
from tidelog.log.format.actions import Commit, Metadata, RemoveFile
from tidelog.log.format.protocol import may_have_sidecars
from tidelog.log.state import checkpoint_reader, checkpoint_writer, commits, files, head
from tidelog.log.state.checkpoint_reader import MatchBounds, UnreadableCheckpointError
from tidelog.log.state.commits import is_there
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head, PartialHead, Totals
from tidelog.log.state.segment import CheckpointFiles, Segment, find_segment, list_checkpoints, list_segment
from tidelog.log.state.version_checksum import read_head
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)

# A writer that never needs the file list would keep every commit it saw. Beyond this many it drops them, and reads the
# log again if it needs the files after all.
_MAX_PENDING_COMMITS = 256
# After parts were read so often, all is read, which makes each further look faster, also of the next versions.
_MAX_PARTS = 16


class LogState:
    """One version of the table: its head, loaded at once, and its files, loaded on first use. Immutable to callers.

    The head can come from a version checksum, which can be wrong; `replayed` comes from the log itself.
    """

    def __init__(
        self,
        store: Store,
        table_head: Head,
        base: Segment | FileState | None,
        pending: Sequence[Commit],
        *,
        replayed: Head | None = None,
        parts_read: int = 0,
    ) -> None:
        self.head = table_head
        self._replayed = replayed
        self._store = store
        self._base = base
        self._pending = tuple(pending)
        # How often a part was read, of this version and of those before it.
        self._parts_read = parts_read
        self._lock = Lock()

    def files(self) -> FileState:
        """The live files and tombstones. The first call may read a checkpoint and commits."""
        with self._lock:
            if not isinstance(self._base, FileState) or self._pending:
                if not isinstance(self._base, FileState):
                    self._base = self._materialise()
                self._base = files.apply(self._base, self._pending)
                self._pending = ()
            return self._base

    def files_within(self, matches: MatchBounds) -> FileState:
        """The live files that can matter, and perhaps others: often fewer than `files` has, never too few.

        The first calls may read part of a checkpoint, and commits.
        """
        with self._lock:
            base, pending = self._base, self._pending
            self._parts_read += 1
            is_first = self._parts_read <= _MAX_PARTS
        # All commits since the checkpoint are read again each time.
        is_part = isinstance(base, Segment) and is_first and len(base.commit_versions) <= _MAX_PENDING_COMMITS
        if isinstance(base, Segment) and base.checkpoint is not None and is_part:
            # The files may have been cleaned up since the log was listed, or be damaged; `files` knows what to do.
            with suppress(CorruptLogError, HistoryExpiredError):
                found = checkpoint_reader.read_matching_files(
                    self._store, base.checkpoint, matches, has_sidecars=may_have_sidecars(self.head.protocol)
                )
                if found is not None:
                    since = chain.from_iterable(commits.commit_blocks(self._store, base.commit_versions))
                    return files.apply(found, chain(since, pending))
        return self.files()

    def replayed(self) -> Head:
        """The head from checkpoint and commits only, with totals counted from the files. May read all of them."""
        state = self.files()
        if self._replayed is None:
            raise AssertionError(self.head.version)
        return head.with_totals(self._replayed, checkpoint_writer.totals_of(state))

    def uses_partition_folders(self) -> bool:
        """Whether new files belong into partition folders, because the table has files in such folders.

        If neither the head nor the commits that led to it say so, the first call loads the files.
        """
        metadata = self.head.metadata
        if not hive_paths.may_be_used(metadata):
            return False
        known = self.head.partition_folders
        if known is None:
            columns = metadata.partition_columns
            # Piece by piece, because often one of the first tells.
            pieces = (paths.filter(pc.match_substring(paths, "=")) for paths in self.files().adds["path"].chunks)
            known = any(hive_paths.is_any_inside((path.as_py() for path in paths), columns) for paths in pieces)
            with self._lock:
                is_same = self._replayed is self.head
                self.head = replace(self.head, partition_folders=known)
                self._replayed = self.head if is_same else self._replayed
        return known

    def with_metadata(self, metadata: Metadata) -> LogState:
        """The same version with other metadata."""
        with self._lock:
            changed = replace(self.head, metadata=metadata)
            base, pending, parts = self._base, self._pending, self._parts_read
            return LogState(self._store, changed, base, pending, replayed=self._replayed, parts_read=parts)

    def advance(self, new_commits: Sequence[Commit]) -> LogState:
        """The state after `new_commits`, which must directly follow this version."""
        with self._lock:
            base, pending, replayed = self._base, (*self._pending, *new_commits), self._replayed
        heads = [self.head] if replayed is None or replayed is self.head else [self.head, replayed]
        new_head, *others = _advanced(self._store, heads, new_commits)
        if replayed is not None:
            replayed = others[0] if others else new_head
        if new_head.totals is None:
            new_head = _with_foreign_totals(self._store, new_head)
        if len(pending) > _MAX_PENDING_COMMITS:
            base = files.apply(base, pending) if isinstance(base, FileState) else None
            pending = ()
        pending = pending if base is not None else ()
        return LogState(self._store, new_head, base, pending, replayed=replayed, parts_read=self._parts_read)

    def _materialise(self) -> FileState:
        """Load the files without the pending commits; also sets `_replayed` if it is not known yet."""
        if isinstance(self._base, Segment):
            try:
                state, replayed = load_files(self._store, self._base, head_known=self._replayed is not None)
            except (CorruptLogError, HistoryExpiredError):
                # The log files listed when the version was opened may have been cleaned up since.
                _LOGGER.info("log files of %s have disappeared; listing the log again", self._store.url)
            else:
                if replayed is not None:
                    (self._replayed,) = _advanced(self._store, [replayed], self._pending)
                return state
        self._pending = ()
        state, self._replayed = load_files(self._store, find_segment(self._store, self.head.version))
        return state


def load(store: Store, version: int | None = None) -> LogState:
    """The state at `version` (None: the newest). Raises CorruptLogError and the errors of `list_segment`.

    If a checkpoint cannot be read, an older one is used.
    """
    unreadable: set[CheckpointFiles] = set()
    segment = find_segment(store, version)
    while True:
        try:
            state = _load_segment(store, segment)
        except UnreadableCheckpointError as error:
            segment = _without(store, segment, version, unreadable, error)
            continue
        if version is not None:
            return state
        # Probing finds commits that landed while the log was being listed.
        new = commits.commits_until_now(store, segment.version)
        if new and not is_there(store, segment.version):
            # A clean-up ran meanwhile: see `commits_until_now`.
            segment = list_segment(store, unreadable=unreadable)
            continue
        return state.advance(new)


def _load_segment(store: Store, segment: Segment) -> LogState:
    """The segment's state. The head comes from the newest usable checksum or, without one, from a pass over the log."""
    start = read_head(store, segment.checksum_versions[-1]) if segment.checksum_versions else None
    if start is not None:
        rest = range(start.version + 1, segment.version + 1)
        for block in commits.commit_blocks(store, rest):
            (start,) = _advanced(store, [start], block)
        return LogState(store, start, segment, ())
    table_head, state = _replay(store, segment)
    return LogState(store, table_head, state if state is not None else segment, (), replayed=table_head)


def load_files(store: Store, segment: Segment, *, head_known: bool = False) -> tuple[FileState, Head | None]:
    """Files and head at the segment's version, from one pass over its checkpoint and commits.

    If a checkpoint cannot be read, an older one is used, or only commits. With `head_known`, meaning that the head was
    already replayed from the same segment, the returned head is None.
    """
    fold = HeadFold(store)
    unreadable: set[CheckpointFiles] = set()
    base = files.EMPTY
    while segment.checkpoint is not None:
        try:
            if not head_known:
                fold.begin(segment, segment.checkpoint)
            base = checkpoint_reader.read_files(store, segment.checkpoint)
            break
        except UnreadableCheckpointError as error:
            segment = _without(store, segment, segment.version, unreadable, error)
            head_known = False
    found = commits.commit_blocks(store, segment.commit_versions)
    state = files.apply(base, chain.from_iterable(found if head_known else fold.through(found)))
    # Compute the hashes as part of loading, so that the first refresh does not have to.
    _ = state.add_hashes
    return state, None if head_known else fold.head(segment.version, checkpoint_writer.totals_of(state))


def _replay(store: Store, segment: Segment) -> tuple[Head, FileState | None]:
    """Head and files from one pass over the commits, for a log without a usable checksum.

    If the segment has a checkpoint, the files are None: only the checkpoint's few other rows are read for now.
    """
    fold = HeadFold(store)
    found = fold.through(commits.commit_blocks(store, segment.commit_versions))
    if segment.checkpoint is None:
        state = files.apply(files.EMPTY, chain.from_iterable(found))
        return fold.head(segment.version, checkpoint_writer.totals_of(state)), state
    fold.begin(segment, segment.checkpoint)
    for _ in found:
        pass
    return fold.head(segment.version, None), None


class HeadFold:
    """Folds the head while the commits pass through on their way to another consumer."""

    def __init__(self, store: Store) -> None:
        self.partial = PartialHead()
        self._store = store
        self._stamp = 0

    def begin(self, segment: Segment, start: CheckpointFiles) -> None:
        """Start from the checkpoint `start` of the segment."""
        self.partial = checkpoint_reader.read_partial_head(self._store, start)
        checkpoint_reader.require_schema(self._store, self.partial)
        if not segment.commit_versions:
            # The checkpoint has the commit's content, but neither its time nor its id.
            try:
                for commit in commits.read_commits(self._store, [start.version]):
                    self._stamp = commits.timestamp_ms(self._store, commit)
                    self.partial = replace(self.partial, commit_id=commit_info.txn_id(commit.info))
            except CorruptLogError:
                if is_there(self._store, start.version):
                    raise
                self._stamp = self._time_of(start)

    def _time_of(self, checkpoint: CheckpointFiles) -> int:
        """The time of a checkpoint whose commit was not copied with it; raises CorruptLogError if that is gone, too."""
        try:
            return max(self._store.modified_ms(f"{filenames.LOG_FOLDER}/{name}") for name in checkpoint.names)
        except FileNotFoundError as error:
            raise CorruptLogError(
                f"the checkpoint of version {checkpoint.version} of {self._store.url} has disappeared",
                advice="try again: a clean-up may have deleted it",
                path=self._store.url,
            ) from error

    def through(self, blocks: Iterable[Sequence[Commit]]) -> Iterator[Sequence[Commit]]:
        """Fold in blocks of commits and pass them on."""
        time_of = partial(commits.timestamp_ms, self._store)
        for block in blocks:
            (self.partial,), self._stamp = head.fold([self.partial], block, time_of)
            yield block

    def head(self, version: int, totals: Totals | None) -> Head:
        """The head at `version`."""
        complete = self.partial.complete(version, self._stamp, self._store.url)
        return complete if totals is None else head.with_totals(complete, totals)


def _advanced(store: Store, heads: Sequence[Head], new_commits: Sequence[Commit]) -> list[Head]:
    """Heads of the same version after more commits."""
    return head.advance_all(heads, new_commits, partial(commits.timestamp_ms, store), store.url)


def _with_foreign_totals(store: Store, table_head: Head) -> Head:
    """The head with the totals from another writer's checksum, if it left one."""
    found = read_head(store, table_head.version)
    return table_head if found is None or found.totals is None else head.with_totals(table_head, found.totals)


def _without(
    store: Store,
    segment: Segment,
    version: int | None,
    unreadable: set[CheckpointFiles],
    error: UnreadableCheckpointError,
) -> Segment:
    """The segment of `version` without the checkpoint of `segment`, which is added to the `unreadable` ones.

    Raises `error`, or what kept the store from reading it, if the version needs that checkpoint. A clean-up can have
    deleted it meanwhile; then the version is gone, and the errors of `list_segment` say so.
    """
    if segment.checkpoint is None:
        raise error
    _LOGGER.warning("skipping a checkpoint: %s", error)
    unreadable.add(segment.checkpoint)
    try:
        return list_segment(store, version, unreadable=unreadable)
    except (HistoryExpiredError, CorruptLogError):
        if unreadable.isdisjoint(list_checkpoints(store)):
            raise
        if isinstance(error.__cause__, StoreUnavailableError):
            raise error.__cause__ from None
        raise error from None


def partition_values_at(store: Store, metadata: Metadata, version: int, remove: RemoveFile) -> dict[str, str | None]:
    """The partition values of a file that was live at `version`, for a remove without partition values.

    Raises CorruptLogError if it was not live.
    """
    if not metadata.partition_columns:
        return {}
    live = load(store, version).files().adds
    found = files.to_adds(live.filter(pc.equal(live["path"], remove.path)))
    if not found:
        raise CorruptLogError(
            f"version {version + 1} of {store.url} removes a file that is not in the table: {remove.path}",
            advice="copy _delta_log back from a backup",
            path=store.url,
        )
    return found[0].partition_values
