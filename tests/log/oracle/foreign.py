"""Commits as delta-spark 4.4.0 writes them, without a recorded class, lineage or anything else of tidelog."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.oracle.model import Address, Row
from tests.log.oracle.view import LiveFile, Reader, View, live_addresses
from tests.log.support import bitmap, vector_file
from tidelog.log.format import deletion_vector, filenames
from tidelog.log.format.actions import (
    Action,
    AddCDCFile,
    AddFile,
    DeletionVectorDescriptor,
    Format,
    Metadata,
    RemoveFile,
    encode_commit,
)
from tidelog.log.storage import Store
from tidelog.log.system import System


class ForeignKind(Enum):
    """Kinds of foreign commits. The value is the name in a history."""

    APPEND = "foreign INSERT k=1"
    COPY_DELETE = "foreign copying DELETE k=3"
    COPY_UPDATE = "foreign copying UPDATE k=1"
    VECTOR_DELETE = "foreign DELETE k=4"
    VECTOR_UPDATE = "foreign UPDATE k=1"
    TRUNCATE = "foreign TRUNCATE"
    OPTIMIZE = "foreign OPTIMIZE"
    SHRINK = "foreign smaller vector"
    RESTORE = "foreign RESTORE"
    ADD_COLUMN = "foreign ADD COLUMN"
    APPEND_ONLY = "foreign append-only"

    @property
    def vectors(self) -> bool:
        """Whether it needs a table with deletion vectors."""
        return self in {ForeignKind.VECTOR_DELETE, ForeignKind.VECTOR_UPDATE, ForeignKind.SHRINK}


@dataclass(frozen=True)
class Site:
    """What a foreign writer sees: the table now and at the start of the history, and where to write."""

    view: View
    initial: View
    reader: Reader
    store: Store
    system: System


@dataclass(frozen=True)
class Foreign:
    kind: ForeignKind

    def commit(self, site: Site) -> bool:
        """Write the next version. Returns False if there is nothing to do."""
        actions = _WRITERS[self.kind](site)
        removes = any(isinstance(action, RemoveFile) and action.data_change for action in actions)
        if not actions or (removes and site.view.configuration.get("delta.appendOnly") == "true"):
            return False
        now_ms = max(site.view.timestamp_ms + 1, site.system.now_ms())
        actions = [
            msgspec.structs.replace(action, deletion_timestamp=now_ms) if isinstance(action, RemoveFile) else action
            for action in actions
        ]
        info = {
            "inCommitTimestamp": now_ms,
            "operation": self.kind.name.removeprefix("COPY_").removeprefix("VECTOR_"),
            "engineInfo": "Another-Engine/1.0",
            # Wrong for most of these, as it often is in practice.
            "isBlindAppend": True,
        }
        content = encode_commit(info, actions)
        site.store.put_if_absent(filenames.commit_path(site.view.version + 1), content)
        return True


_Actions: TypeAlias = list[Action]


def _append(site: Site) -> _Actions:
    return [_write(site, [Row(1, 2, 4001)], {"p": "2"})]


def _copy_delete(site: Site) -> _Actions:
    return _copied(site, 3, lambda _row: None)


def _copy_update(site: Site) -> _Actions:
    return _copied(site, 1, lambda row: row._replace(v=row.v + 5000))


def _copied(site: Site, key: int, image: Callable[[Row], Row | None]) -> _Actions:
    """Rewrite the files that hold the key."""
    written: _Actions = []
    for file, addresses in _holding(site, key):
        values = file.add["partitionValues"]
        rows = [site.reader.row(*address, values) for address in live_addresses(file, site.reader)]
        del addresses
        survivors = [image(row) if row.k == key else row for row in rows]
        written.append(_remove(file))
        kept = [row for row in survivors if row is not None]
        if kept:
            written.append(_write(site, kept, values))
    return written


def _vector_delete(site: Site) -> _Actions:
    return [action for file, addresses in _holding(site, 4) for action in _buried(site, file, addresses)]


def _vector_update(site: Site) -> _Actions:
    written: _Actions = []
    for file, addresses in _holding(site, 1):
        values = file.add["partitionValues"]
        rows = [site.reader.row(*address, values) for address in addresses]
        images = [row._replace(v=row.v + 6000) for row in rows]
        written += [*_buried(site, file, addresses), _write(site, images, values)]
        if site.view.configuration.get("delta.enableChangeDataFeed") == "true":
            written += [
                _changes(site, rows, values, "update_preimage"),
                _changes(site, images, values, "update_postimage"),
            ]
    return written


def _truncate(site: Site) -> _Actions:
    return [_remove(file) for file in site.view.files.values()]


def _optimize(site: Site) -> _Actions:
    """Rewrite the files of each partition into one, without lineage."""
    by_partition: dict[str, list[LiveFile]] = {}
    for file in site.view.files.values():
        by_partition.setdefault(json.dumps(file.add["partitionValues"]), []).append(file)
    written: _Actions = []
    for text, files in by_partition.items():
        values = json.loads(text)
        rows = [site.reader.row(*at, values) for file in files for at in live_addresses(file, site.reader)]
        written += [_remove(file, data_change=False) for file in files]
        if rows:
            written.append(_write(site, rows, values, data_change=False))
    return written


def _shrink(site: Site) -> _Actions:
    """Bring back the first dead row of the first file that has one."""
    file = next((file for file in site.view.files.values() if file.dead), None)
    if file is None:
        return []
    left = file.dead - {min(file.dead)}
    add = msgspec.convert(file.add, AddFile)
    vector = _put_vector(site, left) if left else None
    return [_remove(file), msgspec.structs.replace(add, deletion_vector=vector, data_change=True), _metadata(site.view)]


def _restore(site: Site) -> _Actions:
    wanted = {(path, file.vector): file for path, file in site.initial.files.items()}
    live = {(path, file.vector): file for path, file in site.view.files.items()}
    gone = [_remove(file) for key, file in live.items() if key not in wanted]
    back = [
        msgspec.structs.replace(msgspec.convert(file.add, AddFile), data_change=True)
        for key, file in wanted.items()
        if key not in live
    ]
    # A RESTORE always writes the metadata, changed or not.
    return [*gone, *back, _metadata(site.view)] if gone or back else []


def _add_column(site: Site) -> _Actions:
    schema = json.loads(site.view.schema)
    names = {entry["name"] for entry in schema["fields"]}
    if "foreign" in names:
        return []
    schema["fields"].append({"name": "foreign", "type": "long", "nullable": True, "metadata": {}})
    return [_metadata(site.view, schema_string=json.dumps(schema))]


def _append_only(site: Site) -> _Actions:
    return [_metadata(site.view, configuration={**site.view.configuration, "delta.appendOnly": "true"})]


_WRITERS: dict[ForeignKind, Callable[[Site], _Actions]] = {
    ForeignKind.APPEND: _append,
    ForeignKind.COPY_DELETE: _copy_delete,
    ForeignKind.COPY_UPDATE: _copy_update,
    ForeignKind.VECTOR_DELETE: _vector_delete,
    ForeignKind.VECTOR_UPDATE: _vector_update,
    ForeignKind.TRUNCATE: _truncate,
    ForeignKind.OPTIMIZE: _optimize,
    ForeignKind.SHRINK: _shrink,
    ForeignKind.RESTORE: _restore,
    ForeignKind.ADD_COLUMN: _add_column,
    ForeignKind.APPEND_ONLY: _append_only,
}


def _holding(site: Site, key: int) -> list[tuple[LiveFile, list[Address]]]:
    """The files with live rows of this key, and the addresses of those rows."""
    found = []
    for file in site.view.files.values():
        values = file.add["partitionValues"]
        at = [at for at in live_addresses(file, site.reader) if site.reader.row(*at, values).k == key]
        if at:
            found.append((file, at))
    return found


def _buried(site: Site, file: LiveFile, addresses: Iterable[Address]) -> _Actions:
    """Mark rows of a file dead in its vector, or remove the file if no live row is left."""
    dead = file.dead | {position for _, position in addresses}
    if len(dead) == len(site.reader.rows(file.add["path"])):
        return [_remove(file)]
    add = msgspec.convert(file.add, AddFile)
    stats = json.loads(add.stats or "{}") | {"tightBounds": False}
    vector = _put_vector(site, dead)
    return [
        _remove(file),
        msgspec.structs.replace(add, deletion_vector=vector, data_change=True, stats=json.dumps(stats)),
    ]


def _remove(file: LiveFile, *, data_change: bool = True) -> RemoveFile:
    return msgspec.convert(file.add, AddFile).removed(0, data_change=data_change)


def _write(site: Site, rows: Sequence[Row], values: Mapping[str, str | None], *, data_change: bool = True) -> AddFile:
    path, size = _put_rows(site, rows, f"part-00000-{site.system.uuid()}.parquet")
    columns = {name: [getattr(row, name) for row in rows] for name in ("k", "v")}
    stats = {
        "numRecords": len(rows),
        "minValues": {name: min(column) for name, column in columns.items()},
        "maxValues": {name: max(column) for name, column in columns.items()},
        "nullCount": dict.fromkeys(columns, 0),
    }
    return AddFile(
        path=path,
        partition_values=dict(values) if site.view.partition_columns else {},
        size=size,
        modification_time=site.system.now_ms(),
        data_change=data_change,
        stats=json.dumps(stats),
    )


def _changes(site: Site, rows: Sequence[Row], values: Mapping[str, str | None], change_type: str) -> AddCDCFile:
    name = f"_change_data/cdc-{site.system.uuid()}.parquet"
    path, size = _put_rows(site, rows, name, {"_change_type": pa.array([change_type] * len(rows))})
    return AddCDCFile(path=path, partition_values=dict(values), size=size)


def _put_rows(site: Site, rows: Sequence[Row], path: str, more: Mapping[str, Any] | None = None) -> tuple[str, int]:
    """A data file without partition columns, as Spark writes it."""
    names = [name for name in Row._fields if name not in site.view.partition_columns]
    columns = {name: pa.array([getattr(row, name) for row in rows], pa.int64()) for name in names}
    buffer = io.BytesIO()
    pq.write_table(pa.table({**columns, **(more or {})}), buffer)
    site.store.put_if_absent(path, buffer.getvalue())
    return path, len(buffer.getvalue())


def _put_vector(site: Site, positions: Iterable[int]) -> DeletionVectorDescriptor:
    """Write a vector to the table's root, as delta-spark does."""
    dead = sorted(positions)
    blob = bitmap(dead)
    file_id = uuid.UUID(site.system.uuid())
    site.store.put_if_absent(deletion_vector.file_name(file_id), vector_file(blob))
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=deletion_vector.relative_name("", file_id),
        offset=1,
        size_in_bytes=len(blob),
        cardinality=len(dead),
    )


def _metadata(view: View, **changes: Any) -> Metadata:
    values: dict[str, Any] = {
        "id": view.table_id,
        "format": Format(),
        "schema_string": view.schema,
        "partition_columns": view.partition_columns,
        "configuration": dict(view.configuration),
        **changes,
    }
    return Metadata(**values)
