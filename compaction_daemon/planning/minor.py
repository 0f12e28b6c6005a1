"""MINOR: which small files of a partition become one file.

Small files are packed, in the order of their commits, until the target size is reached. Files whose commits are further
apart than `tidelog.minorSpan` are never mixed, so that each file covers a short time. Large files are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.compaction_daemon.planning.candidates import Candidate, PackedFiles
from tidelog.compaction_daemon.planning.plan import oldest_ms
from tidelog.log.internals import SMALL_SHARE

# How many times its largest file a group must be. A rewrite of a smaller group would mostly repeat the last rewrite:
# with this bound a byte is rewritten about log2(target / file size) times while files keep arriving, not once for every
# file that follows it.
GROWTH = 2.0
# Files with equally many similar rows differ by some bytes; two of them count as twice one.
_TOLERANCE = 0.95


def decide_minor(small: Sequence[Candidate], *, target: int, span_ms: int, growth: float) -> Iterator[PackedFiles]:
    """Decide on the small files of one partition, given oldest first; each of them is in exactly one decision."""
    for group in _pack(small, target, span_ms):
        yield PackedFiles(tuple(group), refused=_refusal(group, target, growth))


def _pack(files: Sequence[Candidate], target: int, span_ms: int) -> Iterator[list[Candidate]]:
    """Runs of neighbours that fit the target and the span."""
    group: list[Candidate] = []
    size = oldest = 0
    for file in files:
        add = file.add
        too_wide = group and add.modification_time - oldest > span_ms
        if group and (size + add.size > target or too_wide):
            yield group
            group, size = [], 0
        oldest = min(oldest, oldest_ms(add)) if group else oldest_ms(add)
        group.append(file)
        size += add.size
    if group:
        yield group


def _refusal(group: Sequence[Candidate], target: int, growth: float) -> str | None:
    """Why the group is not worth a rewrite; None if it is."""
    if len(group) < 2:  # noqa: PLR2004 - one file by itself is compact already
        return "small, but there is no other small file to pack it with"
    sizes = [file.add.size for file in group]
    if sum(sizes) >= min(max(1.0, growth * _TOLERANCE) * max(sizes), target * SMALL_SHARE):
        return None
    return "small, but its group is hardly larger than its largest file"
