"""Find the data files that no version needs: by listing the table's folder, or from the log alone.

A listing finds every file, also those that no commit ever named, and costs a request for each thousand files. The log
names every file that left the table, and nothing else: it costs what reading the commits costs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tidelog.log.cleanup import retention
from tidelog.log.cleanup.pieces import Pieces, commits_in_pieces
from tidelog.log.cleanup.references import References, path_inside
from tidelog.log.format import commit_info, deletion_vector, lineage, tombstone_list
from tidelog.log.format.actions import AddCDCFile, AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.deletion_vector import StoredBitmap
from tidelog.log.format.text import is_unicode
from tidelog.log.format.tombstone_list import TombstoneList
from tidelog.log.state.commits import read_info, written_ms
from tidelog.log.storage import Store


@dataclass(frozen=True, slots=True)
class Ages:
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
    def of(store: Store, horizon: int, newest: int, cutoff_ms: int, now_ms: int) -> Ages:
        """The times for a horizon and the newest version."""
        horizon_ms, newest_ms = written_ms(store, horizon), written_ms(store, newest)
        # If another engine's clean-up deleted the commit file, nothing can be compared with it.
        old = 0 if horizon_ms is None else min(horizon_ms, cutoff_ms)
        return Ages(old, now_ms if newest_ms is None else newest_ms, now_ms)


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Files that can be deleted, and their sizes.

    `hidden` are Hadoop's hidden checksums, which are deleted with their files; None if it is not known which exist.
    `is_ahead` is true if an unneeded file is as new as the newest commit file, or newer. `newest_ms` is when the newest
    of the files was written; 0 if the commits that name them are known to be newer. `checkpoints` are the folders of
    streaming checkpoints inside the table's, whose files are left.
    """

    paths: list[str]
    sizes: list[int]
    hidden: set[str] | None
    is_ahead: bool = False
    newest_ms: int = 0
    checkpoints: tuple[str, ...] = ()


NO_FILES = Unneeded([], [], set())


def by_listing(store: Store, needed: References, ages: Ages, partition_columns: Collection[str] = ()) -> Unneeded:
    """The files that belong to the table, are old enough and are not needed."""
    sizes: dict[str, int] = {}
    times: dict[str, int] = {}
    ahead: list[str] = []
    hidden: set[str] = set()
    inner: set[str] = set()
    parts: dict[str, set[str]] = {}
    for path, status in store.walk():
        if other := retention.table_inside(path):
            inner.add(other)
        if status.name.startswith(".") and status.name.endswith(".crc"):
            hidden.add(path)
        if part := retention.checkpoint_part(path):
            parts.setdefault(part[0], set()).add(part[1])
        if not retention.may_vacuum(path, partition_columns) or not is_unicode(path):
            continue
        if status.modified_ms < ages.old:
            sizes[path], times[path] = status.size_bytes, status.modified_ms
        elif ages.ahead <= status.modified_ms <= ages.now:
            ahead.append(path)
    checkpoints = tuple(sorted(folder for folder, found in parts.items() if len(found) > 1))
    free = _outside(_not_named(needed, list(sizes), tuple(inner)), checkpoints)
    is_ahead = bool(_outside(_not_named(needed, ahead, tuple(inner)), checkpoints))
    newest_ms = max((times[path] for path in free), default=0)
    return Unneeded(free, [sizes[path] for path in free], hidden, is_ahead, newest_ms, checkpoints)


def frees(store: Store, announced: int, horizon: int, found: Unneeded) -> Pieces[bool]:
    """Whether the horizon `announced` is enough to delete what was found with the later one `horizon`.

    So it is if an earlier vacuum found the same files and could not delete them.
    """
    announced_ms = written_ms(store, announced) if announced else None
    if announced_ms is None or found.newest_ms >= announced_ms:
        return False
    paths, named = set(found.paths), References()
    for commit in commits_in_pieces(store, range(announced + 1, horizon + 1)):
        if commit is None:
            yield
        elif any(path_inside(uri) in paths for uri, _ in named_files(commit)):
            return False
        else:
            named.add_commit(commit)
    return not named.named(found.paths).any()


def from_log(
    store: Store, needed: References, versions: Sequence[int], partition_columns: Collection[str] = ()
) -> Pieces[Unneeded]:
    """The files that the commits at `versions` name and that are not needed.

    All of them are older than these commits, so their own times need not be known, provided that nobody uses a name
    again: so only names with a UUID count. Whether the files still exist is not looked at: deleting what is gone does
    nothing. Other names, such as those that lead out of the table, are left to a listing.
    """
    sizes: dict[str, int] = {}
    is_first_list = True
    for commit in commits_in_pieces(store, versions):
        if commit is None:
            yield
            continue
        named, listed = list(named_files(commit)), tombstone_list.list_of(commit.info)
        if listed is not None and is_first_list:
            # What left the list at this commit.
            is_first_list = False
            named += _listed_before(store, listed)
        for uri, size in named:
            path = path_inside(uri)
            if path is None or not retention.is_unique(path):
                continue
            if retention.may_vacuum(path, partition_columns):
                sizes[path] = max(size, sizes.get(path, 0))
    free = _not_named(needed, list(sizes), ())
    # Only Hadoop's file systems on a disk leave hidden checksums, and there looking for one costs next to nothing.
    is_cloud = store.small_reads_at_once > 1
    return Unneeded(free, [sizes[path] for path in free], set() if is_cloud else None)


def named_files(commit: Commit) -> Iterator[tuple[str, int]]:
    """Each file that belongs to a version because of this commit, as a URI, with its size; 0 if the log lacks that."""
    for action in commit.actions:
        if isinstance(action, AddFile | RemoveFile):
            yield action.path, action.size or 0
            if action.deletion_vector is not None:
                yield from _vector_file(action.deletion_vector)
        elif isinstance(action, AddCDCFile):
            yield action.path, action.size
    moved = lineage.from_builtins(commit_info.tidelog(commit.info).get("lineage"))
    for group in moved.groups if moved else ():
        if group.row_map is not None and group.row_map.startswith(retention.ROW_MAPS):
            yield group.row_map, 0
    for file in tombstone_list.listed_files(commit.info):
        if file.path.startswith(retention.TOMBSTONE_FILES):
            yield file.path, 0


def _listed_before(store: Store, listed: TombstoneList) -> list[tuple[str, int]]:
    try:
        info = {} if listed.previous is None else read_info(store, listed.previous)
    except FileNotFoundError:
        return []
    return [(file.path, 0) for file in tombstone_list.listed_files(info)]


def _vector_file(vector: DeletionVectorDescriptor) -> Iterator[tuple[str, int]]:
    stored = deletion_vector.location(vector)
    if isinstance(stored, StoredBitmap):
        yield stored.path, 0


def _not_named(needed: References, paths: list[str], inner_tables: tuple[str, ...]) -> list[str]:
    """The paths that are not needed and not in one of the tables inside this one."""
    named = needed.named(paths)
    return [
        path for path, is_named in zip(paths, named, strict=True) if not is_named and not path.startswith(inner_tables)
    ]


def _outside(paths: list[str], checkpoints: Sequence[str]) -> list[str]:
    """The paths that belong to no streaming checkpoint."""
    if not checkpoints:
        return paths
    return [path for path in paths if not any(retention.is_of_checkpoint(path, folder) for folder in checkpoints)]
