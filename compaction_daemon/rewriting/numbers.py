"""Numbers of rows, of which a group has tens of millions: as narrow as they can be, and never twice in memory."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.log.arrays import UInt64Array

NarrowArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]

_FIRST_ROWS = 2**16


def narrowest(largest: int) -> type[np.int16 | np.int32 | np.int64]:
    """The type for numbers from -1 to `largest`."""
    for kind in (np.int16, np.int32):
        if largest <= np.iinfo(kind).max:
            return kind
    return np.int64


class RowHashes:
    """The hashes of rows that come one batch after the other, in one array that grows."""

    def __init__(self) -> None:
        self._grown: UInt64Array = np.empty(_FIRST_ROWS, dtype=np.uint64)
        self._rows = 0

    def add(self, hashes: UInt64Array) -> None:
        """Take in those of the next rows."""
        start, self._rows = self._rows, self._rows + len(hashes)
        if self._rows > len(self._grown):
            # The system moves a large array without a copy, so it can grow often, by little.
            self._grown.resize(max(self._rows, len(self._grown) * 9 // 8), refcheck=False)
        self._grown[start : self._rows] = hashes

    def joined(self) -> UInt64Array:
        """All of them, without what the array could still take."""
        self._grown.resize(self._rows, refcheck=False)
        return self._grown
