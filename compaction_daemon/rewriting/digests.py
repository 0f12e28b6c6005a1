"""The digest of rows that may change their places: their number, and the sum of their hashes.

Each row has a hash of 64 bits over all of its columns (`log/data/row_hashes.py`, and a last step that lets each bit of
it depend on all others). So a value that changed, a row that is missing, and a column that was permuted against the
others change the sum.

The hashes begin with a random number that no file and no record contains. A wrong output goes unnoticed if the
differences of its hashes add up to 0, whose probability is about 1 in 2**64 (10**19), however many rows differ. Where
rows may change their places, each row's hash is compared by itself as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

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
