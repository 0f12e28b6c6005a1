"""How the output of a rewrite in order is encoded, so that it does not outgrow its inputs.

Encodings that made the inputs small can get lost when files are joined. The dictionary of a column can exceed its
bound, after which every repetition is written out; another codec or plain values can take more space. So there are
several layouts, and a rewrite takes the first one that is small enough:

1. long row groups and the usual dictionaries, which suit readers best
2. long row groups and large dictionaries
3. the row groups of the inputs, each with its own dictionaries, and the encodings of the inputs

All of them keep the codec that packs best of those in the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.log.internals import Int64Array, Layout

# A reader holds a column's dictionary in memory, and another one for each file that it reads at the same time.
LARGE_DICTIONARY_BYTES = 64 * 2**20
# Codecs that every reader of Delta tables knows, and how well they pack.
_CODECS = ("SNAPPY", "GZIP", "ZSTD", "BROTLI")
# Encodings that are smaller than plain values without a dictionary.
_COMPACT = ("DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT")


def layouts(footers: Sequence[pq.FileMetaData], dead: Sequence[BitMap64], length: int) -> Iterator[list[Layout]]:
    """The layouts to try in turn, each as one layout for each output of `length` rows.

    `footers` and `dead` are the inputs' footers and dead rows.
    """
    ends = _row_group_ends(footers, dead)
    outputs = max(1, -(-int(ends[-1]) // length)) if len(ends) else 1
    codec = _codec(footers)
    yield [Layout(compression=codec)] * outputs
    yield [Layout(compression=codec, dictionary_bytes=LARGE_DICTIONARY_BYTES)] * outputs
    encodings, dictionaries = _encodings(footers)
    yield [
        Layout(codec, LARGE_DICTIONARY_BYTES, _between(ends, start, start + length), encodings, dictionaries)
        for start in range(0, outputs * length, length)
    ]


def clustered_layouts(footers: Sequence[pq.FileMetaData]) -> Iterator[Layout]:
    """The layouts to try in turn for rows that are not in the order of the inputs."""
    codec = _codec(footers)
    yield Layout(compression=codec)
    yield Layout(compression=codec, dictionary_bytes=LARGE_DICTIONARY_BYTES)


def _row_group_ends(footers: Sequence[pq.FileMetaData], dead: Sequence[BitMap64]) -> Int64Array:
    """Where each row group of the inputs ends, counted in the live rows of all inputs."""
    lengths: list[int] = []
    for footer, vector in zip(footers, dead, strict=True):
        rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        bounds = np.cumsum([0, *rows]).tolist()
        lengths += [end - start - vector.range_cardinality(start, end) for start, end in pairwise(bounds)]
    return np.cumsum(lengths, dtype=np.int64)


def _between(ends: Int64Array, start: int, end: int) -> tuple[int, ...]:
    """The lengths of the row groups of an output with the rows from `start` to `end`."""
    inside = ends[(ends > start) & (ends < end)].tolist()
    last = min(end, int(ends[-1])) if len(ends) else start
    return tuple(high - low for low, high in pairwise([start, *inside, last]) if high > low)


def _codec(footers: Sequence[pq.FileMetaData]) -> str:
    found = {column.compression for column in _columns(footers)}
    return max((codec for codec in _CODECS if codec in found), key=_CODECS.index, default="SNAPPY").lower()


def _encodings(footers: Sequence[pq.FileMetaData]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The compact encodings of top-level columns, and the other leaf columns."""
    found: dict[str, str] = {}
    leaves: dict[str, None] = {}
    nested = {
        leaf.path
        for footer in footers
        for leaf in (footer.schema.column(number) for number in range(footer.num_columns))
        if leaf.path != leaf.name
    }
    for column in _columns(footers):
        path = column.path_in_schema
        leaves[path] = None
        chosen = next((encoding for encoding in _COMPACT if encoding in column.encodings), None)
        if chosen is not None and path not in nested:
            found[path] = chosen
    return found, tuple(path for path in leaves if path not in found)


def _columns(footers: Sequence[pq.FileMetaData]) -> Iterator[pq.ColumnChunkMetaData]:
    for footer in footers:
        if footer.num_row_groups:
            group = footer.row_group(0)
            yield from (group.column(number) for number in range(group.num_columns))
