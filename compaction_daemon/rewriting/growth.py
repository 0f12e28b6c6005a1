"""How large the output of a rewrite may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.compaction_daemon.planning.plan import PlannedGroup
from tidelog.log.data.writer import DataWriter
from tidelog.log.format.actions import AddFile
from tidelog.log.format.statistics import num_records

# How much larger than its inputs the output of a rewrite in order may be. Some growth is normal: page headers and
# partition columns. More would make a table larger each time that it is compacted.
MOST_GROWTH = 1.1
# What each output may take in addition, however small its inputs are: the headers of columns that they lack, because
# these were added to the table later.
FILE_BYTES = 512
# What each output beyond the number of inputs may take in addition: a header, a footer and page headers.
SPLIT_BYTES = 4096
# What the id and the commit version of a row may take when rows first move. They stay as large after that.
TRACKED_BYTES = 16


def fits(group: PlannedGroup, written: Sequence[AddFile], writer: DataWriter) -> bool:
    """Whether files are small enough to replace the group."""
    most = group.size_bytes * MOST_GROWTH + FILE_BYTES * len(written)
    most += SPLIT_BYTES * max(0, len(written) - len(group.inputs))
    if writer.tracked:
        most += TRACKED_BYTES * sum(num_records(add.stats) or 0 for add in written)
    return size_of(written) <= most


def size_of(files: Iterable[AddFile]) -> int:
    """The bytes of files on disk."""
    return sum(add.size for add in files)
