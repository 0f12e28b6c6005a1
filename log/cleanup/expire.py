"""Clean-up of the log: delete old commits and checkpoints once a newer checkpoint is proven to replace them.

First it commits the floor, the oldest version that it keeps. Then it reads the consumers once more, as a vacuum does,
and leaves the versions of one that registered meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from tidelog.log.cleanup import retention
from tidelog.log.cleanup.current_state import current_state
from tidelog.log.cleanup.cut_off import version_at_cutoff
from tidelog.log.cleanup.horizon import announce_floor
from tidelog.log.cleanup.pieces import DELETIONS_AT_ONCE, Pieces
from tidelog.log.cleanup.vacuum import consumer_fields
from tidelog.log.commit import conflict_ledger
from tidelog.log.commit.result import committed
from tidelog.log.conflict.fences import floor_of
from tidelog.log.consumers.hold import Hold, expected_hold, hold_of
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import filenames, properties
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.format.tombstone_list import TOMBSTONES
from tidelog.log.state import checkpoint_reader, checkpoint_writer, versions
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import CheckpointFiles, list_checkpoints, list_segment, pointed_version
from tidelog.log.state.table_identity import is_same_commit
from tidelog.log.state.tombstones import any_counts
from tidelog.log.state.version_checksum import read_head
from tidelog.log.storage import FileStatus, Store
from tidelog.log.system import System, to_datetime, utc_text

# Deletions that take longer than this together are a pause.
_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """What a clean-up of the log deleted, or with `dry_run` would delete.

    Attributes:
        path: The table.
        cutoff: The cut-off (UTC). Every version since then can still be read.
        earliest_version: The oldest version that is left.
        commit_version: The version that the clean-up committed to announce what it deletes; None if it needed none.
        commits: How many commit files were deleted.
        checkpoints: How many checkpoint files were deleted.
        others: How many other files were deleted, such as checksums, sidecars and entries of the conflict ledger.
        bytes_deleted: The size of all deleted files.
        files: Their paths relative to the table, in the order of deletion.
        dry_run: Whether nothing was really deleted.
        reason: Why there was nothing to delete; empty if there was something.
        held_by: The registered consumers that kept the clean-up from going up to the cut-off.
        released: The consumers that it did not wait for, because they were silent for longer than
            `tidelog.consumerTimeToLive`.
        unreadable: (consumer, what is wrong) of each consumer whose record cannot be read. Until it is removed, no
            version is deleted.
    """

    path: str
    cutoff: datetime
    earliest_version: int
    commit_version: int | None
    commits: int
    checkpoints: int
    others: int
    bytes_deleted: int
    files: tuple[str, ...]
    dry_run: bool
    reason: str
    held_by: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()

    @property
    def did_anything(self) -> bool:
        """Whether files were deleted."""
        return bool(self.files) and not self.dry_run

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with the time as ISO-8601 text in UTC."""
        fields = {"cutoff": utc_text(self.cutoff), "files": list(self.files)}
        return {**asdict(self), **fields, **consumer_fields(self.held_by, self.released, self.unreadable)}


def expire_log(
    store: Store,
    table_id: str,
    system: System,
    on_commit: Callable[[LogState], None],
    *,
    older_than: timedelta | datetime | None = None,
    dry_run: bool = False,
) -> Pieces[ExpiryReport]:
    """Delete the commits, checkpoints and checksums that no version since the cut-off needs, in pieces.

    See `Table.expire`.

    `on_commit` is called with the state that the floor's commit made.
    """
    state = current_state(store, table_id)
    head, now_ms = state.head, system.now_ms()
    cutoff_ms = retention.log_cutoff_ms(older_than, now_ms, head.metadata.configuration)
    is_enabled = older_than is not None or retention.is_cleanup_enabled(head.metadata.configuration)
    kept = expected_hold(store, head, system, dry_run=dry_run)
    found = _found(store, head, cutoff_ms, now_ms, kept, is_enabled=is_enabled)
    commit_version = None
    if not dry_run and found.kept_version > floor_of(head.transactions) and found.files:
        announcement = announce_floor(store, state, found.kept_version, system)
        if announcement is not None:
            commit_version = committed(announcement.outcome).version
            if announcement.state is not None:
                on_commit(announcement.state)
    if not dry_run and found.kept_version and found.files:
        kept = hold_of(store, head, system)
        if kept.bound(found.kept_version) < found.kept_version:
            # A consumer registered meanwhile. It may have looked at the log before the floor was in it.
            found = _found(store, head, cutoff_ms, now_ms, kept, is_enabled=is_enabled)
    found.find_ledger_entries()
    if not dry_run:
        yield from _delete(store, head, list(found.files), system)
    return found.report(kept, commit_version, dry_run=dry_run)


def _delete(store: Store, head: Head, paths: Sequence[str], system: System) -> Pieces[None]:
    """Delete files of the log, in this order, and stop at the first failure: the commits left must have no gap.

    If the folder was deleted and a table created there since, that one has files of the same names. So this looks
    whether it still is the same table: at the beginning of a piece, and after a pause. Raises TableReplacedError.
    """
    for start in range(0, len(paths), DELETIONS_AT_ONCE):
        looked_s = None
        for path in paths[start : start + DELETIONS_AT_ONCE]:
            if looked_s is None or system.monotonic_s() - looked_s > _LOOK_AGAIN_S:
                if not is_same_commit(store, head):
                    # Unless the commit was only cleaned up meanwhile.
                    head = current_state(store, head.metadata.id).head
                looked_s = system.monotonic_s()
            store.delete(path)
        yield


def _found(store: Store, head: Head, cutoff_ms: int, now_ms: int, kept: Hold, *, is_enabled: bool) -> _Expired:
    """The files of the log that can be deleted."""
    found = _Expired(store, head, cutoff_ms, now_ms, kept)
    if is_enabled:
        found.find()
    else:
        off = f"{properties.CLEAN_UP} and {properties.ENABLE_EXPIRED_LOG_CLEANUP} are off"
        found.reason = f"{off}, and no older_than was given"
    return found


class _Expired:
    """The files of one table's log that can be deleted.

    `kept_version` is the oldest version that stays; 0 if no version can be deleted. `wanted_version` is the one at the
    cut-off, whatever the consumers need.
    """

    def __init__(self, store: Store, head: Head, cutoff_ms: int, now_ms: int, kept: Hold) -> None:
        self.files: dict[str, int] = {}
        self.reason = ""
        self.kept_version = self.wanted_version = 0
        self._kept = kept
        self._store = store
        self._head = head
        self._cutoff_ms = cutoff_ms
        self._now_ms = now_ms
        self._earliest_version = max(head.first_version, list_segment(store, head.version).earliest_version)

    def find(self) -> None:
        """Find the files, in the order in which to delete them."""
        listing = self._store.list(filenames.LOG_FOLDER)
        base = self._base()
        if base is not None:
            pointed = pointed_version(self._store)
            if pointed is not None and pointed < base.version:
                # It points to a checkpoint that is about to be deleted. Without a pointer readers list the log.
                self.files[filenames.LAST_CHECKPOINT] = 0
            self._add(filenames.LOG_FOLDER, retention.expired_log_files(listing, base.version))
            self._earliest_version = max(self._earliest_version, base.version)
            self.kept_version = base.version
        sidecars = self._store.list(filenames.SIDECAR_FOLDER)
        if sidecars:
            self._add(filenames.SIDECAR_FOLDER, self._unreferenced(sidecars, base.version if base else 0))
        self._add(filenames.LOG_FOLDER, retention.left_over(listing, self._now_ms))
        if self.files:
            self.reason = ""
        elif base is not None:
            self.reason = f"version {base.version} is already the oldest one"

    def find_ledger_entries(self) -> None:
        """Find the conflict ledger's entries from before the cut-off, which no version needs."""
        self._add(conflict_ledger.LEDGER_FOLDER, conflict_ledger.entries_before(self._store, self._cutoff_ms))

    def report(self, kept: Hold, commit_version: int | None, *, dry_run: bool) -> ExpiryReport:
        """The report of what was found."""
        kinds = [file.kind for path in self.files if (file := filenames.parse_log_file(path.rpartition("/")[2]))]
        commits, checkpoints = kinds.count(LogFileKind.COMMIT), kinds.count(LogFileKind.CHECKPOINT)
        return ExpiryReport(
            path=self._store.url,
            cutoff=to_datetime(self._cutoff_ms),
            earliest_version=self._earliest_version,
            commit_version=commit_version,
            commits=commits,
            checkpoints=checkpoints,
            others=len(self.files) - commits - checkpoints,
            bytes_deleted=sum(self.files.values()),
            files=tuple(self.files),
            dry_run=dry_run,
            reason=self.reason,
            held_by=kept.held_by(self.wanted_version),
            released=kept.released(self._earliest_version),
            unreadable=tuple(kept.unreadable.items()),
        )

    def _base(self) -> CheckpointFiles | None:
        """The newest intact checkpoint from which every version since the cut-off can be rebuilt."""
        times, head = CommitTimes(self._store), self._head
        earliest = versions.earliest_commit(self._store, head.version, floor_of(head.transactions), head.first_version)
        version = version_at_cutoff(self._store, self._cutoff_ms, earliest, self._head.version)
        if version is None:
            cutoff = utc_text(to_datetime(self._cutoff_ms))
            self.reason = f"no commit is older than {cutoff}, by its time and by that of its file"
            return None
        self.wanted_version = version
        bound = self._kept.bound(version)
        listed = self._tombstones_listed()
        if listed is not None and listed < bound:
            bound = listed
        for found in list_checkpoints(self._store):
            if found.version <= bound and self._is_intact(found) and self._keeps_times(found.version, times):
                return found
        which = "the version at the cut-off"
        if listed is not None and bound == listed < version:
            which = f"which names deletions that {properties.TOMBSTONE_RETENTION} keeps"
        elif bound < version:
            which = f"which consumers need ({', '.join(self._kept.held_by(version))})"
        self.reason = f"there is no readable checkpoint at or before version {max(bound, 0)}, {which}"
        return None

    def _tombstones_listed(self) -> int | None:
        """The version that names the table's tombstones, if one of them still counts."""
        entry = self._head.transactions.get(TOMBSTONES)
        if entry is None:
            return None
        return entry.version if any_counts(self._store, self._head, self._now_ms) else None

    def _is_intact(self, found: CheckpointFiles) -> bool:
        """Whether all of the checkpoint can be read and its totals match the version's checksum."""
        try:
            partial = checkpoint_reader.read_partial_head(self._store, found)
            state = checkpoint_reader.read_files(self._store, found)
            checkpoint_reader.read_through(self._store, found)
        except CorruptLogError:
            return False
        known = read_head(self._store, found.version)
        agrees = known is None or known.totals == checkpoint_writer.totals_of(state)
        return agrees and partial.protocol is not None and partial.metadata is not None

    def _keeps_times(self, version: int, times: CommitTimes) -> bool:
        """Whether the commit times from `version` on stay the same without the commits before it.

        Without in-commit timestamps the commit time is the file's time; if a copy left those out of order, a commit's
        time depends on the commit before it.
        """
        try:
            modified_ms = self._store.modified_ms(filenames.commit_path(version))
        except FileNotFoundError:
            return True
        return times.is_by_itself(version, modified_ms)

    def _unreferenced(self, sidecars: list[FileStatus], kept_version: int) -> list[FileStatus]:
        """The sidecars that no remaining checkpoint names; none if one of those checkpoints cannot be read."""
        referenced: set[str] = set()
        for found in list_checkpoints(self._store):
            if found.version >= kept_version:
                try:
                    referenced.update(checkpoint_reader.sidecar_names(self._store, found))
                except CorruptLogError:
                    return []
        return retention.unreferenced_sidecars(sidecars, referenced, self._now_ms)

    def _add(self, folder: str, statuses: list[FileStatus]) -> None:
        self.files |= {f"{folder}/{status.name}": status.size_bytes for status in statuses}
