"""Clean-up of the log: old commits and checkpoints go, once a newer checkpoint is proven to stand in for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from tidelog.log.cleanup import retention
from tidelog.log.cleanup.current_state import current_state
from tidelog.log.commit import conflict_ledger
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import filenames
from tidelog.log.format.filenames import LogFileKind
from tidelog.log.state import checkpoint, checkpoint_reader, checksum, versions
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.head import Head
from tidelog.log.state.segment import CheckpointFiles, list_checkpoints, list_segment, pointed_version
from tidelog.log.storage import FileStatus, Store
from tidelog.log.system import System, to_datetime


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """What a clean-up of the log deleted, or with `dry_run` would delete, and how far back the table reaches then.

    `earliest_version` is the oldest version that is left. `files` are relative to the table, in the order of deletion.
    `reason` tells why nothing was found to delete, and is empty where something was.
    """

    path: str
    cutoff: datetime
    earliest_version: int
    commits: int
    checkpoints: int
    others: int
    bytes_deleted: int
    files: tuple[str, ...]
    dry_run: bool
    reason: str

    @property
    def did_anything(self) -> bool:
        """Whether files were deleted."""
        return bool(self.files) and not self.dry_run

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values; the time as ISO-8601 text in UTC."""
        return {**asdict(self), "cutoff": self.cutoff.isoformat(), "files": list(self.files)}


def expire_log(
    store: Store,
    table_id: str,
    system: System,
    *,
    older_than: timedelta | datetime | None = None,
    dry_run: bool = False,
) -> ExpiryReport:
    """Delete the commits, checkpoints and checksums that no version since the cut-off needs.

    The cut-off is `delta.logRetentionDuration` ago, at midnight UTC; nothing is done by it where the table has
    `delta.enableExpiredLogCleanup` off (tidelog's own have). `older_than`, an age or an aware datetime, is exact and
    is always done. Whoever needs an older version (a stream that lags behind further) gets a HistoryExpiredError from
    then on. A crash in the middle leaves a readable table, and the next call goes on. Entries of the conflict ledger
    from before the cut-off go in any case.

    Raises ConfigurationError for an `older_than` closer than `tidelog.maxTransactionTime`, UnsupportedFeatureError
    for a table that tidelog cannot write, StoreUnavailableError or PathNotWritableError where a file cannot be deleted.
    """
    head = current_state(store, table_id).head
    now_ms = system.now_ms()
    cutoff_ms = retention.log_cutoff_ms(older_than, now_ms, head.metadata.configuration)
    found = _Expired(store, head, cutoff_ms, now_ms)
    if older_than is None and not retention.is_cleanup_enabled(head.metadata.configuration):
        found.reason = "delta.enableExpiredLogCleanup is false and no older_than was given"
    else:
        found.look()
    found.look_at_ledger()
    if not dry_run:
        for path in found.files:
            # In this order, and no further where one fails: a commit that stays among deleted ones would be a hole.
            store.delete(path)
    return found.report(dry_run=dry_run)


class _Expired:
    """What of one table's log can go."""

    def __init__(self, store: Store, head: Head, cutoff_ms: int, now_ms: int) -> None:
        self.files: dict[str, int] = {}
        self.reason = ""
        self._store = store
        self._head = head
        self._cutoff_ms = cutoff_ms
        self._now_ms = now_ms
        self._earliest_version = list_segment(store, head.version).earliest_version

    def look(self) -> None:
        """Find the files, in the order in which they go."""
        listing = self._store.list(filenames.LOG_FOLDER)
        base = self._base()
        if base is not None:
            pointed = pointed_version(self._store)
            if pointed is not None and pointed < base.version:
                # Its reader would look for a checkpoint that goes now; without a pointer it lists the log.
                self.files[filenames.LAST_CHECKPOINT] = 0
            self._take(filenames.LOG_FOLDER, retention.expired_log_files(listing, base.version))
            self._earliest_version = max(self._earliest_version, base.version)
        sidecars = self._store.list(filenames.SIDECAR_FOLDER)
        if sidecars:
            self._take(filenames.SIDECAR_FOLDER, self._unreferenced(sidecars, base.version if base else 0))
        self._take(filenames.LOG_FOLDER, retention.left_over(listing, self._now_ms))
        if self.files:
            self.reason = ""
        elif base is not None:
            self.reason = f"version {base.version} is the oldest already"

    def look_at_ledger(self) -> None:
        """Find the entries of the conflict ledger that are as old; no version needs them, whatever the table keeps."""
        self._take(conflict_ledger.LEDGER_FOLDER, conflict_ledger.entries_before(self._store, self._cutoff_ms))

    def report(self, *, dry_run: bool) -> ExpiryReport:
        """What was found, as a report."""
        kinds = [file.kind for path in self.files if (file := filenames.parse_log_file(path.rpartition("/")[2]))]
        commits, checkpoints = kinds.count(LogFileKind.COMMIT), kinds.count(LogFileKind.CHECKPOINT)
        return ExpiryReport(
            path=self._store.url,
            cutoff=to_datetime(self._cutoff_ms),
            earliest_version=self._earliest_version,
            commits=commits,
            checkpoints=checkpoints,
            others=len(self.files) - commits - checkpoints,
            bytes_deleted=sum(self.files.values()),
            files=tuple(self.files),
            dry_run=dry_run,
            reason=self.reason,
        )

    def _base(self) -> CheckpointFiles | None:
        """The checkpoint from which every version since the cut-off can be rebuilt: the newest sound one before it."""
        times = CommitTimes(self._store)
        earliest = versions.earliest_commit(self._store, self._head.version)
        version = versions.version_at(times, self._cutoff_ms, earliest, self._head.version)
        if version is None:
            self.reason = f"no commit is older than {to_datetime(self._cutoff_ms).isoformat()}"
            return None
        for found in list_checkpoints(self._store):
            if found.version <= version and self._is_sound(found) and self._keeps_times(found.version, times):
                return found
        self.reason = f"no readable checkpoint is as old as version {version}, the one of the cut-off"
        return None

    def _is_sound(self, found: CheckpointFiles) -> bool:
        """Whether the checkpoint can be read whole and agrees with what the version's checksum counts."""
        try:
            partial = checkpoint_reader.read_partial_head(self._store, found)
            state = checkpoint_reader.read_files(self._store, found)
            checkpoint_reader.read_through(self._store, found)
        except CorruptLogError:
            return False
        known = checksum.read_head(self._store, found.version)
        agrees = known is None or known.totals == checkpoint.totals_of(state)
        return agrees and partial.protocol is not None and partial.metadata is not None

    def _keeps_times(self, version: int, times: CommitTimes) -> bool:
        """Whether the commit times from `version` on stay what they are without the commits before it.

        By file times, one that a copy put out of order is counted on from the one before it.
        """
        try:
            modified_ms = self._store.modified_ms(filenames.commit_path(version))
        except FileNotFoundError:
            return True
        return times.is_by_itself(version, modified_ms)

    def _unreferenced(self, sidecars: list[FileStatus], kept_version: int) -> list[FileStatus]:
        """The sidecars of no checkpoint that stays; none where one of those cannot be read."""
        referenced: set[str] = set()
        for found in list_checkpoints(self._store):
            if found.version >= kept_version:
                try:
                    referenced.update(checkpoint_reader.sidecar_names(self._store, found))
                except CorruptLogError:
                    return []
        return retention.unreferenced_sidecars(sidecars, referenced, self._now_ms)

    def _take(self, folder: str, statuses: list[FileStatus]) -> None:
        self.files |= {f"{folder}/{status.name}": status.size_bytes for status in statuses}
