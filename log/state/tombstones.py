"""Which files have the tombstones of a version; see `tidelog.log.format.tombstone_list`."""

from __future__ import annotations

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import commit_info, filenames, properties, tombstone_list
from tidelog.log.format.tombstone_list import TOMBSTONES, TombstoneFile, TombstoneList
from tidelog.log.state.commits import read_info
from tidelog.log.state.head import Head
from tidelog.log.state.table_identity import TABLE_ID
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)

_NONE = TombstoneList(())


def expired_ms(head: Head, now_ms: int) -> int:
    """Since when a tombstone must have been written to count for a commit that follows this version now."""
    return head.next_timestamp_ms(now_ms) - _kept_ms(head)


def tombstones_of(store: Store, head: Head, now_ms: int) -> tuple[TombstoneFile, ...]:
    """The files with the tombstones of a version; none if another engine has deleted the commit that names them.

    Some of their rows, or all rows of some files, can be older than `expired_ms`.
    """
    version = _list_version(head)
    return () if version is None or _is_outdated(head, now_ms) else tombstones_at(store, head, version)


def any_counts(store: Store, head: Head, now_ms: int) -> bool:
    """Whether a tombstone counts for a commit that follows this version now."""
    counts_ms = expired_ms(head, now_ms) if _list_version(head) is not None else 0
    return any(file.newest_ms >= counts_ms for file in tombstones_of(store, head, now_ms))


def tombstones_at(store: Store, head: Head, version: int) -> tuple[TombstoneFile, ...]:
    """The files that the commit `version` of this table names."""
    found = _list_at(store, head, version)
    if found is None:
        _LOGGER.warning("the tombstones of %s are lost: the commit %d, which names them, is gone", store.url, version)
        return ()
    return found.files


def tombstones_before(store: Store, head: Head, earlier: Head, now_ms: int) -> tuple[TombstoneFile, ...] | None:
    """The files with the tombstones of an earlier version; None if they are not known any more.

    An expire can have deleted the commit that named them. Then they are what the next list after it had, without the
    tombstones of that commit.
    """
    wanted, version = _list_version(earlier), _list_version(head)
    if wanted is None or _is_outdated(head, now_ms):
        return ()
    files, found = None, _list_at(store, head, wanted)
    if found is not None:
        files = found.files
    while files is None and version is not None and (found := _list_at(store, head, version)) is not None:
        if found.previous == wanted and found.own is not None:
            files = tuple(file for file in found.files if file.path != found.own)
        version = found.previous
    counts_ms = expired_ms(head, now_ms)
    return None if files is None else tuple(file for file in files if file.newest_ms >= counts_ms)


def lost_tombstones(store: Store, head: Head, now_ms: int) -> list[str]:
    """What is missing of the tombstones of a version: the paths of files, or of the commit that names them."""
    version = _list_version(head)
    if version is None or _is_outdated(head, now_ms):
        return []
    paths = [filenames.commit_path(version), *(file.path for file in tombstones_of(store, head, now_ms))]
    return [path for path in paths if not has_file(store, path)]


def has_file(store: Store, path: str) -> bool:
    """Whether there is a file at this path below the table."""
    try:
        store.modified_ms(path)
    except FileNotFoundError:
        return False
    return True


def _list_version(head: Head) -> int | None:
    entry = head.transactions.get(TOMBSTONES)
    return None if entry is None else entry.version


def _is_outdated(head: Head, now_ms: int) -> bool:
    """Whether no tombstone counts any more, as the newest list is older than they are kept; an expire may delete it."""
    written_ms = head.transactions[TOMBSTONES].last_updated
    return written_ms is not None and written_ms < expired_ms(head, now_ms)


def _kept_ms(head: Head) -> int:
    return properties.duration_ms(head.metadata.configuration, properties.TOMBSTONE_RETENTION)


def _list_at(store: Store, head: Head, version: int) -> TombstoneList | None:
    """The list in a commit, empty if it is another table's or has none; None if the commit is gone."""
    try:
        info = read_info(store, version)
    except FileNotFoundError:
        return None
    record = commit_info.tidelog(info)
    if record.get(TABLE_ID) != head.metadata.id or tombstone_list.KEY not in record:
        return _NONE
    found = tombstone_list.list_of(info)
    if found is None:
        raise CorruptLogError(
            f"the list of tombstones in version {version} of {store.url} cannot be read",
            advice="upsert with order_by=(), or restore the commit from a backup",
            path=store.url,
        )
    return found
