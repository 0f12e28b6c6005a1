"""Reading checkpoints of every kind: classic, multi-part, and V2 (parquet or JSON, with or without sidecars)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.types as pt

from tidelog.log.errors import CorruptLogError
from tidelog.log.format import filenames, statistics
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
# Days from 1970 to the ends of Python's calendar; the first one is left out, in which a fraction is rounded up.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_TICKS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
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
        table = _read_columns(store, f"{filenames.LOG_FOLDER}/{name}", list(_HEAD_KINDS))
        for column, kind in _HEAD_KINDS.items():
            actions += [_convert(store, row, kind) for row in _rows(table, column)]
    return fold(PartialHead(), Commit(version=checkpoint.version, info={}, actions=tuple(actions)), 0)


def read_files(store: Store, checkpoint: CheckpointFiles) -> FileState:
    """The live files and tombstones of a checkpoint. Raises UnreadableCheckpointError."""
    pieces: list[FileState] = []
    sidecars: list[str] = []
    for name in checkpoint.names:
        if name.endswith(".json"):
            actions = _json_actions(store, name)
            pieces.append(_from_actions(actions))
            sidecars += [action.path for action in actions if isinstance(action, Sidecar)]
            continue
        table = _read_columns(store, f"{filenames.LOG_FOLDER}/{name}", ["add", "remove", "sidecar"])
        pieces.append(_from_columns(store, table))
        sidecars += [row["path"] for row in _rows(table, "sidecar")]
    tables = (_read_columns(store, _sidecar_path(path), ["add", "remove"]) for path in sidecars)
    pieces.extend(_from_columns(store, table) for table in tables)
    return FileState(
        pa.concat_tables([piece.adds for piece in pieces]), pa.concat_tables([piece.removes for piece in pieces])
    )


def _sidecar_path(path: str) -> str:
    """A sidecar is named by its bare name; some writers give a path below the table."""
    return f"{filenames.SIDECAR_FOLDER}/{path.rsplit('/', 1)[-1]}"


def _json_actions(store: Store, name: str) -> list[Any]:
    try:
        content = store.read(f"{filenames.LOG_FOLDER}/{name}")
        return [*decode_commit(0, content).actions, *decode_sidecars(content)]
    except (OSError, msgspec.MsgspecError) as error:
        raise _unreadable(store, name, error) from error


def _from_actions(actions: Sequence[Any]) -> FileState:
    return FileState(
        files.add_table([action for action in actions if isinstance(action, AddFile)]),
        files.remove_table([action for action in actions if isinstance(action, RemoveFile)]),
    )


def _from_columns(store: Store, table: pa.Table) -> FileState:
    try:
        return FileState(_unnest(table, "add", files.ADD), _unnest(table, "remove", files.REMOVE))
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(store, "its columns", error) from error


def _read_columns(store: Store, path: str, names: Sequence[str]) -> pa.Table:
    """Those of the columns `names` that the file has, of the row groups in which any of them is not null."""
    try:
        # A fragment reads row groups in parallel and takes an allocator; see `files` for why it is given one.
        fragment = ds.ParquetFileFormat().make_fragment(store.open_input(path))
        present = [name for name in names if name in fragment.physical_schema.names]
        groups = [index for index in range(fragment.num_row_groups) if _holds_any(fragment.metadata, index, present)]
        return fragment.subset(row_group_ids=groups).to_table(columns=present, memory_pool=files.POOL)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(store, path, error) from error


def _holds_any(metadata: pq.FileMetaData, group: int, names: Sequence[str]) -> bool:
    """Whether a row group may hold a value of one of `names`, by its statistics."""
    columns = metadata.row_group(group)
    for index in range(columns.num_columns):
        column = columns.column(index)
        if column.path_in_schema.split(".", 1)[0] in names:
            found = column.statistics
            if found is None or not found.has_null_count or found.null_count < column.num_values:
                return True
    return False


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    if name not in table.column_names:
        return []
    return table[name].drop_null().to_pylist()  # type: ignore[no-any-return]


def _convert(store: Store, row: dict[str, Any], kind: type[Any]) -> Any:
    """A row of a checkpoint as an action; Arrow gives a map as a list of pairs."""
    try:
        return msgspec.convert(_without_nulls(row), kind)
    except msgspec.ValidationError as error:
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


def _unnest(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """The rows of one kind of action, with exactly the columns of `schema`."""
    if name not in table.column_names:
        return schema.empty_table()
    values = _present(table[name])
    rows = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(chunk) for chunk in values.chunks], pa.schema(list(values.type))
    )
    columns = {field.name: _column(rows, field) for field in schema}
    if "stats" in columns and columns["stats"].null_count and "stats_parsed" in rows.column_names:
        columns["stats"] = pc.coalesce(columns["stats"], _stats_texts(rows["stats_parsed"]))
    return pa.table(list(columns.values()), schema=schema)


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
    rows = itertools.chain.from_iterable(_within_calendar(chunk).to_pylist() for chunk in parsed.chunks)
    texts = [None if row is None else statistics.from_struct(row) for row in rows]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _within_calendar(values: pa.Array) -> pa.Array:
    """The values with the dates and times that Python's calendar does not have, years 1 to 9999, made null."""
    kind = values.type
    if pt.is_struct(kind):
        inner = [_within_calendar(values.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=values.is_null()) if inner else values
    if not (pt.is_date32(kind) or pt.is_timestamp(kind)):
        return values
    if pt.is_timestamp(kind):
        days = pc.divide(values.cast(pa.int64()), _TICKS_A_DAY[kind.unit])
    else:
        days = values.cast(pa.int32())
    inside = pc.and_(pc.greater(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
    return pc.if_else(inside, values, pa.scalar(None, kind))


def _unreadable(store: Store, what: str, error: Exception) -> UnreadableCheckpointError:
    return UnreadableCheckpointError(
        f"a checkpoint of {store.url} cannot be read ({what}): {error}",
        advice="delete that checkpoint if the commits before it are still there, or restore it from a backup",
        path=store.url,
    )
