"""Clean-up of data files that no version since the cut-off needs and that no transaction can still commit.

In this order, because whatever was decided on one state of the table must still hold when it is carried out:

1. Choose the horizon H, the newest version at the cut-off that no live consumer has yet to reach, and find the files
   that are older than the commit file of H and that no version from H on names.
2. Commit H, unless the log already has this horizon or a later one. See `tidelog.log.conflict.horizon`.
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
from tidelog.log.cleanup.current_state import current_state
from tidelog.log.cleanup.horizon import announce_horizon
from tidelog.log.cleanup.references import References
from tidelog.log.commit.result import committed
from tidelog.log.conflict.horizon import horizon_of
from tidelog.log.consumers.fence import Fence, expected_fence, fence
from tidelog.log.errors import TidelogError
from tidelog.log.format.text import is_unicode
from tidelog.log.state import versions
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.commits import read_commits, written_ms
from tidelog.log.state.loader import LogState
from tidelog.log.state.segment import list_segment
from tidelog.log.storage import Store
from tidelog.log.system import System, logger, to_datetime, utc_text

_LOGGER = logger(__name__)

# Deletions between two looks at the head. A look costs one request; this many deletions take seconds on a slow store.
_BATCH = 100


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
        bytes_deleted: The size of all deleted files.
        files: Their paths relative to the table.
        failed: (path, error) of each file that could not be deleted.
        dry_run: Whether nothing was really deleted.
        held_by: The registered consumers that kept the vacuum from going up to the cut-off.
        released: The consumers that it did not wait for, because they were silent for longer than
            `tidelog.consumerTimeToLive`.
        unreadable: (consumer, what is wrong) of each consumer whose record cannot be read. Until it is removed, no file
            that the retained history needs is deleted.
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
    held_by: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()

    @property
    def did_anything(self) -> bool:
        """Whether files were deleted."""
        return bool(self.files) and not self.dry_run

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, with the time as ISO-8601 text in UTC."""
        failed = [{"path": path, "error": error} for path, error in self.failed]
        fields = {"cutoff": utc_text(self.cutoff), "files": list(self.files), "failed": failed}
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
) -> VacuumReport:
    """Delete old files that no version since the cut-off needs; see `Table.vacuum`.

    `on_commit` is called with the state that the horizon's commit made.
    """
    state = current_state(store, table_id)
    now_ms = system.now_ms()
    cutoff_ms = retention.data_cutoff_ms(older_than, now_ms, state.head.metadata.configuration)
    oldest, wanted = _versions_at(store, state.head.version, cutoff_ms)
    kept = expected_fence(store, state.head, system, dry_run=dry_run)
    horizon = max(kept.bound(wanted), oldest)
    announced = horizon_of(state.head.transactions)
    ages = _Ages.of(store, horizon, state.head.version, cutoff_ms, now_ms)
    found = _unneeded(store, _needed(store, state, horizon, cutoff_ms), ages)
    deletion = _Deletion(store, table_id, state.head.version, found)
    if not dry_run and ((found.paths and horizon > announced) or found.is_ahead):
        announcement = announce_horizon(store, state, horizon, system)
        if announcement is not None:
            deletion.commit_version = committed(announcement.outcome).version
            if announcement.state is not None:
                on_commit(announcement.state)
    if not dry_run and found.paths:
        kept = fence(store, state.head, system)
        deletion.keep_after(max(kept.bound(horizon), oldest), horizon)
    deletion.run(dry_run=dry_run)
    return deletion.report(cutoff_ms, max(horizon, announced), kept, wanted, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Ages:
    """Times in ms that a file's time is compared with.

    A file from before `old` can be deleted. `old` is when the commit file of the horizon was written, by the store's
    clock, or the cut-off, by this machine's clock, if that is earlier.

    A file from `ahead` to `now` is as new as the newest commit file, or newer. Until another version is committed, no
    vacuum can delete it.
    """

    old: int
    ahead: int
    now: int

    @staticmethod
    def of(store: Store, horizon: int, newest: int, cutoff_ms: int, now_ms: int) -> _Ages:
        horizon_ms, newest_ms = written_ms(store, horizon), written_ms(store, newest)
        # If another engine's clean-up deleted the commit file, nothing can be compared with it.
        old = 0 if horizon_ms is None else min(horizon_ms, cutoff_ms)
        return _Ages(old, now_ms if newest_ms is None else newest_ms, now_ms)


def _versions_at(store: Store, newest: int, cutoff_ms: int) -> tuple[int, int]:
    """The oldest version that is left, and the one that a reader at the cut-off sees, or the oldest if that is gone."""
    earliest_commit = versions.earliest_commit(store, newest)
    found = versions.version_at(CommitTimes(store), cutoff_ms, earliest_commit, newest)
    oldest = list_segment(store, newest).earliest_version
    return oldest, oldest if found is None else max(found, oldest)


def _needed(store: Store, state: LogState, earliest: int, cutoff_ms: int) -> References:
    """The files that the versions from `earliest` on need: those that are live now or that commits since then name.

    Recent tombstones count as well, for commits that are no longer in the log. They are not enough, because their times
    come from the clocks of other writers.
    """
    needed = References()
    newest = state.files()
    for commit in read_commits(store, range(earliest + 1, state.head.version + 1)):
        needed.add_commit(commit)
    needed.add_files(newest.adds)
    removed_ms = pc.fill_null(newest.removes["deletionTimestamp"], 0)
    needed.add_files(newest.removes.filter(pc.greater_equal(removed_ms, cutoff_ms)))
    return needed


@dataclass(frozen=True, slots=True)
class _Found:
    """Files that can be deleted, their sizes, and Hadoop's hidden checksums, which are deleted with them.

    `is_ahead` is true if an unneeded file is as new as the newest commit file, or newer.
    """

    paths: list[str]
    sizes: list[int]
    hidden: set[str]
    is_ahead: bool


def _unneeded(store: Store, needed: References, ages: _Ages) -> _Found:
    """The files that belong to the table, are old enough and are not needed."""
    sizes: dict[str, int] = {}
    ahead: list[str] = []
    hidden: set[str] = set()
    inner: set[str] = set()
    for path, status in store.walk():
        if other := retention.table_inside(path):
            inner.add(other)
        if status.name.startswith(".") and status.name.endswith(".crc"):
            hidden.add(path)
        if not retention.may_vacuum(path) or not is_unicode(path):
            continue
        if status.modified_ms < ages.old:
            sizes[path] = status.size_bytes
        elif ages.ahead <= status.modified_ms <= ages.now:
            ahead.append(path)
    free = _not_named(needed, list(sizes), tuple(inner))
    return _Found(free, [sizes[path] for path in free], hidden, bool(_not_named(needed, ahead, tuple(inner))))


def _not_named(needed: References, paths: list[str], inner_tables: tuple[str, ...]) -> list[str]:
    """The paths that are not needed and not in one of the tables inside this one."""
    named = needed.named(paths)
    return [
        path for path, is_named in zip(paths, named, strict=True) if not is_named and not path.startswith(inner_tables)
    ]


@dataclass
class _Deletion:
    """Deletes the files that were found, except those that later commits name."""

    store: Store
    table_id: str
    version: int
    found: _Found
    commit_version: int | None = None
    deleted: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    late: References = field(default_factory=References)

    def keep_after(self, version: int, horizon: int) -> None:
        """Leave the files that a consumer at `version` needs, though the horizon has passed it."""
        for commit in read_commits(self.store, range(version + 1, horizon + 1)):
            self.late.add_commit(commit)

    def run(self, *, dry_run: bool) -> None:
        """Delete in batches. A file that a commit has named in the meantime stays."""
        for start in range(0, len(self.found.paths), _BATCH):
            batch = self.found.paths[start : start + _BATCH]
            self._catch_up()
            sizes = self.found.sizes[start : start + _BATCH]
            for path, size, is_named in zip(batch, sizes, self.late.named(batch), strict=True):
                if not is_named and (dry_run or self._delete(path)):
                    self.deleted[path] = size

    def report(self, cutoff_ms: int, earliest: int, kept: Fence, wanted: int, *, dry_run: bool) -> VacuumReport:
        """The report of what was deleted; `wanted` is the horizon without consumers."""
        kinds = [_kind(path) for path in self.deleted]
        return VacuumReport(
            path=self.store.url,
            cutoff=to_datetime(cutoff_ms),
            earliest_version=earliest,
            commit_version=self.commit_version,
            data_files=kinds.count("data"),
            deletion_vectors=kinds.count("vector"),
            change_files=kinds.count("change"),
            row_maps=kinds.count("map"),
            bytes_deleted=sum(self.deleted.values()),
            files=tuple(self.deleted),
            failed=tuple(self.failed),
            dry_run=dry_run,
            held_by=kept.held_by(wanted),
            released=kept.released(earliest),
            unreadable=tuple(kept.unreadable.items()),
        )

    def _catch_up(self) -> None:
        """Add the files that were named by commits since the last look.

        The first look comes after the horizon's commit, so it sees everything that tidelog writers may still name.
        Another engine can name old files at any time, for example with its RESTORE.
        """
        before, self.version = self.version, current_state(self.store, self.table_id).head.version
        for commit in read_commits(self.store, range(before + 1, self.version + 1)):
            self.late.add_commit(commit)

    def _delete(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        checksum = f"{folder}/.{name}.crc" if folder else f".{name}.crc"
        try:
            self.store.delete(path)
            if checksum in self.found.hidden:
                self.store.delete(checksum)
        except (TidelogError, OSError) as error:
            _LOGGER.warning("could not delete %s of %s: %s", path, self.store.url, error)
            self.failed.append((path, str(error)))
            return False
        return True


def _kind(path: str) -> str:
    if path.startswith("_change_data/"):
        return "change"
    if path.startswith("_tidelog/"):
        return "map"
    return "vector" if path.rpartition("/")[2].startswith("deletion_vector_") else "data"
