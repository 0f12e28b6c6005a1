"""Fast hashes of a path column, to find which of a million files a commit can refer to.

Equal hashes mean only "maybe the same path"; the caller compares the paths themselves. A hash uses two 8-byte words
from near the end of the path, where common file names have a UUID, and reads them from Arrow's buffers without creating
a Python object per file.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray, Int64Array
from tidelog.log.format.paths import canonical

Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

# Within the UUID of both `part-00000-<uuid>-c000.snappy.parquet` and `part-<uuid>.parquet`.
_FROM_END = (40, 28)
_WORD = 8
# Up to this many values, comparing with each one is faster than a binary search.
_FEW = 16
_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def path_hashes(paths: pa.ChunkedArray) -> Hashes:
    """One hash per path. Different spellings of the same absolute path have the same hash."""
    if len(paths) and pc.any(pc.starts_with(paths, "file:")).as_py():
        paths = pa.chunked_array([pa.array([canonical(path) for path in paths.to_pylist()], pa.string())])
    chunks = [_chunk_hashes(chunk) for chunk in paths.chunks if len(chunk)]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.uint64)


def is_among(hashes: Hashes, ascending: Hashes) -> BoolArray:
    """For each hash, whether it is one of the `ascending` values, which may repeat.

    NumPy's `isin` and `unique` hash or sort the larger side, which takes seconds for a million values.
    """
    found = np.zeros(len(hashes), dtype=bool)
    if len(ascending) <= _FEW:
        for value in ascending:
            found |= hashes == value
        return found
    places = np.searchsorted(ascending, hashes)
    inside = places < len(ascending)
    found[inside] = ascending[places[inside]] == hashes[inside]
    return found


def _chunk_hashes(paths: pa.StringArray) -> Hashes:
    _, offset_buffer, data_buffer = paths.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[paths.offset : paths.offset + len(paths) + 1]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    if len(data) < _WORD or ends[-1] > len(data) - _WORD:
        # The last words can extend past the buffer's end; the excess bytes are masked out below.
        data = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    words: Hashes = np.ndarray((len(data) - _WORD + 1,), dtype="<u8", buffer=data, strides=(1,))
    result = np.zeros(len(paths), dtype=np.uint64)
    for distance, multiplier in zip(_FROM_END, _MULTIPLIERS, strict=True):
        positions = np.maximum(ends - distance, starts)
        word = words[positions]
        short = ends - positions < _WORD
        if short.any():
            word[short] &= _low_bytes((ends - positions)[short])
        result ^= (word ^ (word >> np.uint64(29))) * multiplier
    return result


def _low_bytes(count: Int64Array) -> Hashes:
    """Masks that keep `count` (0 to 7) low bytes of a little-endian word."""
    return (np.uint64(1) << (count.astype(np.uint64) * np.uint64(8))) - np.uint64(1)
