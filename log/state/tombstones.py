"""Which files have the tombstones of a version; see `tidelog.log.format.tombstone_list`."""

from __future__ import annotations

from tidelog.log.format import commit_info, filenames, tombstone_list
from tidelog.log.format.tombstone_list import TOMBSTONES, TombstoneFile
from tidelog.log.state.commits import read_info
from tidelog.log.state.head import Head
from tidelog.log.state.table_identity import TABLE_ID
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)


def tombstones_of(store: Store, head: Head) -> tuple[TombstoneFile, ...]:
    """The files with the tombstones of a version; none if another engine has deleted the commit that names them."""
    entry = head.transactions.get(TOMBSTONES)
    return () if entry is None else tombstones_at(store, head, entry.version)


def lost_tombstones(store: Store, head: Head) -> list[str]:
    """What is missing of the tombstones of a version: the paths of files, or of the commit that names them."""
    entry = head.transactions.get(TOMBSTONES)
    if entry is None:
        return []
    paths = [filenames.commit_path(entry.version), *(file.path for file in tombstones_of(store, head))]
    return [path for path in paths if not _is_there(store, path)]


def _is_there(store: Store, path: str) -> bool:
    try:
        store.modified_ms(path)
    except FileNotFoundError:
        return False
    return True


def tombstones_at(store: Store, head: Head, version: int) -> tuple[TombstoneFile, ...]:
    """The files that the commit `version` of this table names."""
    try:
        info = read_info(store, version)
    except FileNotFoundError:
        _LOGGER.warning("the tombstones of %s are lost: the commit %d, which names them, is gone", store.url, version)
        return ()
    return tombstone_list.listed_files(info) if commit_info.tidelog(info).get(TABLE_ID) == head.metadata.id else ()
