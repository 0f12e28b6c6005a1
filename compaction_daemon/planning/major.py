"""MAJOR: which files of a partition are written anew, however old they are, and into how many.

A file is taken that is small, that has dead rows (a tenth of them; any, for a purge), or that is not yet sorted by the
columns asked for. What is taken is packed, oldest first, into groups that are rewritten in one go; each becomes files
of about the target size.

Plan after plan comes to an end: what a rewrite leaves has no dead rows and is sorted, and small files alone are
rewritten only where fewer files come of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.compaction_daemon.planning.candidates import Candidate, PackedFiles, is_small
from tidelog.compaction_daemon.planning.plan import CLUSTERED_TAG

# The share of dead rows from which on a file is worth a rewrite for them.
MIN_DEAD_SHARE = 0.1
# What a group reads at most; a file that is larger is a group of its own. A group that is clustered is held in memory
# whole, where it takes several times what its files take on disk, and far more where rows repeat themselves: hence rows
# are bounded as well. Where it meets another compaction, about 90 bytes a row are needed to tell where each row went.
MAX_GROUP_BYTES = 512 * 2**20
MAX_GROUP_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class MajorRules:
    """What makes a file worth a rewrite. `tag` is the CLUSTERED_TAG of files that are sorted by `cluster_by`."""

    target: int
    purge: bool
    cluster_by: tuple[str, ...]
    tag: str

    def reasons(self, file: Candidate) -> list[str]:
        """Why a file should be written anew, whatever lies beside it; being small is no such reason."""
        found = []
        if self.purge and file.dead_rows:
            found.append("has dead rows to purge")
        elif file.dead_rows and (not file.rows or file.dead_rows / file.rows >= MIN_DEAD_SHARE):
            found.append(f"{file.dead_rows} of its {file.rows or 'unknown number of'} rows are dead")
        if self.cluster_by and (file.add.tags or {}).get(CLUSTERED_TAG) != self.tag:
            found.append(f"not clustered by {', '.join(self.cluster_by)} yet")
        return found


def decide_major(files: Sequence[Candidate], rules: MajorRules) -> Iterator[PackedFiles]:
    """Decisions on files of one partition, oldest first; together they hold each of them once."""
    wanted: list[Candidate] = []
    idle: list[Candidate] = []
    for file in files:
        (wanted if is_small(file.add, rules.target) or rules.reasons(file) else idle).append(file)
    if idle:
        yield PackedFiles(tuple(idle), refused="large enough, and few of its rows are dead, if any")
    for group in _pack(wanted, max(MAX_GROUP_BYTES, 0 if rules.cluster_by else rules.target)):
        outputs = num_outputs(group, rules.target)
        worth = outputs < len(group) or any(map(rules.reasons, group))
        yield PackedFiles(tuple(group), outputs, None if worth else "small, but no fewer files would come of it")


def num_outputs(group: Sequence[Candidate], target: int) -> int:
    """How many files of about the target size the live rows make.

    Rounded, so that no file is small where there are several: 1.5 targets are two files of 0.75, 1.4 targets one.
    """
    return max(1, int(sum(file.live_bytes for file in group) / target + 0.5))


def _pack(files: Sequence[Candidate], limit: int) -> Iterator[list[Candidate]]:
    group: list[Candidate] = []
    size = rows = 0
    for file in files:
        rows += file.rows or 0
        if group and (size + file.add.size > limit or rows > MAX_GROUP_ROWS):
            yield group
            group, size, rows = [], 0, file.rows or 0
        group.append(file)
        size += file.add.size
    if group:
        yield group
