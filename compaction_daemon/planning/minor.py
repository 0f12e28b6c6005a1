"""MINOR: which small files of a partition become one file.

Small files are packed, in the order of their commits, until the target size is reached. Files whose commits are further
apart than `tidelog.minorSpan` are never mixed, so that each file covers a short time. Large files are never touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tidelog.log.read.debt import SMALL_SHARE

# How many times its largest file a group must be. A rewrite of a smaller group would mostly repeat the last rewrite:
# with this bound a byte is rewritten about log2(target / file size) times while files keep arriving, not once for every
# file that follows it.
GROWTH = 2.0
# Files with equally many similar rows differ by some bytes; two of them count as twice one.
_TOLERANCE = 0.95
# A group's rewrite reads a footer of each input, and its commit has two lines for each.
MAX_GROUP_FILES = 5000


def pack_minor(
    files: range, sizes: Sequence[int], times: Sequence[int], oldest: Sequence[int], *, target: int, span_ms: int
) -> Iterator[range]:
    """Runs of neighbours that fit the target and the span. `files` are numbers in the sequences, oldest first."""
    start, size, since = files.start, 0, math.inf
    for file in files:
        too_large = size + sizes[file] > target or file - start >= MAX_GROUP_FILES
        if file > start and (too_large or times[file] - since > span_ms):
            yield range(start, file)
            start, size, since = file, 0, math.inf
        if oldest[file] < since:  # noqa: PLR1730 - for a million files a call of `min` is what costs most
            since = oldest[file]
        size += sizes[file]
    if files:
        yield range(start, files.stop)


def is_hardly_larger(sizes: Sequence[int], *, target: int, growth: float) -> bool:
    """Whether a group of small files is so close to its largest file that it should wait for more of them."""
    return sum(sizes) < min(max(1.0, growth * _TOLERANCE) * max(sizes), target * SMALL_SHARE)
