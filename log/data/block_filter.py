"""Filters of the blocks of a run: which blocks have none of some codes, without reading them.

A table that is written by many inserts has many runs, and most keys are in one of them. A lookup that asks each run for
all keys would read about as many blocks of each. So a run has a Bloom filter for each block: a line of bits, of which
each code sets PROBES. A block whose line lacks one of a code's bits has no entry with that code. Of 100 codes that a
full block does not have, about one passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidelog.log.arrays import BoolArray, Int64Array

_BITS_PER_CODE = 12
_PROBES = 3
MOST_FILTERED_BLOCKS = 2**15
"""Larger runs have no filters, which would take too much memory. Merging leaves few such runs."""
# The finalizer of MurmurHash3, which spreads neighbouring codes over all bits.
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT, _HALF, _QUARTER = np.uint64(33), np.uint64(32), np.uint32(16)


def line_bytes(block: int) -> int:
    """The size of a line: that of a block of so many entries, or of the shorter one at the end."""
    return -(-_BITS_PER_CODE * block // 8)


def filter_lines(codes: Int64Array, length: int, block: int) -> np.ndarray:
    """The lines of blocks that have `length` codes each."""
    count, bits = len(codes) // length, 8 * line_bytes(block)
    marks = np.zeros(count * bits, dtype=bool)
    starts = np.arange(0, count * bits, bits).reshape(-1, 1)
    for bit in _bits(codes, bits):
        marks[bit.reshape(count, length) + starts] = True
    return np.packbits(marks.reshape(count, bits), axis=1, bitorder="little")


def may_have(lines: np.ndarray, codes: Int64Array, blocks: Int64Array) -> BoolArray:
    """For each code, whether the block with the number beside it may have it."""
    found = np.ones(len(codes), dtype=bool)
    for bit in _bits(codes, 8 * lines.shape[1]):
        found &= (lines[blocks, bit >> 3] >> (bit & 7).astype(np.uint8) & 1).view(bool)
    return found


def _bits(codes: Int64Array, bits: int) -> Iterator[Int64Array]:
    """The bits that codes set in a line of so many."""
    mixed = codes.view(np.uint64)
    for factor in (_FIRST, _SECOND):
        mixed = (mixed ^ mixed >> _SHIFT) * factor
    # Each probe goes on by a step that is the code's own, around a circle of 2**32, of which the upper half counts.
    place, step = mixed.astype(np.uint32), (mixed >> _HALF).astype(np.uint32)
    for _ in range(_PROBES):
        yield ((place >> _QUARTER) * np.uint32(bits) >> _QUARTER).astype(np.int64)
        place = place + step
