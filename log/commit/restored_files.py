"""The files that a RESTORE removes and brings back, and whether those still exist."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format import deletion_vector, paths, properties
from tidelog.log.format.actions import AddFile
from tidelog.log.state import files
from tidelog.log.storage import Store


def difference(live: pa.Table, wanted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The logical files to remove from `live`, and those to add to it, to get `wanted`."""
    live_keys, wanted_keys = files.keys(live), files.keys(wanted)
    removed = live.filter(pc.invert(pc.is_in(live_keys, value_set=wanted_keys.combine_chunks())))
    added = wanted.filter(pc.invert(pc.is_in(wanted_keys, value_set=live_keys.combine_chunks())))
    return removed, added


def require_files(store: Store, adds: list[AddFile], version: int, newest: int) -> None:
    """Raise HistoryExpiredError unless all data files and deletion vectors still exist."""
    names = {paths.to_storage_path(add.path) for add in adds}
    for add in adds:
        stored = deletion_vector.location(add.deletion_vector) if add.deletion_vector else b""
        if not isinstance(stored, bytes):
            names.add(paths.to_storage_path(stored.path))
    for name in sorted(names):
        try:
            store.modified_ms(name)
        except FileNotFoundError as error:
            raise HistoryExpiredError(
                f"version {version} of {store.url} cannot be restored: its file {name} no longer exists",
                advice="restore a later version; to let vacuum keep removed files longer, "
                f"increase {properties.DELETED_FILE_RETENTION}",
                path=store.url,
                earliest_version=version + 1,
                latest_version=newest,
            ) from error
