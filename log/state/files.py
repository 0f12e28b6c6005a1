"""The live files and the tombstones of a version, as Arrow columns named as in a checkpoint.

A logical file is a path with its deletion vector's id; its newest add or remove wins. Rows stand in log order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.format.actions import AddFile, Commit, FileKey, RemoveFile

_TEXT_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXT_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXT_MAP),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)
# A checkpoint's remove has neither stats nor tags (protocol, "Checkpoint Schema").
REMOVE = pa.schema(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXT_MAP),
        ("size", pa.int64()),
        ("deletionVector", DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)

T = TypeVar("T", AddFile, RemoveFile)

# Past this many chunks every scan pays for each of them, so the columns are copied into one piece.
_MAX_CHUNKS = 256


@dataclass(frozen=True, slots=True)
class FileState:
    """`adds` are the live files (schema ADD), `removes` the tombstones (schema REMOVE)."""

    adds: pa.Table
    removes: pa.Table


EMPTY = FileState(ADD.empty_table(), REMOVE.empty_table())


def apply(state: FileState, commits: Iterable[Commit]) -> FileState:
    """The state after `commits`, oldest first."""
    newest: dict[FileKey, AddFile | RemoveFile] = {}
    for commit in commits:
        # Within one commit the order of lines means nothing and no logical file is in both.
        for action in commit.actions:
            if isinstance(action, (AddFile, RemoveFile)):
                newest.pop(action.key, None)
                newest[action.key] = action
    if not newest:
        return state
    adds = [action for action in newest.values() if isinstance(action, AddFile)]
    removes = [action for action in newest.values() if isinstance(action, RemoveFile)]
    return FileState(
        _append(_without(state.adds, newest), to_table(adds, ADD)),
        _append(_without(state.removes, newest), to_table(removes, REMOVE)),
    )


def to_table(actions: Sequence[AddFile | RemoveFile], schema: pa.Schema) -> pa.Table:
    """The actions as a table of the schema ADD or REMOVE."""
    rows = [_row(action, schema.names) for action in actions]
    return pa.Table.from_pylist(rows, schema=schema)


def to_adds(table: pa.Table) -> list[AddFile]:
    """The rows of a table of the schema ADD, one value each; for the few files that a caller works on."""
    return [_from_row(row, AddFile) for row in table.to_pylist()]


def to_removes(table: pa.Table) -> list[RemoveFile]:
    """The rows of a table of the schema REMOVE, one value each."""
    return [_from_row(row, RemoveFile) for row in table.to_pylist()]


def _row(action: AddFile | RemoveFile, names: Sequence[str]) -> dict[str, Any]:
    values = msgspec.to_builtins(action)
    row = {name: values.get(name) for name in names}
    for name in ("partitionValues", "tags"):
        if row.get(name) is not None:
            row[name] = list(row[name].items())
    return row


def _from_row(row: dict[str, Any], kind: type[T]) -> T:
    values = {name: value for name, value in row.items() if value is not None}
    for name in ("partitionValues", "tags"):
        if name in values:
            values[name] = dict(values[name])
    if "partitionValues" not in values and kind is AddFile:
        values["partitionValues"] = {}
    return msgspec.convert(values, kind)


def _without(table: pa.Table, keys: Iterable[FileKey]) -> pa.Table:
    """The rows whose logical file is not among `keys`."""
    wanted = set(keys)
    paths = pa.array(sorted({path for path, _ in wanted}), pa.string())
    hits = pc.indices_nonzero(pc.is_in(table["path"], value_set=paths))
    if len(hits) == 0:
        return table
    candidates = table.select(["path", "deletionVector"]).take(hits).to_pylist()
    dead = [position for position, row in zip(hits.to_pylist(), candidates, strict=True) if _key(row) in wanted]
    if not dead:
        return table
    keep = pc.invert(pc.is_in(pa.array(range(table.num_rows), pa.int64()), value_set=pa.array(dead, pa.int64())))
    return table.filter(keep)


def _key(row: dict[str, Any]) -> FileKey:
    vector = row["deletionVector"]
    if vector is None:
        return row["path"], None
    base = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return row["path"], base if vector["offset"] is None else f"{base}@{vector['offset']}"


def _append(table: pa.Table, more: pa.Table) -> pa.Table:
    if more.num_rows == 0:
        return table
    joined = pa.concat_tables([table, more])
    return joined.combine_chunks() if joined["path"].num_chunks > _MAX_CHUNKS else joined


def drop_expired_tombstones(state: FileState, before_ms: int) -> FileState:
    """The state without the tombstones of files that were removed before `before_ms`."""
    age = pc.fill_null(state.removes["deletionTimestamp"], 0)
    return FileState(state.adds, state.removes.filter(pc.greater_equal(age, before_ms)))
