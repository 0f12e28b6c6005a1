"""Rewrite one planned group: its live rows, in order or sorted, into new files, with a check that none was lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tidelog.compaction_daemon.planning.plan import CLUSTERED_TAG, OLDEST_TAG, PlannedGroup, cluster_tag, oldest_ms
from tidelog.compaction_daemon.rewriting.clustering import Clustered, cluster, require_bijection
from tidelog.compaction_daemon.rewriting.layouts import clustered_layouts, layouts
from tidelog.log.errors import CompactionGrowthError, CompactionVerificationError
from tidelog.log.internals import (
    AddFile,
    DataFile,
    DataWriter,
    Layout,
    LineageGroup,
    LineageInput,
    LineageOutput,
    MoveGroup,
    Store,
    paths,
    physical_name,
    physical_rows,
    read_batches,
    read_dead_rows,
    read_footer,
)

# How much larger than its inputs the output of a rewrite in order may be. Some growth is normal: page headers and
# partition columns. More would make a table larger each time that it is compacted.
MOST_GROWTH = 1.1
# What each output beyond the number of inputs may take in addition: a header, a footer and page headers.
SPLIT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Input:
    """A file of the group with its footer."""

    add: AddFile
    footer: pq.FileMetaData

    @property
    def rows(self) -> int:
        """The rows in the footer, dead ones included."""
        return int(self.footer.num_rows)

    @property
    def live(self) -> int:
        return self.rows - (self.add.deletion_vector.cardinality if self.add.deletion_vector else 0)


def rewrite(writer: DataWriter, schema: pa.Schema, group: PlannedGroup, now_ms: int) -> MoveGroup:
    """Write the live rows of `group` to new files and return the verified move; nothing is committed.

    `schema` is the table's. In order, about one output file is held in memory; a group to cluster is held whole. Raises
    CompactionGrowthError if files in order are more than a tenth larger than the inputs in every layout, and
    CompactionVerificationError if the footers of the written files do not count as many rows as are live in the inputs
    (by their footers and deletion vectors), or if the row map does not map each live row exactly once.
    """
    data_schema = pa.schema([field for field in schema if field.name not in writer.metadata.partition_columns])
    inputs = [_Input(add, read_footer(writer.store, DataFile.of(add))) for add in group.inputs]
    length = max(1, -(-sum(entry.live for entry in inputs) // max(1, group.outputs)))
    row_map = None
    # The plan chose the number of outputs from sizes on disk. Splitting by the size in memory, which is larger, would
    # leave small files that every further compaction would rewrite.
    if group.cluster_by:
        clustered = cluster(writer.store, group.inputs, data_schema, group.cluster_by, length)
        row_map = clustered.row_map
        written = _write_clustered(writer, group, inputs, clustered)
    else:
        written = _write_in_order(writer, group, inputs, data_schema, length)
    counts = [physical_rows(writer.store, DataFile.of(add)) for add in written]
    _require_all_rows(writer.store, inputs, counts)
    if row_map is not None:
        require_bijection(writer.store, group.inputs, [entry.rows for entry in inputs], counts, row_map)
    outputs = tuple(_stamped(add, group, schema) for add in written)
    lineage = LineageGroup(
        tuple(LineageInput(entry.add.path, entry.add.key[1], entry.rows) for entry in inputs),
        tuple(LineageOutput(add.path, count) for add, count in zip(outputs, counts, strict=True)),
    )
    removes = tuple(add.removed(now_ms, data_change=False) for add in group.inputs)
    return MoveGroup(removes, outputs, lineage, row_map)


def _pieces(batches: Iterable[pa.RecordBatch], schema: pa.Schema, length: int) -> Iterator[pa.Table]:
    """The rows in tables of `length` rows, of which the last one may be shorter; one is held at a time."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        rest = batch
        while rows + rest.num_rows >= length:
            yield pa.Table.from_batches([*held, rest.slice(0, length - rows)], schema=schema)
            rest = rest.slice(length - rows)
            held, rows = [], 0
        if rest.num_rows:
            held.append(rest)
            rows += rest.num_rows
    if held:
        yield pa.Table.from_batches(held, schema=schema)


def _write_in_order(
    writer: DataWriter, group: PlannedGroup, inputs: Sequence[_Input], schema: pa.Schema, length: int
) -> list[AddFile]:
    """Write the live rows in the first layout that is small enough."""
    store = writer.store
    # The rows of a file without live rows would be read only to be discarded.
    live = [entry for entry in inputs if entry.live]
    vectors = [entry.add.deletion_vector for entry in live]
    dead = [BitMap64() if vector is None else read_dead_rows(store, vector) for vector in vectors]
    for choice in layouts([entry.footer for entry in live], dead, length):
        batches = (batch for entry in live for batch in read_batches(store, DataFile.of(entry.add), schema))
        # Should there be other pieces than layouts, the check of the row counts refuses the outcome.
        pieces = zip(_pieces(batches, schema, length), choice, strict=False)
        written = _write(writer, pieces, dict(group.partition_values))
        if _size(written) <= _most(group, written):
            return written
        _delete(writer, written)
    raise CompactionGrowthError(
        f"{len(inputs)} files of {store.url} with {group.size_bytes} bytes would become more than a tenth larger",
        advice="nothing was committed; the files stay as they are",
        path=store.url,
    )


def _write_clustered(
    writer: DataWriter, group: PlannedGroup, inputs: Sequence[_Input], clustered: Clustered
) -> list[AddFile]:
    """Write the sorted rows in the first layout that is small enough, else in the smallest one.

    Sorting can part equal values, so it may cost space in any layout.
    """
    smallest: list[AddFile] = []
    for layout in clustered_layouts([entry.footer for entry in inputs]):
        try:
            written = _write(writer, zip(clustered.pieces(), repeat(layout)), dict(group.partition_values))
        except BaseException:
            _delete(writer, smallest)
            raise
        larger = written
        if not smallest or _size(written) < _size(smallest):
            smallest, larger = written, smallest
        _delete(writer, larger)
        if _size(smallest) <= _most(group, smallest):
            break
    return smallest


def _most(group: PlannedGroup, written: Sequence[AddFile]) -> float:
    """The most bytes that the files which replace a group may have."""
    return group.size_bytes * MOST_GROWTH + SPLIT_BYTES * max(0, len(written) - len(group.inputs))


def _size(files: Iterable[AddFile]) -> int:
    return sum(add.size for add in files)


def _write(
    writer: DataWriter, pieces: Iterable[tuple[pa.Table, Layout]], values: dict[str, str | None]
) -> list[AddFile]:
    """Write one file per piece; if one fails, the written ones are deleted."""
    written: list[AddFile] = []
    try:
        for rows, layout in pieces:
            written.append(writer.write_file(rows, values, data_change=False, layout=layout))
    except BaseException:
        _delete(writer, written)
        raise
    return written


def _delete(writer: DataWriter, written: Iterable[AddFile]) -> None:
    for add in written:
        writer.store.delete(paths.to_storage_path(add.path))


def _require_all_rows(store: Store, inputs: Sequence[_Input], counts: Sequence[int]) -> None:
    """Raise CompactionVerificationError unless the outputs have as many rows as are live in the inputs."""
    expected = sum(entry.live for entry in inputs)
    found = sum(counts)
    if found != expected:
        raise CompactionVerificationError(
            f"a compaction of {len(inputs)} files of {store.url} wrote {found} rows, but {expected} are live",
            advice="nothing was committed and no row is lost; keep the written files and report this as a bug",
            path=store.url,
        )


def _stamped(add: AddFile, group: PlannedGroup, schema: pa.Schema) -> AddFile:
    """The output with its tags, and with the time of its newest input, so that it keeps its place in log order."""
    tags: dict[str, str | None] = {OLDEST_TAG: str(min(map(oldest_ms, group.inputs)))}
    if group.cluster_by:
        tags[CLUSTERED_TAG] = cluster_tag(tuple(physical_name(schema.field(name)) for name in group.cluster_by))
    newest = max(entry.modification_time for entry in group.inputs)
    return msgspec.structs.replace(add, modification_time=newest, tags=tags)
