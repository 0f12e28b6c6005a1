"""Clean-up of data files that no version since the cut-off needs and that no transaction can still commit.

In this order, because whatever was decided on one state of the table must still hold when it is carried out:

1. Choose the horizon H, the newest version at the cut-off that no live consumer has yet to reach, and find the files
   that are older than the commit file of H and that no version from H on names: by listing the table's folder, or among
   those that commits up to H name.
2. Commit H, unless the log already has this horizon or a later one, or an earlier one that is enough for these files.
   See `tidelog.log.conflict.fences`.
3. Read the consumers again. One that registered meanwhile at a version before H may have looked at the log before H was
   in it: leave the files that it needs. See `tidelog.log.consumers`.
4. Read what was committed since step 1, leave the files that it names, and delete the rest. From now on no tidelog
   writer can name them: it either began after H, or brings back only files that were removed after H.

Other engines do not know the horizon. For them the log is read again during the deletion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from tidelog.log.cleanup import retention
from tidelog.log.cleanup.current_state import current_state, require_cleanable
from tidelog.log.cleanup.cut_off import version_at_cutoff
from tidelog.log.cleanup.horizon import announce_horizon
from tidelog.log.cleanup.pieces import DELETIONS_AT_ONCE, Pieces, commits_in_pieces
from tidelog.log.cleanup.references import References
from tidelog.log.cleanup.unneeded import NO_FILES, Ages, Unneeded, by_listing, frees, from_log
from tidelog.log.commit.result import committed
from tidelog.log.conflict.fences import floor_of, horizon_of
from tidelog.log.consumers.hold import Hold, expected_hold, hold_of
from tidelog.log.errors import CorruptLogError, StoreUnavailableError
from tidelog.log.format import tombstone_list
from tidelog.log.format.tombstone_list import TOMBSTONES
from tidelog.log.state import versions
from tidelog.log.state.commits import commits_until_now, read_commits
from tidelog.log.state.head import Head
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import list_segment
from tidelog.log.state.table_identity import is_same_commit
from tidelog.log.state.tombstones import tombstones_at
from tidelog.log.storage import Store
from tidelog.log.system import System, logger, to_datetime, utc_text

_LOGGER = logger(__name__)

# A clean-up of the log runs for minutes at most and then not for hours.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a clean-up of data files deleted, or with `dry_run` would delete.

    Attributes:
        path: The table.
        cutoff: The cut-off (UTC). Only files written before it were deleted.
        earliest_version: The oldest version that is certain to have all its files.
        commit_version: The version that the vacuum committed to announce what it deletes; None if it needed none.
        data_files: How many data files were deleted.
        deletion_vectors: How many files of deletion vectors were deleted.
        change_files: How many files of change rows were deleted.
        row_maps: How many row maps were deleted.
        others: How many other files were deleted, such as tombstones, or what processes left that were killed.
        bytes_deleted: The size of all deleted files.
        files: Their paths relative to the table.
        failed: (path, error) of each file that could not be deleted.
        dry_run: Whether nothing was really deleted.
        listing: Whether the files were found by listing the table's folder; otherwise from the log alone.
        held_by: The registered consumers that kept the vacuum from going up to the cut-off.
        released: The consumers that it did not wait for, because they were silent for longer than
            `tidelog.consumerTimeToLive`.
        unreadable: (consumer, what is wrong) of each consumer whose record cannot be read. Until it is removed, no file
            that the retained history needs is deleted.
        checkpoints: Folders inside the table's that look like streaming checkpoints of Spark's, as paths relative to
            the table; `.` is its own folder. Nothing in them was deleted. Move them out of the table.
    """

    path: str
    cutoff: datetime
    earliest_version: int
    commit_version: int | None
    data_files: int
    deletion_vectors: int
    change_files: int
    row_maps: int
    bytes_deleted: int
    files: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    dry_run: bool
    listing: bool = True
    others: int = 0
    held_by: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    checkpoints: tuple[str, ...] = ()

    @property
    def did_anything(self) -> bool:
        """Whether files were deleted."""
        return bool(self.files) and not self.dry_run

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with the time as ISO-8601 text in UTC."""
        failed = [{"path": path, "error": error} for path, error in self.failed]
        fields = {
            "cutoff": utc_text(self.cutoff),
            "files": list(self.files),
            "failed": failed,
            "checkpoints": list(self.checkpoints),
        }
        return {**asdict(self), **fields, **consumer_fields(self.held_by, self.released, self.unreadable)}


def consumer_fields(
    held_by: tuple[str, ...], released: tuple[str, ...], unreadable: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """What a report says about consumers, as JSON values."""
    errors = [{"consumer": name, "error": error} for name, error in unreadable]
    return {"held_by": list(held_by), "released": list(released), "unreadable": errors}


def vacuum_files(
    store: Store,
    table_id: str,
    system: System,
    on_commit: Callable[[LogState], None],
    *,
    older_than: timedelta | datetime | None = None,
    dry_run: bool = False,
    listing: bool = True,
    since: int | None = None,
) -> Pieces[VacuumReport]:
    """Delete old files that no version since the cut-off needs, in pieces; see `Table.vacuum`.

    `on_commit` is called with the state that the horizon's commit made. Without a listing only commits after the
    version `since` are searched for files; by default those after the log's horizon, up to which a vacuum has done it.

    If an expire deletes the commits that it reads, it begins again with those that are left.
    """
    state = current_state(store, table_id)
    since = horizon_of(state.head.transactions) if since is None else since
    commit_version = None
    for _ in range(_ATTEMPTS):
        attempt = _Attempt(store, state, system, on_commit, commit_version)
        try:
            return (yield from attempt.run(older_than, since, dry_run=dry_run, listing=listing))
        except CorruptLogError:
            state = current_state(store, table_id)
            if _earliest_commit(store, state.head) <= attempt.earliest_commit:
                raise
            _LOGGER.info("the log of %s was cleaned up meanwhile: the vacuum begins again", store.url)
            commit_version = attempt.commit_version
    raise StoreUnavailableError(
        f"the log of {store.url} was cleaned up {_ATTEMPTS} times while a vacuum read it",
        advice="try again",
        path=store.url,
    )


@dataclass
class _Attempt:
    """A vacuum on one state of the table. `earliest_commit` is the oldest commit there was when it began."""

    store: Store
    state: LogState
    system: System
    on_commit: Callable[[LogState], None]
    commit_version: int | None
    earliest_commit: int = 0

    def run(
        self, older_than: timedelta | datetime | None, since: int, *, dry_run: bool, listing: bool
    ) -> Pieces[VacuumReport]:
        """Do it. Raises CorruptLogError if commits have disappeared since."""
        store, state, system = self.store, self.state, self.system
        now_ms = system.now_ms()
        cutoff_ms = retention.data_cutoff_ms(older_than, now_ms, state.head.metadata.configuration)
        columns = state.head.metadata.partition_columns
        at = _Versions.of(store, state.head, cutoff_ms)
        self.earliest_commit = at.earliest_commit
        kept = expected_hold(store, state.head, system, dry_run=dry_run)
        horizon = max(kept.bound(at.wanted), at.oldest)
        announced = horizon_of(state.head.transactions)
        first = max(since + 1, state.head.first_version, at.earliest_commit)
        left = range(first, horizon + 1)
        if listing:
            needed = yield from _needed(store, state, horizon, cutoff_ms)
            ages = Ages.of(store, horizon, state.head.version, cutoff_ms, now_ms)
            found = by_listing(store, needed, ages, columns)
        elif left:
            needed = yield from _needed(store, state, horizon, cutoff_ms)
            found = yield from from_log(store, needed, left, columns)
        else:
            found = NO_FILES
        deletion = _Deletion(store, state, found, self.commit_version)
        is_later = bool(found.paths) and horizon > announced and not dry_run
        if is_later:
            is_later = not (yield from frees(store, announced, horizon, found))
        if is_later or (found.is_ahead and not dry_run):
            announcement = announce_horizon(store, state, horizon, system)
            if announcement is not None:
                self.commit_version = deletion.commit_version = committed(announcement.outcome).version
                if announcement.state is not None:
                    self.on_commit(announcement.state)
        if not dry_run and found.paths:
            kept = hold_of(store, state.head, system)
            deletion.keep_after(max(kept.bound(horizon), at.oldest), horizon)
        yield from deletion.run(dry_run=dry_run)
        return _report(deletion, cutoff_ms, max(horizon, announced), kept, at.wanted, dry_run=dry_run, listing=listing)


def _earliest_commit(store: Store, head: Head) -> int:
    return versions.earliest_commit(store, head.version, floor_of(head.transactions), head.first_version)


@dataclass(frozen=True, slots=True)
class _Versions:
    """Where a cut-off lies in the history.

    `oldest` is the oldest version that is left, `earliest_commit` the oldest commit. `wanted` is the version that a
    reader at the cut-off sees, or the oldest one if that is gone.
    """

    oldest: int
    wanted: int
    earliest_commit: int

    @staticmethod
    def of(store: Store, head: Head, cutoff_ms: int) -> _Versions:
        newest, earliest_commit = head.version, _earliest_commit(store, head)
        found = version_at_cutoff(store, cutoff_ms, earliest_commit, newest)
        oldest = list_segment(store, newest).earliest_version
        return _Versions(oldest, oldest if found is None else max(found, oldest), earliest_commit)


def _needed(store: Store, state: LogState, earliest: int, cutoff_ms: int) -> Pieces[References]:
    """The files that the versions from `earliest` on need: those that are live now or that commits since then name.

    Recent tombstones count as well, for commits that are no longer in the log. They are not enough, because their times
    come from the clocks of other writers.
    """
    needed = References()
    newest = state.files()
    # The list of tombstones at `earliest`: the one before the first that a later commit has.
    entry = state.head.transactions.get(TOMBSTONES)
    buried, is_first = None if entry is None else entry.version, True
    for commit in commits_in_pieces(store, range(earliest + 1, state.head.version + 1)):
        if commit is None:
            yield
        else:
            needed.add_commit(commit)
            change = tombstone_list.list_of(commit.info)
            if change is not None and is_first:
                buried, is_first = change.previous, False
    if buried is not None:
        needed.add_paths([file.path for file in tombstones_at(store, state.head, buried)])
    needed.add_files(newest.adds)
    removed_ms = pc.fill_null(newest.removes["deletionTimestamp"], 0)
    needed.add_files(newest.removes.filter(pc.greater_equal(removed_ms, cutoff_ms)))
    return needed


@dataclass
class _Deletion:
    """Deletes the files that were found, except those that later commits name.

    `state` is the newest state of the table whose commits have been looked at.
    """

    store: Store
    state: LogState
    found: Unneeded
    commit_version: int | None = None
    deleted: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    late: References = field(default_factory=References)

    def keep_after(self, version: int, horizon: int) -> None:
        """Leave the files that a consumer at `version` needs, though the horizon has passed it."""
        for commit in read_commits(self.store, range(version + 1, horizon + 1)):
            self.late.add_commit(commit)

    def run(self, *, dry_run: bool) -> Pieces[None]:
        """Delete in batches. A file that a commit has named in the meantime stays."""
        at_once = max(DELETIONS_AT_ONCE, self.store.deletes_at_once)
        for start in range(0, len(self.found.paths), at_once):
            batch = self.found.paths[start : start + at_once]
            self._catch_up()
            sizes = self.found.sizes[start : start + at_once]
            named = self.late.named(batch)
            free = {path: size for path, size, is_named in zip(batch, sizes, named, strict=True) if not is_named}
            failed = {} if dry_run else self._delete(list(free))
            self.deleted |= {path: size for path, size in free.items() if path not in failed}
            self.failed += failed.items()
            yield

    def _catch_up(self) -> None:
        """Add the files that were named by commits since the last look.

        The first look comes after the horizon's commit, so it sees everything that tidelog writers may still name.
        Another engine can name old files at any time, for example with its RESTORE.
        """
        before = self.state.head
        new = commits_until_now(self.store, before.version)
        if is_same_commit(self.store, before):
            self.state = self.state.advance(new) if new else self.state
            require_cleanable(self.store, before.metadata.id, self.state)
        else:
            # The commit was cleaned up meanwhile, or the path holds another table.
            self.state = current_state(self.store, before.metadata.id)
            new = list(read_commits(self.store, range(before.version + 1, self.state.head.version + 1)))
        for commit in new:
            self.late.add_commit(commit)

    def _delete(self, paths: list[str]) -> dict[str, str]:
        """Delete files and their hidden checksums. Returns the errors by path."""
        checksums = {_checksum(path): path for path in paths}
        known = self.found.hidden
        hidden = [checksum for checksum in checksums if known is None or checksum in known]
        # The checksums go first: no vacuum finds one whose file is gone.
        failed = {checksums[checksum]: error for checksum, error in self.store.delete_each(hidden).items()}
        failed |= self.store.delete_each([path for path in paths if path not in failed])
        for path, error in failed.items():
            _LOGGER.warning("could not delete %s of %s: %s", path, self.store.url, error)
        return {path: str(error) for path, error in failed.items()}


def _checksum(path: str) -> str:
    """Where Hadoop leaves the hidden checksum of a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def _report(
    deletion: _Deletion, cutoff_ms: int, earliest: int, kept: Hold, wanted: int, *, dry_run: bool, listing: bool
) -> VacuumReport:
    """The report of what was deleted; `wanted` is the horizon without consumers."""
    checkpoints = tuple(folder or "." for folder in deletion.found.checkpoints)
    if checkpoints:
        _LOGGER.warning("%s: kept streaming checkpoints in the table's folder: %s", deletion.store.url, checkpoints)
    kinds = [_kind(path) for path in deletion.deleted]
    return VacuumReport(
        path=deletion.store.url,
        cutoff=to_datetime(cutoff_ms),
        earliest_version=earliest,
        commit_version=deletion.commit_version,
        data_files=kinds.count("data"),
        deletion_vectors=kinds.count("vector"),
        change_files=kinds.count("change"),
        row_maps=kinds.count("map"),
        others=kinds.count("other"),
        bytes_deleted=sum(deletion.deleted.values()),
        files=tuple(deletion.deleted),
        failed=tuple(deletion.failed),
        dry_run=dry_run,
        listing=listing,
        held_by=kept.held_by(wanted),
        released=kept.released(earliest),
        unreadable=tuple(kept.unreadable.items()),
        checkpoints=checkpoints,
    )


def _kind(path: str) -> str:
    if path.startswith("_change_data/"):
        return "change"
    if path.startswith(retention.ROW_MAPS):
        return "map"
    if path.startswith("_tidelog/") or path.rpartition("/")[2].startswith("."):
        return "other"
    return "vector" if path.rpartition("/")[2].startswith("deletion_vector_") else "data"
