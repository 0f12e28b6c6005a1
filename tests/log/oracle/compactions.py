"""The compactions of the histories: which files, into how many, in which order. tidelog's own code rewrites them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.log.support import live_files
from tidelog.compaction_daemon import PlannedGroup
from tidelog.compaction_daemon.rewriting.rewrite import rewrite
from tidelog.log import Table, Transaction
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.format.actions import AddFile


@dataclass(frozen=True)
class Compaction:
    """Rewrites the live files of each partition into one file, or into `pieces`. `files` limits how many it takes.

    The planner would choose files by size; the histories choose them by hand.
    """

    level: str
    files: int | None = None
    pieces: int = 1
    clustered: bool = False

    def stage(self, table: Table) -> Transaction:
        transaction = table.begin()
        groups = [
            rewrite(transaction.writer, transaction.schema, self._planned(inputs), 0) for inputs in self._inputs(table)
        ]
        return transaction.stage_moves(groups, operation_class=OperationClass(self.level))

    def _inputs(self, table: Table) -> list[list[AddFile]]:
        by_partition: dict[str, list[AddFile]] = {}
        for add in live_files(table)[: self.files]:
            by_partition.setdefault(repr(sorted(add.partition_values.items())), []).append(add)
        # Only a MAJOR compaction rewrites a single file.
        return [adds for adds in by_partition.values() if len(adds) > 1 or self.level == "MAJOR"]

    def _planned(self, inputs: list[AddFile]) -> PlannedGroup:
        if not self.clustered:
            return PlannedGroup(inputs[0].partition_values, tuple(inputs), outputs=self.pieces)
        # The newest file first, so that sorting moves even the first rows.
        return PlannedGroup(inputs[0].partition_values, tuple(reversed(inputs)), self.pieces, cluster_by=("v",))
