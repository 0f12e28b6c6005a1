"""128-bit hashes of whole rows, to compare many rows without keeping them.

Two rows have the same hash if all their columns are equal bit by bit; null is equal to null, and NaN to NaN. Different
rows have different hashes: for a billion rows, the probability of any error is about 1 in 10^20. The hashes of a
process begin with random numbers, so that nobody can prepare two rows with the same hash. They are not for storing,
unless the caller has seeds of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.arrays import BoolArray, Int64Array, UInt64Array
from tidelog.log.system import REAL_SYSTEM

# What runs of the key index, which store hashes, call them. Other hashes need another name, because a run of another
# name is not used.
HASH_NAME = "hash 2"
# The two halves of a hash are two hashes of 64 bits, which differ in all of these: the multiplier (odd, and half of its
# bits set), the step from one element of a sequence to the next, how far high bits move down, and what stands for null.
_MULTIPLIERS = (np.uint64(0x9FB21C651E98DF25), np.uint64(0xD6E8FEB86659FD93))
_STEPS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_SHIFTS = (np.uint64(32), np.uint64(29))
_NULLS = (np.uint64(0x2545F4914F6CDD1D), np.uint64(0xBF58476D1CE4E5B9))
# Chosen on import: threads that hash at the same time must begin with the same numbers.
_SEED = uuid.UUID(REAL_SYSTEM.uuid()).int
Seeds: TypeAlias = tuple[np.uint64, np.uint64]
_SEEDS: Seeds = (np.uint64(_SEED >> 64), np.uint64(_SEED & (2**64 - 1)))
_WORD = 8
_HALF = np.uint64(32)
# The numbers of so many rows stay in the processor's cache.
_BLOCK_ROWS = 2**14
# Texts of about the same length are hashed word by word, all of them at once. Then at most this many times the words
# that they have are looked at.
_MAX_WASTE = 3
# The bytes of a word that belong to a text of which n bytes are left.
_MASKS = np.array([2 ** (8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
_FIXED = (pt.is_integer, pt.is_floating, pt.is_date, pt.is_timestamp)


def row_hashes(columns: Sequence[pa.Array], rows: int, *, halves: int = 2, seeds: Seeds = _SEEDS) -> UInt64Array:
    """The hashes of rows with these columns: an array of two lines with a number for each row.

    With `halves=1` it has the first line only, in half the time. Text may have codes (an Arrow dictionary), which does
    not change the hashes. The same `seeds` give the same hashes in every process.
    """
    state = np.empty((halves, rows), dtype=np.uint64)
    for half in range(halves):
        state[half] = seeds[half]
    for start in range(0, rows, _BLOCK_ROWS):
        block = state[:, start : start + _BLOCK_ROWS]
        for column in columns:
            _add(block, column.slice(start, _BLOCK_ROWS), seeds)
    return state


def _add(state: UInt64Array, column: pa.Array, seeds: Seeds) -> None:
    """Continue the hashes with one more column."""
    kind = column.type
    valid = None
    if column.null_count and not pt.is_null(kind):
        valid = np.asarray(column.is_valid())
        for half, null in zip(state, _NULLS, strict=False):
            half[~valid] ^= null
    if pt.is_struct(kind):
        # Between the null of a struct and that of its first field, because each would take the other back.
        _mix(state, np.zeros(len(column), dtype=np.uint64))
        for child in column.flatten():  # null where the struct is
            _add(state, child, seeds)
    elif pt.is_map(kind) or pt.is_list(kind):
        _add_lists(state, column, valid, seeds)
    elif pt.is_string(kind) or pt.is_binary(kind):
        _add_texts(state, column, valid, seeds)
    elif pt.is_dictionary(kind):
        _add_codes(state, column, valid, seeds)
    elif pt.is_decimal(kind):
        for words in _plain(column, np.dtype((np.uint64, 2)), valid).T:
            _mix(state, words)
    elif not pt.is_null(kind):
        _mix(state, _fixed_words(column, valid))


def _mix(state: UInt64Array, words: UInt64Array) -> None:
    """Continue the hashes with one number for each row, or with one for each row and half."""
    # A multiplication moves bits upwards only, and numbers such as 1.0 and 2.0 differ in their upper bits.
    words = words ^ words >> _HALF
    for half in range(len(state)):
        state[half] ^= words if words.ndim == 1 else words[half]
        state[half] *= _MULTIPLIERS[half]
        state[half] ^= state[half] >> _SHIFTS[half]


def _fixed_words(column: pa.Array, valid: BoolArray | None) -> UInt64Array:
    """One number for each value of a type with a fixed width."""
    kind = column.type
    if pt.is_boolean(kind):
        return _plain(column.cast(pa.uint8()), np.dtype(np.uint8), valid).astype(np.uint64)
    if pt.is_floating(kind):
        values = _plain(column, np.dtype(f"f{kind.bit_width // 8}"), valid)
        not_numbers = np.isnan(values)
        if not_numbers.any():  # there are many NaNs, and they are equal
            values = np.where(not_numbers, values.dtype.type(np.nan), values)
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


def _add_codes(state: UInt64Array, column: pa.DictionaryArray, valid: BoolArray | None, seeds: Seeds) -> None:
    """Texts of which each has a code: a text's words are hashed once, whatever the number of rows that have it."""
    codes = _plain(column.indices, np.dtype(f"i{column.type.index_type.bit_width // 8}"), valid)
    sums, lengths = _text_sums(column.dictionary, None, seeds[: len(state)])
    if valid is not None:
        # The last text, which is empty, is that of rows without one.
        sums, lengths = np.pad(sums, ((0, 0), (0, 1))), np.pad(lengths, (0, 1))
        codes = np.where(valid, codes, len(lengths) - 1)
    _mix(state, np.take(sums, codes, axis=1))
    _mix(state, np.take(lengths.view(np.uint64), codes))


def _add_texts(state: UInt64Array, column: pa.Array, valid: BoolArray | None, seeds: Seeds) -> None:
    sums, lengths = _text_sums(column, valid, seeds[: len(state)])
    _mix(state, sums)
    _mix(state, lengths.view(np.uint64))


def _text_sums(column: pa.Array, valid: BoolArray | None, seeds: Sequence[np.uint64]) -> tuple[UInt64Array, Int64Array]:
    """A number for each text and half, and the length of each text."""
    starts, lengths, first, end = _places(_offsets(column), valid)
    stored = column.buffers()[2]
    size = end - first
    # Two words more, because the last text can begin at the last byte, and a word is cut out of two.
    padded = np.zeros((size // _WORD + 3) * _WORD, dtype=np.uint8)
    if stored is not None and size:
        padded[:size] = np.frombuffer(stored, dtype=np.uint8, count=size, offset=first)
    aligned = padded.view(np.uint64)
    starts = starts - first
    counts = (lengths + (_WORD - 1)) >> 3
    longest = int(counts.max(initial=0))
    if longest * len(counts) <= _MAX_WASTE * int(counts.sum()):
        sums = np.zeros((len(seeds), len(counts)), dtype=np.uint64)
        keys = [_keys(longest, half, seed) for half, seed in enumerate(seeds)]
        for number in range(longest):
            left = np.maximum(lengths - number * _WORD, 0)
            words = _words_at(aligned, np.where(left, starts + number * _WORD, 0), left)
            for half in range(len(seeds)):
                mixed = _mixed(words ^ keys[half][number], half)
                mixed[left == 0] = 0
                sums[half] += mixed
    else:
        numbers, begins = _numbered(counts)
        places = np.repeat(starts, counts) + numbers * _WORD
        words = _words_at(aligned, places, np.repeat(lengths, counts) - numbers * _WORD)
        sums = _summed(np.stack([words] * len(seeds)), numbers, begins, counts, seeds)
    return sums, lengths


def _words_at(aligned: UInt64Array, places: Int64Array, left: Int64Array) -> UInt64Array:
    """The eight bytes from each place on, of which the first `left` count."""
    index, shift = places >> 3, ((places & 7) << 3).view(np.uint64)
    words: UInt64Array = aligned[index] >> shift
    # Shifted twice, because a number cannot be shifted by all of its bits.
    words |= (aligned[index + 1] << np.uint64(1)) << (np.uint64(63) - shift)
    words &= _MASKS[np.minimum(left, _WORD)]
    return words


def _add_lists(state: UInt64Array, column: pa.Array, valid: BoolArray | None, seeds: Seeds) -> None:
    starts, lengths, first, end = _places(_offsets(column), valid)
    children = [column.keys, column.items] if pt.is_map(column.type) else [column.values]
    hashes = row_hashes(
        [child.slice(first, end - first) for child in children], end - first, halves=len(state), seeds=seeds
    )
    numbers, begins = _numbered(lengths)
    chosen = hashes[:, np.repeat(starts - first, lengths) + numbers]
    _mix(state, _summed(chosen, numbers, begins, lengths, seeds))
    _mix(state, lengths.view(np.uint64))


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
    words: UInt64Array, numbers: Int64Array, begins: Int64Array, counts: Int64Array, seeds: Sequence[np.uint64]
) -> UInt64Array:
    """One number for each owner, from those of its elements and their places."""
    found = np.empty((len(words), len(counts)), dtype=np.uint64)
    longest = int(counts.max(initial=0))
    for half, values in enumerate(words):
        keys = _keys(longest, half, seeds[half])
        sums = np.zeros(len(values) + 1, dtype=np.uint64)
        np.cumsum(_mixed(values ^ np.take(keys, numbers), half), out=sums[1:])
        found[half] = sums[begins + counts] - sums[begins]
    return found


def _keys(count: int, half: int, seed: np.uint64) -> UInt64Array:
    """What the elements at so many places are mixed with, which is as secret as the seed."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * _STEPS[half] ^ seed, half)


def _mixed(mixed: UInt64Array, half: int) -> UInt64Array:
    """A number for each element of a sequence, in place of its own.

    As the numbers are summed, they are mixed twice. After one multiplication, the upper bits of two elements change the
    sum so little that they often take each other back.
    """
    mixed ^= mixed >> _HALF
    for step in (half, 1 - half):
        mixed *= _MULTIPLIERS[step]
        mixed ^= mixed >> _SHIFTS[step]
    return mixed
