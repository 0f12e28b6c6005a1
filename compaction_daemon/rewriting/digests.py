"""Digests of rows: of rows whose order counts, and of rows that may change their places.

Rows in order (`SequenceDigest`): a hash of each column's values, one after the other. Two sequences of rows have the
same digest if and only if (but for one chance in 2**128) each column has the same values at the same places. So a value
that changed, a missing row, two rows that changed places, and a column that was permuted against the others all show,
and the columns where they do are known. How the rows come in batches, and whether text has codes (Arrow dictionaries),
makes no difference. Nulls are hashed by their places, and are left out of the values. Text and lists are hashed by
their lengths and by all of their elements. The hash is XXH3 with 128 bits, which takes as long as reading the memory.

Rows that may change their places (`Digest`): their number, and the sum of their hashes. Each row has a hash of 64 bits
over all of its columns (`log/data/row_hashes.py`, and a last step that lets each bit of it depend on all others). So a
value that changed, a row that is missing, and a column that was permuted against the others change the sum. The hashes
begin with a random number that no file and no record contains. A wrong output goes unnoticed if the differences of its
hashes add up to 0, whose probability is about 1 in 2**64 (10**19), however many rows differ. Where rows may change
their places, each row's hash is compared by itself as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from xxhash import xxh3_128

from tidelog.log.arrays import UInt64Array
from tidelog.log.data.row_hashes import row_hashes

_BITS = 2**64 - 1
# The last step of MurmurHash3 for 64 bits (Austin Appleby, public domain).
_SHIFT = np.uint64(33)
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)


class Sums(msgspec.Struct, frozen=True):
    """What is compared of some rows: how many there are, and a text that depends on all of their values."""

    rows: int
    content: str


@dataclass(slots=True)
class Digest:
    """The rows so far: how many, and the sum of their hashes."""

    rows: int = 0
    content: int = 0

    def add(self, hashes: UInt64Array) -> None:
        """Take in the next rows."""
        self.rows += len(hashes)
        self.content = (self.content + int(hashes.sum())) & _BITS

    @property
    def sums(self) -> Sums:
        """The rows, and the sum as hexadecimal text."""
        return Sums(self.rows, f"{self.content:016x}")


def hashes_of(batch: pa.RecordBatch) -> UInt64Array:
    """The hash of each row. It makes no difference whether text has codes (Arrow dictionaries)."""
    return _mixed(row_hashes(batch.columns, batch.num_rows, halves=1)[0])


def _mixed(numbers: UInt64Array) -> UInt64Array:
    """Each number with its bits mixed, in place; different numbers stay different."""
    numbers ^= numbers >> _SHIFT
    numbers *= _FIRST
    numbers ^= numbers >> _SHIFT
    numbers *= _SECOND
    numbers ^= numbers >> _SHIFT
    return numbers


class SequenceDigest:
    """The rows so far: how many, and a hash of each column."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, _Values] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows. All batches have the same columns."""
        self.rows += batch.num_rows
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            self._columns.setdefault(name, _Values()).add(values)

    @property
    def columns(self) -> dict[str, str]:
        """The hash of each column, as hexadecimal text."""
        return {name: values.digest().hex() for name, values in self._columns.items()}

    @property
    def sums(self) -> Sums:
        """The rows, and a hash of all columns as hexadecimal text."""
        text = "".join(f"{name}\0{found}\0" for name, found in sorted(self.columns.items()))
        return Sums(self.rows, xxh3_128(text.encode()).hexdigest())


class _Values:
    """The values of a column, or of a part of a nested one."""

    def __init__(self) -> None:
        self._count = 0
        # One hash for each, because where one batch ends and the next begins must not show.
        self._nulls = xxh3_128()
        self._lengths = xxh3_128()
        self._content = xxh3_128()
        self._parts: list[_Values] = []

    def add(self, values: pa.Array) -> None:
        if pt.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if values.null_count:
            places = np.flatnonzero(np.asarray(values.is_null())) + self._count
            self._nulls.update(places.astype(np.int64).tobytes())
        self._count += len(values)
        if values.null_count:
            values = values.drop_null()
        if len(values):
            self._add_present(values)

    def digest(self) -> bytes:
        found = xxh3_128(self._count.to_bytes(8))
        for part in (self._nulls, self._lengths, self._content):
            found.update(part.digest())
        for values in self._parts:
            found.update(values.digest())
        return found.digest()

    def _add_present(self, values: pa.Array) -> None:
        """Take in values without nulls."""
        kind = values.type
        if pt.is_struct(kind):
            self._add_parts(values.flatten())
        elif pt.is_map(kind) or pt.is_list(kind):
            first, end = self._add_lengths(values)
            children = (values.keys, values.items) if pt.is_map(kind) else (values.values,)
            self._add_parts([child.slice(first, end - first) for child in children])
        elif pt.is_string(kind) or pt.is_binary(kind):
            first, end = self._add_lengths(values)
            if end > first:
                self._content.update(values.buffers()[2].slice(first, end - first))
        else:
            if pt.is_boolean(kind):
                values = values.cast(pa.uint8())
            width = values.type.bit_width // 8
            self._content.update(values.buffers()[1].slice(values.offset * width, len(values) * width))

    def _add_lengths(self, values: pa.Array) -> tuple[int, int]:
        """Take in how long each text or list is. Returns where their elements start and end."""
        stored = np.frombuffer(values.buffers()[1], dtype=np.int32, count=values.offset + len(values) + 1)
        ends = stored[values.offset :]
        self._lengths.update(np.diff(ends).tobytes())
        return int(ends[0]), int(ends[-1])

    def _add_parts(self, parts: list[pa.Array]) -> None:
        self._parts = self._parts or [_Values() for _ in parts]
        for values, part in zip(self._parts, parts, strict=True):
            values.add(part)


def differing_columns(first: SequenceDigest, second: SequenceDigest) -> Iterator[str]:
    """The columns whose values are not the same in both, in the order of the first."""
    others = second.columns
    for name, found in first.columns.items():
        if others.get(name) != found:
            yield name
