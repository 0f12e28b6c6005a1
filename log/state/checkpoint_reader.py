"""Reading checkpoints of every kind: classic, multi-part, and V2 (parquet or JSON, with or without sidecars)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.errors import CorruptLogError, UnsupportedFeatureError
from tidelog.log.format import filenames, seal, statistics
from tidelog.log.format.actions import (
    AddFile,
    Commit,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    decode_commit,
    decode_sidecars,
)
from tidelog.log.format.schema import columns_of
from tidelog.log.state import files
from tidelog.log.state.files import FileState
from tidelog.log.state.head import PartialHead, fold
from tidelog.log.state.segment import CheckpointFiles
from tidelog.log.storage import Store

_HEAD_KINDS: dict[str, type[Any]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": SetTransaction,
    "domainMetadata": DomainMetadata,
}
# What a file unpacks to is bounded by its size: so many times (statistics repeat), and this much in any case.
_MAX_PACKING = 1000
_MIN_UNPACKED_BOUND = 2**26
# Spark's checkpoints have a checksum beside each page.
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_VECTOR_FIELDS = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")
_TEXT_MAPS = ("configuration", "options", "tags")


class UnreadableCheckpointError(CorruptLogError):
    """A checkpoint cannot be read; an older one, or the commits, may serve instead."""


def read_partial_head(store: Store, checkpoint: CheckpointFiles) -> PartialHead:
    """The part of a checkpoint that is not files. Raises UnreadableCheckpointError."""
    actions: list[Any] = []
    for name in checkpoint.names:
        if name.endswith(".json"):
            actions += [
                action for action in _json_actions(store, name) if not isinstance(action, (AddFile, RemoveFile))
            ]
            continue
        table = _read_columns(store, f"{filenames.LOG_FOLDER}/{name}", checkpoint.version, list(_HEAD_KINDS))
        for column, kind in _HEAD_KINDS.items():
            actions += [_convert(store, row, kind) for row in _rows(store, table, column)]
    _require_head(store, [type(action) for action in actions])
    return fold(PartialHead(), Commit(version=checkpoint.version, info={}, actions=tuple(actions)), 0)


def read_files(store: Store, checkpoint: CheckpointFiles) -> FileState:
    """The live files and tombstones of a checkpoint. Raises UnreadableCheckpointError."""
    pieces: list[FileState] = []
    sidecars: list[Sidecar] = []
    kinds: list[type[Any]] = []
    for name in checkpoint.names:
        if name.endswith(".json"):
            actions = _json_actions(store, name)
            pieces.append(_from_actions(store, actions))
            sidecars += [action for action in actions if isinstance(action, Sidecar)]
            kinds += map(type, actions)
            continue
        path = f"{filenames.LOG_FOLDER}/{name}"
        table = _read_columns(store, path, checkpoint.version, ["add", "remove", "sidecar", "protocol", "metaData"])
        pieces.append(_from_columns(store, table))
        sidecars += [_convert(store, row, Sidecar) for row in _rows(store, table, "sidecar")]
        kinds += [kind for column, kind in _HEAD_KINDS.items() if _counts(table, column)]
    # A checkpoint without them was cut short, whatever else it holds.
    _require_head(store, kinds)
    try:
        _require_distinct([sidecar.path for sidecar in sidecars])
    except ValueError as error:
        raise _unreadable(store, "its sidecars", error) from error
    pieces.extend(_read_sidecar(store, sidecar, checkpoint.version) for sidecar in sidecars)
    return FileState(
        pa.concat_tables([piece.adds for piece in pieces]), pa.concat_tables([piece.removes for piece in pieces])
    )


def require_schema(store: Store, head: PartialHead) -> None:
    """Notice a damaged schema while there is something to fall back to. Raises UnreadableCheckpointError."""
    try:
        if head.metadata is not None:
            columns_of(head.metadata, store.url)
    except CorruptLogError as error:
        raise _unreadable(store, "its schema", error) from error
    except UnsupportedFeatureError:
        return


def _require_head(store: Store, kinds: Sequence[type[Any]]) -> None:
    missing = {Protocol, Metadata}.difference(kinds)
    if missing:
        names = ", ".join(sorted(kind.__name__.lower() for kind in missing))
        raise _unreadable(store, "its rows", ValueError(f"there is no {names}"))


def _read_sidecar(store: Store, sidecar: Sidecar, version: int) -> FileState:
    """A sidecar's files. It is named by its bare name; some writers give a path below the table."""
    path = f"{filenames.SIDECAR_FOLDER}/{sidecar.path.rsplit('/', 1)[-1]}"
    return _from_columns(store, _read_columns(store, path, version, ["add", "remove"], size=sidecar.size_in_bytes))


def _json_actions(store: Store, name: str) -> list[Any]:
    try:
        content = store.read(f"{filenames.LOG_FOLDER}/{name}")
        return [*decode_commit(0, content).actions, *decode_sidecars(content)]
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(store, name, error) from error


def _from_actions(store: Store, actions: Sequence[Any]) -> FileState:
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    try:
        _require_distinct([action.key for action in adds])
        return FileState(files.add_table(adds), files.remove_table(removes))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _unreadable(store, "its files", error) from error


def _require_distinct(names: Sequence[object]) -> None:
    if len(set(names)) < len(names):
        raise ValueError("a file is named twice")


def _from_columns(store: Store, table: pa.Table) -> FileState:
    try:
        return FileState(
            _unnest(table, "add", files.ADD, ("path", "size", "modificationTime", "dataChange")),
            _unnest(table, "remove", files.REMOVE, ("path", "dataChange")),
        )
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(store, "its columns", error) from error


def _read_columns(store: Store, path: str, version: int, names: Sequence[str], *, size: int | None = None) -> pa.Table:
    """Those of the columns `names` that the file has; of a sealed file only the row groups in which any is not null."""
    try:
        content = store.open_input(path).read_buffer()
        sealed = _require_intact(content, version, size)
        # A fragment reads row groups in parallel and takes an allocator; see `files` for why it is given one.
        fragment = _FORMAT.make_fragment(pa.BufferReader(content))
        _require_plausible(fragment.metadata, len(content))
        present = [name for name in names if name in fragment.physical_schema.names]
        if sealed:
            holding = partial(_holds_any, fragment.metadata, present)
            fragment = fragment.subset(row_group_ids=list(filter(holding, range(fragment.num_row_groups))))
        table = fragment.to_table(columns=present, memory_pool=files.POOL)
        if not sealed:
            # Of what page checksums leave open the decoder does not notice all: texts may be no UTF-8, lists overlap.
            table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(store, path, error) from error
    return table


def _require_intact(content: pa.Buffer, version: int, size: int | None) -> bool:
    """Whether a file is sealed. Raises ValueError where its seal is broken, or its size not the one expected."""
    if size is not None and size != len(content):
        raise ValueError(f"it has {len(content)} bytes instead of {size}")
    intact = seal.is_intact_parquet(memoryview(content), version)
    if intact is False:
        raise ValueError("its checksum differs")
    return intact is True


def _require_plausible(metadata: pq.FileMetaData, size: int) -> None:
    """Refuse a footer that would have the decoder allocate what so small a file cannot hold."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    rows, unpacked = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    # A row is an action, most of them with a path of their own, which takes more than a byte however it is packed.
    if rows != metadata.num_rows or not 0 <= rows <= size:
        raise ValueError(f"its footer counts {metadata.num_rows} rows")
    if not 0 <= unpacked <= _MIN_UNPACKED_BOUND + _MAX_PACKING * size:
        raise ValueError(f"its footer counts {unpacked} bytes")


def _holds_any(metadata: pq.FileMetaData, names: Sequence[str], group: int) -> bool:
    """Whether a row group may hold a value of one of `names`, by its statistics."""
    columns = metadata.row_group(group)
    for index in range(columns.num_columns):
        column = columns.column(index)
        if column.path_in_schema.split(".", 1)[0] in names:
            found = column.statistics
            if found is None or not found.has_null_count or found.null_count < column.num_values:
                return True
    return False


def _counts(table: pa.Table, name: str) -> bool:
    return name in table.column_names and table[name].null_count < table.num_rows


def _rows(store: Store, table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return []
    try:
        return _structs(table, name).drop_null().to_pylist()  # type: ignore[no-any-return]
    except ValueError as error:
        raise _unreadable(store, name, error) from error


def _convert(store: Store, row: Any, kind: type[Any]) -> Any:
    """A row of a checkpoint as an action; Arrow gives a map as a list of pairs."""
    try:
        return msgspec.convert(_without_nulls(row), kind)
    except (ValueError, TypeError) as error:
        raise _unreadable(store, "a row", error) from error


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            values[key] = _without_nulls(value)
        elif key in _TEXT_MAPS and isinstance(value, list):
            values[key] = dict(value)
        elif value is not None:
            values[key] = value
    return values


def _unnest(table: pa.Table, name: str, schema: pa.Schema, required: Sequence[str]) -> pa.Table:
    """The rows of one kind of action, with exactly the columns of `schema`. Raises ValueError where one is none."""
    if name not in table.column_names:
        return schema.empty_table()
    values = _present(_structs(table, name))
    rows = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(chunk) for chunk in values.chunks], pa.schema(list(values.type))
    )
    columns = {field.name: _column(rows, field) for field in schema}
    vectors = columns["deletionVector"].drop_null()
    needed = [columns[column] for column in required]
    needed += [pc.struct_field(vectors, column) for column in _VECTOR_FIELDS] if len(vectors) else []
    if any(values.null_count for values in needed):
        raise ValueError(f"{name} lacks a value")
    if "stats" in columns and columns["stats"].null_count and "stats_parsed" in rows.column_names:
        columns["stats"] = pc.coalesce(columns["stats"], _stats_texts(rows["stats_parsed"]))
    return pa.table(list(columns.values()), schema=schema)


def _structs(table: pa.Table, name: str) -> pa.ChunkedArray:
    if not pt.is_struct(table[name].type):
        raise ValueError(f"{name} is a {table[name].type}")
    return table[name]


def _present(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values that are not null; without a copy where they stand together, as in most writers' checkpoints."""
    if not values.null_count:
        return values
    chunks = []
    for chunk in values.chunks:
        valid = chunk.is_valid()
        first = pc.index(valid, True).as_py()
        count = len(chunk) - chunk.null_count
        run = chunk.slice(first, count) if count else chunk.slice(0, 0)
        chunks.append(run if not run.null_count else chunk.filter(valid))
    return pa.chunked_array(chunks, values.type)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    values = rows[field.name]
    return values if values.type.equals(field.type) else values.cast(field.type)


def _stats_texts(parsed: pa.ChunkedArray) -> pa.ChunkedArray:
    """Statistics that a writer left as columns only, as the JSON texts that the log has elsewhere."""
    texts = [None if row is None else statistics.from_struct(row) for row in parsed.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _unreadable(store: Store, what: str, error: Exception) -> UnreadableCheckpointError:
    return UnreadableCheckpointError(
        f"a checkpoint of {store.url} cannot be read ({what}): {error}",
        advice="delete that checkpoint if the commits before it are still there, or restore it from a backup",
        path=store.url,
    )
