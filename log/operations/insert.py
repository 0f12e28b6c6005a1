"""INSERT: files of new rows become a staged transaction."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile, SetTransaction


def stage_insert(adds: Sequence[AddFile], transactions: Sequence[SetTransaction]) -> Staged:
    """Stage files of new rows, already written and durable, with the progress of applications."""
    return Staged(
        operation="WRITE",
        operation_class=OperationClass.INSERT if adds else OperationClass.NONE,
        adds=tuple(adds),
        transactions=tuple(transactions),
        parameters={"mode": "Append"},
        metrics={
            "numFiles": len(adds),
            "numOutputRows": sum(statistics.num_records(add.stats) or 0 for add in adds),
            "numOutputBytes": sum(add.size for add in adds),
        },
    )
