"""MAJOR: which files of a partition are rewritten, however old they are, and into how many.

A file is rewritten if it is small, if a tenth of its rows are dead (with a purge: any of them), or if it is not yet
clustered by the columns asked for. These files are packed, oldest first, into groups that are rewritten one at a time;
each group becomes files of about the target size.

Repeated plans end: what a rewrite leaves has no dead rows and is clustered, and files that are merely small are
rewritten only if there are fewer of them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.compaction_daemon.planning.minor import MAX_GROUP_FILES

# The most that one group reads; a larger file is a group by itself. Clustering needs about 25 bytes in memory for each
# row, however small it is on disk: hence the bound on rows. If another compaction commits first, a rebase needs about
# 90 bytes per row to follow each of them.
MAX_GROUP_BYTES = 512 * 2**20
MAX_GROUP_ROWS = 20_000_000


def pack_major(files: range, sizes: Sequence[int], *, target: int, clusters: bool) -> Iterator[range]:
    """Runs of files of a bounded size, oldest first. `files` are numbers in `sizes`."""
    limit = max(MAX_GROUP_BYTES, 0 if clusters else target)
    start, size = files.start, 0
    for file in files:
        if file > start and (size + sizes[file] > limit or file - start >= MAX_GROUP_FILES):
            yield range(start, file)
            start, size = file, 0
        size += sizes[file]
    if files:
        yield range(start, files.stop)


def split_by_rows(files: range, rows: Sequence[int]) -> Iterator[range]:
    """The parts of a group that have at most MAX_GROUP_ROWS each, as far as rows are counted."""
    start, total = files.start, 0
    for file in files:
        count = max(0, rows[file])
        if file > start and total + count > MAX_GROUP_ROWS:
            yield range(start, file)
            start, total = file, 0
        total += count
    yield range(start, files.stop)


def num_outputs(live_bytes: float, target: int) -> int:
    """The number of files of about the target size that live rows need.

    It is rounded so that, of several outputs, none is small: 1.5 targets are two files of 0.75, 1.4 targets one file.
    """
    return max(1, int(live_bytes / target + 0.5))
