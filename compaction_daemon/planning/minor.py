"""MINOR: which small files of a partition become one.

Small files are packed, in the order of their commits, until the target size is reached; files of commits further apart
than `tidelog.minorSpan` are never mixed, so that a file stays narrow in time. Large files are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.compaction_daemon.planning.candidates import Candidate, PackedFiles
from tidelog.compaction_daemon.planning.plan import oldest_ms
from tidelog.log.internals import SMALL_SHARE

# A group without this much growth would rewrite mostly what the last one wrote: while files keep arriving, each byte
# is then rewritten about log2(target / file size) times, not once for every file that follows it.
GROWTH = 2.0
# How much less than that will do.
_ABOUT = 0.95


def decide_minor(small: Sequence[Candidate], *, target: int, span_ms: int, growth: float) -> Iterator[PackedFiles]:
    """Decisions on the small files of one partition, oldest first; together they hold each of them once."""
    for group in _pack(small, target, span_ms):
        yield PackedFiles(tuple(group), refused=_refusal(group, target, growth))


def _pack(members: Sequence[Candidate], target: int, span_ms: int) -> Iterator[list[Candidate]]:
    """Runs of neighbours that fit the target and the span."""
    group: list[Candidate] = []
    size = oldest = 0
    for file in members:
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
    """Why the group is not worth a rewrite; it is with several files and enough new bytes beside its largest one."""
    if len(group) < 2:  # noqa: PLR2004 - one file alone is compacted already
        return "small, but no small file near it in time fits beside it"
    sizes = [file.add.size for file in group]
    # Equally many rows of one kind make files of sizes that differ by some bytes: two of them are twice one.
    if sum(sizes) >= min(max(1.0, growth * _ABOUT) * max(sizes), target * SMALL_SHARE):
        return None
    return "small, but its group is hardly larger than its largest file: a rewrite waits for more"
