"""Tables whose files exist in the log only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.compaction_daemon.support import memory_table, put_commit
from tidelog.compaction_daemon import Plan
from tidelog.compaction_daemon.planning.plan import CLUSTERED_TAG, OLDEST_TAG, cluster_tag
from tidelog.log import Table
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor


@dataclass(frozen=True)
class File:
    """A file of the table: its size, its commit time, its partition, and the commit time of its oldest rows.

    `rows` is the count in its statistics, `dead` the number of rows in its deletion vector, `clustered` and `order` how
    its rows are clustered.
    """

    size: int
    at: int
    part: str | None = "a"
    oldest: int | None = None
    rows: int | None = None
    dead: int = 0
    clustered: tuple[str, ...] = ()
    order: str = "hilbert"

    def to_add(self, path: str) -> AddFile:
        tags: dict[str, str | None] = {}
        if self.oldest is not None:
            tags[OLDEST_TAG] = str(self.oldest)
        if self.clustered:
            tags[CLUSTERED_TAG] = cluster_tag(self.clustered, self.order)
        return AddFile(
            path=path,
            partition_values={"part": self.part},
            size=self.size,
            modification_time=self.at,
            data_change=True,
            tags=tags or None,
            stats=None if self.rows is None else f'{{"numRecords": {self.rows}}}',
            deletion_vector=DeletionVectorDescriptor("i", "x" + path, 1, self.dead) if self.dead else None,
        )


def table_of(files: Sequence[File], *, target: int = 1000, span: str = "1 day") -> Table:
    """A table whose file number k has the path `k`, zero-padded."""
    table = memory_table(**{"tidelog.targetFileSize": target, "tidelog.minorSpan": span})
    put_commit(table, *[file.to_add(f"{number:04}") for number, file in enumerate(files)])
    return table


def numbers(found: Plan) -> list[list[int]]:
    """The numbers of the files in each group, in the plan's order."""
    return [[int(add.path) for add in group.inputs] for group in found.groups]
