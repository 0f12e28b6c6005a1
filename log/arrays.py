"""Types of the NumPy arrays that hold row positions, counts and flags."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Int64Array: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""Row positions, file numbers, group numbers or counts."""
BoolArray: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
"""One flag per row."""
UInt64Array: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
"""Hashes, or the words that they are made of."""
