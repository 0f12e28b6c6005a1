"""Write checkpoints in one file: the reconciled state of a version as one parquet file, and the pointer to it.

One row per action, one struct column per kind of action, absent structs null, every field nullable: all readers accept
this shape. The pointer never has `parts`, which would make readers look for a multi-part checkpoint.

The live files of a large partitioned table are grouped by partition, in log order within each. The footer has the
bounds of the partition columns in each row group, as text like a file's statistics. So tidelog reads only the row
groups that a predicate can match.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.log.arrays import Int64Array
from tidelog.log.errors import UnsupportedFeatureError
from tidelog.log.format import filenames, seal, statistics
from tidelog.log.format.actions import Metadata, encode_action
from tidelog.log.format.protocol import has_in_commit_timestamps, may_have_sidecars
from tidelog.log.format.schema import columns_of, parquet_columns, physical_name
from tidelog.log.state import commit_times, files
from tidelog.log.state.checkpoint_reader import BOUNDS_KEY, HEAD_KEY, FilesKnown
from tidelog.log.state.commit_times import CommitTimes
from tidelog.log.state.files import FileState
from tidelog.log.state.head import Head, Totals
from tidelog.log.state.segment import pointed_version
from tidelog.log.storage import Store
from tidelog.log.system import logger

_LOGGER = logger(__name__)

# Small enough that a reader's threads can share a large table's row groups and keep one in memory.
_ROW_GROUP_ROWS = 2**17
# With fewer live files, reading some row groups would not be faster than reading all.
GROUPED_FILES = 2**14
# How many row groups the grouped files take, unless these would be shorter than that: each makes the footer longer.
_GROUPS = 64
_MOST_NUMBERS = 2**40
_TEXT_MAP = pa.map_(pa.string(), pa.string())
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_PROTOCOL_FIELDS = [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXT_MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", _TEXT_MAP),
    ]
)
# With the feature `v2Checkpoint`, a checkpoint with a classic name must hold this action too.
_CHECKPOINT_METADATA = pa.struct([("version", pa.int64())])
_DOMAIN = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])


def write_checkpoint(store: Store, head: Head, state: FileState) -> int:
    """Write the checkpoint of `head`'s version, then the pointer. Returns the number of actions in it.

    The rows of each partition keep the order of `state`, and those of a small table all do. All tombstones in `state`
    are written: the caller has dropped the expired ones. An existing checkpoint holds the same state and is left alone.
    """
    adds, bounds = grouped(state, head.metadata, store.url)
    table = head_table(head, FileState(adds, state.removes))
    head_rows = table.num_rows - state.adds.num_rows - state.removes.num_rows
    # The few rows that are not files get a separate row group, so that a reader can skip what it does not need.
    files_start = head_rows + state.removes.num_rows
    starts = [0, *range(head_rows, files_start, _ROW_GROUP_ROWS)]
    starts += range(files_start, table.num_rows, group_rows(state.adds.num_rows) if bounds else _ROW_GROUP_ROWS)
    facts = {**commit_anchors(store, head), HEAD_KEY: files_known(head, totals_of(state))}
    if bounds:
        facts[BOUNDS_KEY] = msgspec.json.encode([None] * (len(starts) - len(bounds)) + bounds).decode()
    content = parquet_of(table, starts, facts, head.version)
    try:
        store.put_if_absent(filenames.checkpoint_path(head.version), content)
    except FileExistsError:
        return int(table.num_rows)
    point_to(store, head.version, table.num_rows, len(content), state.adds.num_rows)
    return int(table.num_rows)


def point_to(store: Store, version: int, actions: int, size_bytes: int, num_files: int) -> None:
    """Move the pointer to a new checkpoint. It never goes back, for example to a table that was dropped."""
    if (pointed_version(store) or 0) <= version:
        pointer = {"version": version, "size": actions, "sizeInBytes": size_bytes, "numOfAddFiles": num_files}
        store.replace(filenames.LAST_CHECKPOINT, encode_action(pointer))


def parquet_of(table: pa.Table, starts: list[int], facts: dict[str, str], version: int) -> bytes:
    """A sealed parquet file of actions, whose row groups start at these rows, with `facts` in its footer."""
    buffer = io.BytesIO()
    # Paths and statistics rarely repeat, so building dictionaries for them would be wasted work.
    plain = {f"{action}.{column}" for action in ("add", "remove") for column in ("path", "stats")}
    encoded = [name for name in parquet_columns(table.schema) if name not in plain]
    with pq.ParquetWriter(
        buffer, table.schema, compression="snappy", store_schema=False, use_dictionary=encoded
    ) as writer:
        writer.add_key_value_metadata(facts)
        for start, end in pairwise([*starts, table.num_rows]):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
    return seal.seal_parquet(buffer.getvalue(), version, _row_group_ends(buffer))


def commit_anchors(store: Store, head: Head) -> dict[str, str]:
    """What lets a reader look up commit times without a look at every commit; nothing if that is not known."""
    if has_in_commit_timestamps(head.protocol, head.metadata):
        return {}
    try:
        anchors = CommitTimes(store).anchors(head.version)
    except Exception:
        # Without it, only look-ups of times are slower.
        _LOGGER.exception("the checkpoint of version %d of %s gets no commit times", head.version, store.url)
        return {}
    return {commit_times.ANCHORS_KEY: commit_times.anchors_text(anchors)} if anchors else {}


def totals_of(state: FileState) -> Totals:
    """Count the totals of `state`."""
    return Totals(state.adds.num_rows, pc.sum(state.adds["size"]).as_py() or 0)


def _row_group_ends(content: io.BytesIO) -> list[int]:
    """Where each row group of a parquet file ends."""
    metadata = pq.read_metadata(content)
    ends = []
    for number in range(metadata.num_row_groups):
        last = metadata.row_group(number).column(metadata.num_columns - 1)
        start = last.dictionary_page_offset if last.has_dictionary_page else last.data_page_offset
        ends.append(start + last.total_compressed_size)
    return ends


# --- files grouped by partition ---------------------------------------------------------------------------------------


def group_rows(num_files: int) -> int:
    """How many of so many files are in one row group, or in one sidecar."""
    return max(GROUPED_FILES, -(-num_files // _GROUPS))


def grouped(state: FileState, metadata: Metadata, path: str) -> tuple[pa.Table, list[str]]:
    """The live files grouped by partition, and the statistics of the partition values in each row group of them.

    If there are few, or a file's partition value is not known, they are as they were, without statistics.
    """
    if not metadata.partition_columns or state.adds.num_rows <= GROUPED_FILES:
        return state.adds, []
    try:
        schema = columns_of(metadata, path)
    except UnsupportedFeatureError:  # of a column's type
        return state.adds, []
    columns = {}
    for name in metadata.partition_columns:
        field = schema.field(name)
        values, known = state.values.partition(physical_name(field), field.type)
        if not pc.all(known, min_count=0).as_py():
            return state.adds, []
        columns[physical_name(field)] = values
    numbers = _partition_numbers(list(columns.values()))
    partitions, adds = pa.table(columns), state.adds
    if (np.diff(numbers) < 0).any():
        small = numbers.max() <= np.iinfo(np.uint16).max  # such numbers are sorted in a tenth of the time
        order = np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")
        partitions, adds = partitions.take(pa.array(order)), files.rearranged(adds, order, files.POOL)
    length = group_rows(adds.num_rows)
    return adds, [statistics.collect(partitions.slice(start, length)) for start in range(0, adds.num_rows, length)]


def _partition_numbers(columns: list[pa.ChunkedArray]) -> Int64Array:
    """A number for each file, which grows with the values of its partition; null is greater than all others."""
    numbers, span = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        codes = column.combine_chunks().dictionary_encode()
        count = len(codes.dictionary)
        ranks = np.append(np.argsort(pc.sort_indices(codes.dictionary).to_numpy()), count)
        if span * (count + 1) > _MOST_NUMBERS:
            numbers = np.unique(numbers, return_inverse=True)[1]
            span = len(numbers)
        numbers, span = numbers * (count + 1) + ranks[pc.fill_null(codes.indices, count).to_numpy()], span * (count + 1)
    return numbers


def files_known(head: Head, totals: Totals) -> str:
    """What the footer says of the live files, as JSON."""
    return msgspec.json.encode(FilesKnown(totals.num_files, totals.size_bytes, head.partition_folders)).decode()


def head_table(head: Head, state: FileState, more: Mapping[str, pa.Array] | None = None) -> pa.Table:
    """The actions of a checkpoint: what the head has, `more`, and the files."""
    protocol = msgspec.to_builtins(head.protocol)
    fields = _PROTOCOL_FIELDS + [
        (name, pa.list_(pa.string())) for name in ("readerFeatures", "writerFeatures") if name in protocol
    ]
    columns: dict[str, Any] = {
        "protocol": pa.array([protocol], pa.struct(fields)),
        "metaData": pa.array([_metadata_row(head.metadata)], _METADATA),
        "txn": pa.array([msgspec.to_builtins(txn) for txn in head.transactions.values()], _TXN),
        "domainMetadata": pa.array([msgspec.to_builtins(domain) for domain in head.domains.values()], _DOMAIN),
    }
    if not head.domains:
        del columns["domainMetadata"]
    if may_have_sidecars(head.protocol):
        columns["checkpointMetadata"] = pa.array([{"version": head.version}], _CHECKPOINT_METADATA)
    columns |= more or {}
    columns |= {"remove": nested(state.removes), "add": nested(state.adds)}
    return stacked(columns)


def stacked(columns: dict[str, Any]) -> pa.Table:
    """A table with one row per value of any column; the other columns are null in that row."""
    total = sum(len(values) for values in columns.values())
    before = 0
    stacked = {}
    for name, values in columns.items():
        after = total - before - len(values)
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        parts = [pa.nulls(before, values.type), *chunks, pa.nulls(after, values.type)]
        stacked[name] = pa.chunked_array(parts, values.type)
        before += len(values)
    return pa.table(stacked)


def nested(table: pa.Table) -> pa.ChunkedArray:
    """The rows as structs."""
    chunks = [batch.to_struct_array() for batch in table.to_batches()]
    return pa.chunked_array(chunks, pa.struct(list(table.schema)))


def _metadata_row(metadata: Metadata) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(metadata)
    row["configuration"] = list(metadata.configuration.items())
    row["format"] = {"provider": metadata.format.provider, "options": list(metadata.format.options.items())}
    return row
