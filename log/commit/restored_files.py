"""The files that a RESTORE removes and brings back, and whether it may bring them back."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.conflict.horizon import horizon_of
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format import deletion_vector, paths, properties
from tidelog.log.format.actions import AddFile, FileKey
from tidelog.log.state import files
from tidelog.log.state.commits import read_commit
from tidelog.log.state.head import Head
from tidelog.log.storage import Store


def difference(live: pa.Table, wanted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The logical files to remove from `live`, and those to add to it, to get `wanted`."""
    live_keys, wanted_keys = files.keys(live), files.keys(wanted)
    removed = live.filter(pc.invert(pc.is_in(live_keys, value_set=wanted_keys.combine_chunks())))
    added = wanted.filter(pc.invert(pc.is_in(wanted_keys, value_set=live_keys.combine_chunks())))
    return removed, added


def require_restorable(store: Store, adds: list[AddFile], version: int, head: Head) -> None:
    """Raise HistoryExpiredError unless a RESTORE of `version`, committed on `head`, may bring these files back.

    All data files and deletion vectors must exist, and none may be one that a vacuum has announced to delete: one that
    was removed at or before the horizon.
    """
    horizon = horizon_of(head.transactions)
    if adds and version < horizon:
        removed_later: set[FileKey] = set()
        try:
            for number in range(horizon + 1, head.version + 1):
                removed_later.update(remove.key for remove in read_commit(store, number).removes)
        except FileNotFoundError as error:
            what = f"the commits since version {horizon}, which say what vacuum keeps, were cleaned up"
            raise _not_restorable(store, version, head, what, horizon) from error
        doomed = next((add.path for add in adds if add.key not in removed_later), None)
        if doomed is not None:
            what = f"its file {doomed} was removed at or before version {horizon}, and vacuum deletes such files"
            raise _not_restorable(store, version, head, what, horizon)
    names = {paths.to_storage_path(add.path) for add in adds}
    for add in adds:
        stored = deletion_vector.location(add.deletion_vector) if add.deletion_vector else b""
        if not isinstance(stored, bytes):
            names.add(paths.to_storage_path(stored.path))
    for name in sorted(names):
        try:
            store.modified_ms(name)
        except FileNotFoundError as error:
            what = f"its file {name} no longer exists"
            raise _not_restorable(store, version, head, what, max(horizon, version + 1)) from error


def _not_restorable(store: Store, version: int, head: Head, why: str, earliest: int) -> HistoryExpiredError:
    return HistoryExpiredError(
        f"version {version} of {store.url} cannot be restored: {why}",
        advice="restore a later version; to let vacuum keep removed files longer, "
        f"increase {properties.DELETED_FILE_RETENTION}",
        path=store.url,
        earliest_version=earliest,
        latest_version=head.version,
    )
