"""The Hilbert curve: one number for several ranks, such that rows with near numbers are near in every rank.

The transform is John Skilling's ("Programming the Hilbert curve", AIP Conference Proceedings 707, 381, 2004), applied
to many points at once.

Example: with two columns and two bits the curve begins (0,0) (0,1) (1,1) (1,0) (2,0) (3,0) (3,1) (2,1), or the same
with the columns exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.log.arrays import UInt64Array

UInt32Array: TypeAlias = npt.NDArray[np.uint32]


def hilbert_numbers(ranks: Sequence[UInt32Array], bits: int) -> UInt64Array:
    """The place of each point on the curve, from its ranks in each column, which are below 2**bits.

    The number of columns times `bits` is at most 64.
    """
    axes = np.stack([np.asarray(column, dtype=np.uint32) for column in ranks])
    _turn(axes, bits)
    _gray(axes, bits)
    return _interleaved(axes, bits)


def _turn(axes: UInt32Array, bits: int) -> None:
    """Undo the turns and reflections of the curve's parts, from the largest part to the smallest."""
    for bit in range(bits - 1, 0, -1):
        below = np.uint32(2**bit - 1)
        for column in range(len(axes)):
            is_set = _spread(axes[column], bit)
            exchanged = (axes[0] ^ axes[column]) & below & ~is_set
            axes[0] ^= below & is_set
            axes[0] ^= exchanged
            if column:
                axes[column] ^= exchanged


def _gray(axes: UInt32Array, bits: int) -> None:
    """From Gray code to numbers."""
    for column in range(1, len(axes)):
        axes[column] ^= axes[column - 1]
    flips = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        flips ^= np.uint32(2**bit - 1) & _spread(axes[-1], bit)
    axes ^= flips


def _interleaved(axes: UInt32Array, bits: int) -> UInt64Array:
    """The bits of all axes, the highest ones first."""
    found = np.zeros(axes.shape[1], dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for column in range(len(axes)):
            found <<= np.uint64(1)
            found |= (axes[column] >> np.uint32(bit)) & np.uint32(1)
    return found


def _spread(axis: UInt32Array, bit: int) -> UInt32Array:
    """All ones where the bit is set, else zero."""
    return -((axis >> np.uint32(bit)) & np.uint32(1))
