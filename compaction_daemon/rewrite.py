"""Rewriting one group: its live rows, in order, into new files; and the check that no row was lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tidelog.compaction_daemon.planner import OLDEST_TAG, PlannedGroup, oldest_ms
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.datafile import DataFile, physical_rows, read_batches
from tidelog.log.errors import CompactionVerificationError
from tidelog.log.format.actions import AddFile
from tidelog.log.format.lineage import LineageGroup, LineageInput, LineageOutput
from tidelog.log.storage import Store
from tidelog.log.write import DataWriter


def rewrite(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, now_ms: int) -> MoveGroup:
    """Write the live rows of `group` and return the move, verified; nothing is committed here.

    `schema` is the table's. Raises CompactionVerificationError where the written files do not hold as many rows as
    are live in the inputs, by their footers and deletion vectors.
    """
    data_schema = pa.schema([field for field in schema if field.name not in writer.metadata.partition_columns])
    files = [DataFile.of(add) for add in group.inputs]
    physical = [physical_rows(writer.store, file) for file in files]
    batches = [batch for file in files for batch in read_batches(writer.store, file, data_schema)]
    rows = pa.Table.from_batches(batches, schema=data_schema)
    # The plan has bounded the group by its size on disk; splitting it again by its size in memory, which is larger,
    # would leave small files behind for the next compaction, for ever.
    written = [writer.write_file(rows, dict(group.partition_values), data_change=False)] if rows.num_rows else []
    _verify(writer.store, group, physical, written)
    outputs = tuple(_stamped(add, group.inputs) for add in written)
    lineage = LineageGroup(
        tuple(LineageInput(add.path, add.key[1], count) for add, count in zip(group.inputs, physical, strict=True)),
        tuple(LineageOutput(add.path, physical_rows(writer.store, DataFile.of(add))) for add in outputs),
    )
    return MoveGroup(tuple(add.removed(now_ms, data_change=False) for add in group.inputs), outputs, lineage)


def _verify(store: Store, group: PlannedGroup, physical: Sequence[int], outputs: Sequence[AddFile]) -> None:
    """The rows that the outputs' footers count must be the inputs' physical rows less their dead ones."""
    dead = sum(add.deletion_vector.cardinality for add in group.inputs if add.deletion_vector)
    expected = sum(physical) - dead
    found = sum(physical_rows(store, DataFile.of(add)) for add in outputs)
    if found != expected:
        raise CompactionVerificationError(
            f"a compaction of {len(group.inputs)} files of {store.url} wrote {found} rows where {expected} are live",
            advice="nothing was committed and no row is lost; keep the written files and report this",
            path=store.url,
        )


def _stamped(add: AddFile, inputs: Sequence[AddFile]) -> AddFile:
    """The output, as old as its newest rows, so that it keeps its place in time among the other files."""
    return msgspec.structs.replace(
        add,
        modification_time=max(entry.modification_time for entry in inputs),
        tags={OLDEST_TAG: str(min(map(oldest_ms, inputs)))},
    )
