"""Rewrite one planned group: its live rows into new files, in order or clustered, compared with what was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.compaction_daemon.planning.plan import (
    CLUSTERED_TAG,
    HILBERT,
    OLDEST_TAG,
    PlannedGroup,
    cluster_tag,
    oldest_ms,
)
from tidelog.compaction_daemon.rewriting.clustered_rows import write_clustered
from tidelog.compaction_daemon.rewriting.digests import SequenceDigest
from tidelog.compaction_daemon.rewriting.inputs import Inputs
from tidelog.compaction_daemon.rewriting.outputs import (
    delete_files,
    fits,
    layouts_of_inputs,
    usual_layouts,
    write_files,
)
from tidelog.compaction_daemon.rewriting.refused_rewrites import refuse
from tidelog.compaction_daemon.rewriting.verification import ClusteredRows, RowsInOrder, verify
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.deletion_vectors import read_dead_rows
from tidelog.log.data.layout import Layout
from tidelog.log.data.writer import DataWriter
from tidelog.log.errors import CompactionGrowthError
from tidelog.log.format import paths
from tidelog.log.format.actions import AddFile
from tidelog.log.format.clustering import CUBE_COLUMNS_TAG, CUBE_ID_TAG, LIQUID, cube_columns
from tidelog.log.format.lineage import LineageGroup, LineageInput, LineageOutput
from tidelog.log.format.schema import physical_name
from tidelog.log.read.read_ahead import SharedThreads
from tidelog.log.storage import while_synced


def rewrite(
    writer: DataWriter,
    schema: pa.Schema,
    group: PlannedGroup,
    now_ms: int,
    version: int | None = None,
    table_clusters_by: Sequence[str] = (),
    threads: SharedThreads | None = None,
) -> MoveGroup:
    """Write the live rows of `group` to new files and return the verified move; nothing is committed.

    `schema` is the table's, and `version` the version that was planned for, if a refusal should name it.
    `table_clusters_by` are the columns that another engine clusters the table by (`clustering_columns`). Whatever the
    size of the group, a few hundred MB are in memory; a group to cluster needs about 25 bytes per row in addition, and
    room for its rows in the folder for temporary files if it is large.

    The written files are durable at the end. They are read back from the store and compared with what was read, and
    their statistics with the values (see `verification`). If anything differs, they are kept, a record below
    `_tidelog/refused/` names them, and CompactionVerificationError is raised. After any other error they are deleted.
    Raises CompactionGrowthError if files in order are more than a tenth larger than the inputs in every layout.
    """
    own = [field for field in schema if field.name not in writer.metadata.partition_columns]
    # Where rows keep their ids, these are columns like the others: copied, and compared with what was written.
    data_schema = pa.schema([*own, *writer.tracked])
    inputs = Inputs(writer.store, group.inputs, data_schema, threads)
    # The plan chose the number of outputs from sizes on disk. Splitting by the size in memory, which is larger, would
    # leave small files that every further compaction would rewrite.
    length = max(1, -(-inputs.expected_rows // max(1, group.outputs)))
    row_map = None
    rows: RowsInOrder | ClusteredRows
    if group.cluster_by:
        clustered = write_clustered(writer, group, inputs, length)
        written, row_map = clustered.written, clustered.row_map
        rows = ClusteredRows(clustered.digest, clustered.hashes, row_map)
    else:
        written, sequence = write_in_order(writer, group, inputs, length)
        rows = RowsInOrder(sequence)
    try:
        stored = [paths.to_storage_path(add.path) for add in written]
        found = while_synced(writer.store, stored, partial(verify, inputs, written, rows))
    except BaseException:
        delete_files(writer, written)
        raise
    if found.differences:
        raise refuse(writer, group, version, written, found)
    outputs = tuple(_stamped(add, group, schema) for add in written)
    if group.cluster_by and group.cluster_by == tuple(table_clusters_by) and _is_on_curve(group):
        outputs = _provided(outputs, group, writer.system.uuid())
    vectors = [add.deletion_vector for add in group.inputs]
    lineage = LineageGroup(
        tuple(
            LineageInput(add.path, vector.unique_id if vector else None, rows)
            for add, vector, rows in zip(group.inputs, vectors, inputs.physical_rows, strict=True)
        ),
        tuple(LineageOutput(add.path, count) for add, count in zip(outputs, found.counts, strict=True)),
    )
    removes = [add.removed(now_ms, data_change=False) for add in group.inputs]
    return MoveGroup(tuple(removes), outputs, lineage, row_map)


def _is_on_curve(group: PlannedGroup) -> bool:
    return group.cluster_order == HILBERT or len(group.cluster_by) == 1


def _provided(outputs: Sequence[AddFile], group: PlannedGroup, cube: str) -> tuple[AddFile, ...]:
    """The outputs as files that are clustered by the table's own columns, for other engines."""
    tags = {CUBE_ID_TAG: cube, CUBE_COLUMNS_TAG: cube_columns(group.cluster_by)}
    return tuple(
        msgspec.structs.replace(add, clustering_provider=LIQUID, tags={**(add.tags or {}), **tags}) for add in outputs
    )


def _stamped(add: AddFile, group: PlannedGroup, schema: pa.Schema) -> AddFile:
    """The output with its tags, and with the time of its newest input, so that it keeps its place in log order."""
    tags: dict[str, str | None] = {OLDEST_TAG: str(min(map(oldest_ms, group.inputs)))}
    if group.cluster_by:
        tags[CLUSTERED_TAG] = cluster_tag(
            tuple(physical_name(schema.field(name)) for name in group.cluster_by), group.cluster_order
        )
    newest = max(entry.modification_time for entry in group.inputs)
    return msgspec.structs.replace(add, modification_time=newest, tags=tags)


def write_in_order(
    writer: DataWriter, group: PlannedGroup, inputs: Inputs, length: int
) -> tuple[list[AddFile], SequenceDigest]:
    """Write the live rows in the first layout that is small enough. Returns the files, and the digest of what was read.

    If no layout is small enough, a purge keeps the last one, and any other rewrite raises a CompactionGrowthError.
    """
    for layouts, is_last in _choices(inputs, length):
        digest = SequenceDigest()
        rows = _digested(inputs, digest)
        written = write_files(writer, dict(group.partition_values), rows, length, layouts)
        if fits(group, written, writer, inputs) or (group.purge and is_last):
            return written, digest
        delete_files(writer, written)
    raise CompactionGrowthError(
        f"{len(group.inputs)} files of {writer.store.url} with {group.size_bytes} bytes would become more than a "
        "tenth larger",
        advice="the files stay as they are",
        path=writer.store.url,
    )


def _choices(inputs: Inputs, length: int) -> Iterator[tuple[Iterable[Layout], bool]]:
    """The layouts to try, one after the other, and whether each is the last."""
    for layout in usual_layouts():
        yield repeat(layout), False
    vectors = [file.deletion_vector for file in inputs.files]
    dead = [BitMap64() if vector is None else read_dead_rows(inputs.store, vector) for vector in vectors]
    yield layouts_of_inputs(inputs.footers, dead, length, inputs.schema), True


def _digested(inputs: Inputs, digest: SequenceDigest) -> Iterator[pa.RecordBatch]:
    for batch in inputs.batches():
        digest.add(batch)
        yield batch
