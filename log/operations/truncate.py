"""Stage TRUNCATE: delete all rows that are live in its scope when it commits."""

from __future__ import annotations

import msgspec

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import Staged
from tidelog.log.data.writer import DataWriter
from tidelog.log.format import statistics
from tidelog.log.format.actions import AddFile
from tidelog.log.predicate import at_time
from tidelog.log.pruning.partition_scope import in_scope, partition_scope
from tidelog.log.state import files
from tidelog.log.state.loader import LogState


def stage_truncate(state: LogState, writer: DataWriter, where: str | None) -> Staged | None:
    """Stage deleting every row of the scope; None if there are no rows."""
    metadata, path = writer.metadata, writer.store.url
    where = at_time(where, writer.system.now_ms)
    scope = partition_scope(where, metadata, path)
    gone = in_scope(state.files().values, scope, metadata, path)
    if not gone.num_rows:
        return None
    return Staged(
        operation="TRUNCATE",
        operation_class=OperationClass.OVERWRITE,
        replaces=scope,
        parameters={} if where is None else {"predicate": msgspec.json.encode([where]).decode()},
        metrics={"numRemovedFiles": gone.num_rows, "numDeletedRows": _live_rows(files.to_adds(gone))},
    )


def _live_rows(adds: list[AddFile]) -> int:
    dead = sum(add.deletion_vector.cardinality for add in adds if add.deletion_vector)
    return sum(statistics.num_records(add.stats) or 0 for add in adds) - dead
