"""The tombstones of files that stay in memory, so that a file is read once and not for each batch of keys.

After a DELETE of many rows, the tombstones of each file can have any key of the table. Keys are found among those in
memory by 64 bits of a hash, or by the key itself if it is one number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidelog.log.arrays import Int64Array
from tidelog.log.data.grouping import comparable
from tidelog.log.data.indexed_key import has_own_codes, own_codes
from tidelog.log.data.room import CacheByStore, Room
from tidelog.log.data.row_hashes import row_hashes
from tidelog.log.storage import Store

# With a key and an order of one number each, this is enough for 10,000,000 tombstones.
MOST_CACHED_BYTES = 2**28
_ROOM = Room(MOST_CACHED_BYTES)
_CODE_BYTES = 8


class CachedTombstones:
    """The tombstones of one file, in the order of the codes of their keys. Thread-safe, as it never changes."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        rows = rows.combine_chunks()
        self._codes = _codes(rows, self._keys)
        if (self._codes[1:] < self._codes[:-1]).any():
            order = np.argsort(self._codes)
            self._codes, rows = self._codes[order], rows.take(pa.array(order))
        self.rows = rows

    def of(self, keys: pa.Table) -> pa.Table:
        """The tombstones of keys that have the types of its own, and perhaps a few others."""
        wanted = np.unique(_codes(keys, self._keys))
        starts = np.searchsorted(self._codes, wanted, "left")
        counts = np.searchsorted(self._codes, wanted, "right") - starts
        return self.rows.take(
            pa.array(np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum()))
        )


def _codes(rows: pa.Table, keys: Sequence[str]) -> Int64Array:
    columns = [comparable(rows[name]).combine_chunks() for name in keys]
    if has_own_codes([column.type for column in columns]):
        return own_codes(columns[0])
    codes: Int64Array = row_hashes(columns, rows.num_rows, halves=1)[0].view(np.int64)
    return codes


_cache: CacheByStore[str, CachedTombstones] = CacheByStore()


def cached_tombstones(store: Store, path: str, schema: pa.Schema) -> CachedTombstones | None:
    """Those of a file, if it is kept with columns of these names and types."""
    with _cache.lock:
        found = _cache.of(store).get(path)
    return found if found is not None and found.rows.schema.equals(schema) else None


def cache_tombstones(store: Store, path: str, rows: pa.Table, keys: Sequence[str]) -> CachedTombstones | None:
    """Keep the tombstones of a file, which have these columns as their key; None if there is no room for them."""
    size = rows.nbytes + _CODE_BYTES * rows.num_rows
    with _cache.lock:
        files = _cache.of(store)
        files.pop(path, None)
        if not _cache.make_room(_ROOM, size, store):
            return None
    kept = CachedTombstones(rows, keys)
    with _cache.lock:
        if _ROOM.take(kept, size):
            files[path] = kept
    return kept


def uncache_others(store: Store, paths: Sequence[str]) -> None:
    """Let go of the files of a store that are none of these."""
    listed = set(paths)
    with _cache.lock:
        files = _cache.of(store)
        for path in [path for path in files if path not in listed]:
            del files[path]
