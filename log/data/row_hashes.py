"""128-bit hashes of whole rows, to compare many rows without keeping them.

Two rows have the same hash if all their columns are equal bit by bit; null is equal to null, and NaN to NaN. Different
rows have different hashes: for a billion rows, the probability of any error is about 1 in 10^20. The hashes of a
process begin with random numbers, so that nobody can prepare two rows with the same hash. They are not for storing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array, UInt64Array
from tidelog.log.system import REAL_SYSTEM

# The two halves of a hash are two hashes of 64 bits, which differ in all of these: the multiplier (odd, and half of its
# bits set), the step from one element of a sequence to the next, how far high bits move down, and what stands for null.
_MULTIPLIERS = (np.uint64(0x9FB21C651E98DF25), np.uint64(0xD6E8FEB86659FD93))
_STEPS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_SHIFTS = (np.uint64(32), np.uint64(29))
_NULLS = (np.uint64(0x2545F4914F6CDD1D), np.uint64(0xBF58476D1CE4E5B9))
_WORD = 8
# The bytes of a word that belong to a text of which n bytes are left.
_MASKS = np.array([2 ** (8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
_FIXED = (pt.is_integer, pt.is_floating, pt.is_date, pt.is_timestamp)


def row_hashes(columns: Sequence[pa.Array], rows: int) -> UInt64Array:
    """The hashes of rows with these columns: an array of two lines with a number for each row."""
    state = np.empty((2, rows), dtype=np.uint64)
    state[0], state[1] = _seeds()
    for column in columns:
        _add(state, column)
    return state


@cache
def _seeds() -> tuple[np.uint64, np.uint64]:
    number = uuid.UUID(REAL_SYSTEM.uuid()).int
    return np.uint64(number >> 64), np.uint64(number & (2**64 - 1))


def _add(state: UInt64Array, column: pa.Array) -> None:
    """Continue the hashes with one more column."""
    kind = column.type
    valid = None
    if column.null_count and not pt.is_null(kind):
        valid = np.asarray(column.is_valid())
        for half, null in zip(state, _NULLS, strict=True):
            half[~valid] ^= null
    if pt.is_struct(kind):
        for child in column.flatten():  # null where the struct is
            _add(state, child)
    elif pt.is_map(kind) or pt.is_list(kind):
        _add_lists(state, column, valid)
    elif pt.is_string(kind) or pt.is_binary(kind):
        _add_texts(state, column, valid)
    elif pt.is_decimal(kind):
        for words in _plain(column, np.dtype((np.uint64, 2)), valid).T:
            _mix(state, words, words)
    elif not pt.is_null(kind):
        words = _fixed_words(column, valid)
        _mix(state, words, words)


def _mix(state: UInt64Array, first: UInt64Array, second: UInt64Array) -> None:
    for half, words in enumerate((first, second)):
        state[half] ^= words
        state[half] *= _MULTIPLIERS[half]
        state[half] ^= state[half] >> _SHIFTS[half]


def _fixed_words(column: pa.Array, valid: BoolArray | None) -> UInt64Array:
    """One number for each value of a type with a fixed width."""
    kind = column.type
    if pt.is_boolean(kind):
        return _plain(column.cast(pa.uint8()), np.dtype(np.uint8), valid).astype(np.uint64)
    if pt.is_floating(kind):
        values = _plain(column, np.dtype(f"f{kind.bit_width // 8}"), valid)
        # There are many NaNs, and they are equal. This sum is NaN if there is one.
        if np.isnan(values.sum()):
            values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
        return values.view(f"u{kind.bit_width // 8}").astype(np.uint64, copy=False)
    return _plain(column, np.dtype(f"i{kind.bit_width // 8}"), valid).astype(np.int64, copy=False).view(np.uint64)


def _plain(column: pa.Array, kind: np.dtype, valid: BoolArray | None) -> np.ndarray:
    """The values as they are in memory, zero where there is none."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), dtype=kind)
    values = np.frombuffer(buffer, dtype=kind, count=column.offset + len(column))[column.offset :]
    if valid is None:
        return values
    values = values.copy()
    values[~valid] = 0
    return values


def _add_texts(state: UInt64Array, column: pa.Array, valid: BoolArray | None) -> None:
    starts, lengths, first, end = _places(_offsets(column), valid)
    stored = column.buffers()[2]
    size = end - first
    padded = np.zeros(size + _WORD, dtype=np.uint8)
    if stored is not None and size:
        padded[:size] = np.frombuffer(stored, dtype=np.uint8, count=size, offset=first)
    # The word that begins at each byte.
    every = np.ndarray(shape=(size + 1,), dtype="<u8", buffer=padded, strides=(1,))
    counts = (lengths + (_WORD - 1)) // _WORD
    numbers, owners_start = _numbered(counts)
    words = every[np.repeat(starts - first, counts) + numbers * _WORD]
    last = np.cumsum(counts)[counts > 0] - 1
    words[last] &= _MASKS[(lengths - (counts - 1) * _WORD)[counts > 0]]
    _mix(state, *_summed((words, words), numbers, owners_start, counts))
    _mix(state, lengths.view(np.uint64), lengths.view(np.uint64))


def _add_lists(state: UInt64Array, column: pa.Array, valid: BoolArray | None) -> None:
    starts, lengths, first, end = _places(_offsets(column), valid)
    children = [column.keys, column.items] if pt.is_map(column.type) else [column.values]
    hashes = row_hashes([child.slice(first, end - first) for child in children], end - first)
    numbers, owners_start = _numbered(lengths)
    chosen = hashes[:, np.repeat(starts - first, lengths) + numbers]
    _mix(state, *_summed((chosen[0], chosen[1]), numbers, owners_start, lengths))
    _mix(state, lengths.view(np.uint64), lengths.view(np.uint64))


def _offsets(column: pa.Array) -> Int64Array:
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column) + 1, dtype=np.int64)
    stored = np.frombuffer(buffer, dtype=np.int32, count=column.offset + len(column) + 1)
    return stored[column.offset :].astype(np.int64)


def _places(offsets: Int64Array, valid: BoolArray | None) -> tuple[Int64Array, Int64Array, int, int]:
    """Where each value's elements start, how many there are, and where those of all values start and end."""
    lengths = np.diff(offsets)
    if valid is not None:
        lengths[~valid] = 0
    return offsets[:-1], lengths, int(offsets[0]), int(offsets[-1])


def _numbered(counts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The number of each element within its owner, and the place of each owner's first element."""
    begins = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(begins, counts), begins


def _summed(
    words: tuple[UInt64Array, UInt64Array], numbers: Int64Array, begins: Int64Array, counts: Int64Array
) -> tuple[UInt64Array, UInt64Array]:
    """One number for each owner, from those of its elements and their places."""
    found = []
    for half, seed, multiplier, step, shift in zip(words, _seeds(), _MULTIPLIERS, _STEPS, _SHIFTS, strict=True):
        mixed = numbers.view(np.uint64) * step
        mixed ^= seed
        mixed ^= half
        mixed *= multiplier
        mixed ^= mixed >> shift
        sums = np.zeros(len(mixed) + 1, dtype=np.uint64)
        np.cumsum(mixed, out=sums[1:])
        found.append(sums[begins + counts] - sums[begins])
    return found[0], found[1]
