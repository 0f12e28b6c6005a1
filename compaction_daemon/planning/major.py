"""MAJOR: which files of a partition are rewritten, however old they are, and into how many.

A file is rewritten if it is small, if a tenth of its rows are dead (with a purge: any of them), or if it is not yet
sorted by the columns asked for. These files are packed, oldest first, into groups that are rewritten one at a time;
each group becomes files of about the target size.

Repeated plans end: what a rewrite leaves has no dead rows and is sorted, and files that are merely small are rewritten
only if there are fewer of them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.compaction_daemon.planning.candidates import Candidate, PackedFiles, is_small
from tidelog.compaction_daemon.planning.plan import CLUSTERED_TAG

# The share of dead rows from which on a file is worth a rewrite.
MIN_DEAD_SHARE = 0.1
# The most that one group reads; a larger file is a group by itself. Clustering holds a whole group in memory, where it
# takes several times its size on disk, and far more if values repeat: hence the bound on rows. If another compaction
# commits first, a rebase needs about 90 bytes per row to follow each of them.
MAX_GROUP_BYTES = 512 * 2**20
MAX_GROUP_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class MajorRules:
    """What makes a file worth a rewrite. Files that are sorted by `cluster_by` have `tag` as their CLUSTERED_TAG."""

    target: int
    purge: bool
    cluster_by: tuple[str, ...]
    tag: str

    def reasons(self, file: Candidate) -> list[str]:
        """Why a file should be rewritten even by itself; being small is not such a reason."""
        found = []
        if self.purge and file.dead_rows:
            found.append("has dead rows to purge")
        elif file.dead_rows and (not file.rows or file.dead_rows / file.rows >= MIN_DEAD_SHARE):
            of = f"of its {file.rows}" if file.rows else "of an unknown number of"
            found.append(f"{file.dead_rows} {of} rows are dead")
        if self.cluster_by and (file.add.tags or {}).get(CLUSTERED_TAG) != self.tag:
            found.append(f"not clustered by {', '.join(self.cluster_by)} yet")
        return found


def decide_major(files: Sequence[Candidate], rules: MajorRules) -> Iterator[PackedFiles]:
    """Decide on the files of one partition, given oldest first; each of them is in exactly one decision."""
    wanted: list[Candidate] = []
    idle: list[Candidate] = []
    for file in files:
        (wanted if is_small(file.add, rules.target) or rules.reasons(file) else idle).append(file)
    if idle:
        yield PackedFiles(tuple(idle), refused="large enough, with few or no dead rows")
    for group in _pack(wanted, max(MAX_GROUP_BYTES, 0 if rules.cluster_by else rules.target)):
        outputs = num_outputs(group, rules.target)
        worth = outputs < len(group) or any(map(rules.reasons, group))
        yield PackedFiles(tuple(group), outputs, None if worth else "small, but a rewrite would not leave fewer files")


def num_outputs(group: Sequence[Candidate], target: int) -> int:
    """The number of files of about the target size that the live rows need.

    It is rounded so that, of several outputs, none is small: 1.5 targets are two files of 0.75, 1.4 targets one file.
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
