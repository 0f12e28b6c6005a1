"""The small in-memory tables that the fuzzer damages, with every kind of checkpoint, deletion vector and hint."""

from __future__ import annotations

import io
import itertools
import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.state.foreign_checkpoints import json_lines, split
from tests.log.support import (
    START_MS,
    Clock,
    bitmap,
    live_files,
    memory_store,
    new_table,
    put_foreign,
    remove,
    vector_file,
)
from tidelog.log import Table
from tidelog.log.format import filenames
from tidelog.log.format.actions import AddFile, DeletionVectorDescriptor, DomainMetadata, Protocol, SetTransaction
from tidelog.log.state import checkpoint_writer
from tidelog.log.state.loader import load
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("p", pa.string())])
LOG = filenames.LOG_FOLDER
# The Z85 text of 16 bytes, and the name of the vector file whose UUID has these bytes.
_VECTOR_TEXT, _VECTOR_NAME = "vBn[lx{q8@P<9BNH/isA", "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
_INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"  # rows 3, 4, 7, 11, 18 and 29
# The columns of a checkpoint that are never null in these tables or that the rows depend on.
_WRITTEN = [
    *("protocol", "metaData", "txn", "domainMetadata"),
    *(f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime", "dataChange")),
    *("add.deletionVector", "remove.path", "remove.deletionTimestamp", "remove.dataChange", "remove.deletionVector"),
]
_CHECKPOINT_ID = "80a083e8-7026-4e79-81be-64bd76c43a11"
AT = 4  # the version of a checkpoint


class _Seeded(Clock):
    """Gives every build the same names and times, so that a case can be repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    def uuid(self) -> str:
        return str(uuid.UUID(int=next(self._numbers) << 64))


@dataclass(frozen=True)
class Damageable:
    """A table's files by path."""

    name: str
    files: dict[str, bytes]
    # Whether all commits from version 0 on exist, so that a checkpoint is only a shortcut.
    complete: bool
    # Whether tidelog wrote its checkpoints and checksums, and so sealed them.
    sealed: bool


def build() -> list[Damageable]:
    """All tables, with the same bytes at each call."""
    own = _own_table()
    foreign = _foreign_table()
    tables = [
        _freeze("sealed", own, sealed=True),
        _freeze("sealed, commits cleaned up", own, sealed=True, without=range(AT)),
        _freeze("commits only", foreign),
    ]
    makers: dict[str, Callable[[Store], None]] = {
        "in parts": _put_parts,
        "v2 parquet": lambda store: _put_v2(store, as_json=False),
        "v2 json": lambda store: _put_v2(store, as_json=True),
    }
    for name, put in makers.items():
        made = _copy(foreign)
        put(made)
        tables += [_freeze(name, made), _freeze(f"{name}, commits cleaned up", made, without=range(AT))]
    tables.append(_freeze("mapped columns", _mapped_table()))
    return tables


def store_of(files: dict[str, bytes], url: str = "memory://fuzz") -> MemoryStore:
    """A store with exactly these files, which replaces an earlier store with the same URL."""
    store = MemoryStore(url)
    store._files.clear()
    # Modification times increase with the names, as they do for commits.
    store._files.update({path: (files[path], START_MS + place) for place, path in enumerate(sorted(files))})
    return store


def _freeze(name: str, store: MemoryStore, *, sealed: bool = False, without: Iterable[int] = ()) -> Damageable:
    gone = {make(version) for version in without for make in (filenames.commit_path, filenames.checksum_path)}
    files = {path: entry[0] for path, entry in store._files.items() if path not in gone}
    return Damageable(name, files, complete=not gone, sealed=sealed)


def _copy(store: MemoryStore) -> MemoryStore:
    return store_of({path: entry[0] for path, entry in store._files.items()}, f"memory://{uuid.uuid4()}")


def _rows(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"n": numbers, "s": [f"s{n}" for n in numbers], "p": [f"p{first % 4}"] * count})


def _own_table() -> MemoryStore:
    """Commits, a checkpoint and a checksum for each version, all written by tidelog; vectors in files."""
    clock = _Seeded()
    table = new_table(memory_store(clock), SCHEMA, partition_by=["p"], system=clock)
    for number in range(2):
        table.insert(_rows(number * 10, 10), idempotency_key=("app", number))
    put_foreign(table, DomainMetadata(domain="d", configuration="c", removed=False))
    _kill(table, [0, 3], prefix="ab")
    table.refresh().checkpoint()
    table.insert(_rows(100, 4))
    return _memory(table)


def _foreign_table() -> MemoryStore:
    """Commits as other writers leave them, without checksums; inline and absolute vectors."""
    clock = _Seeded()
    table = new_table(
        memory_store(clock),
        SCHEMA,
        properties={"delta.enableInCommitTimestamps": False},
        system=clock,
    )
    table.insert(_rows(0, 40))
    _replace(table, _vector("i", _INLINE, None, 44, 6))
    put_foreign(table, DomainMetadata(domain="d", configuration="c", removed=False))
    put_foreign(table, SetTransaction(app_id="app", version=7))
    table.refresh().insert(_rows(70, 10))
    _kill(table, [2, 9], kind="p")
    store = _memory(table)
    for path in [path for path in store._files if path.endswith(".crc")]:
        store.delete(path)
    return store


def _mapped_table() -> MemoryStore:
    """Columns with other names in the files; protocol (2, 5), one commit rewritten by hand."""
    clock = _Seeded()
    table = new_table(
        memory_store(clock),
        pa.schema([("c1", pa.int64()), ("c2", pa.struct([("x", pa.string())]))]),
        properties={"delta.enableInCommitTimestamps": False, "delta.enableDeletionVectors": False},
        system=clock,
    )
    table.insert([{"c1": n, "c2": {"x": str(n)} if n % 3 else None} for n in range(8)])
    old = load(table.store).head.metadata
    fields = json.loads(old.schema_string)["fields"]
    for number, field in enumerate([*fields, *fields[1]["type"]["fields"]], start=1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
        field["name"] = f"logical {field['name']}"
    schema_string = json.dumps({"type": "struct", "fields": fields})
    configuration = {**old.configuration, "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    changed = msgspec.structs.replace(old, schema_string=schema_string, configuration=configuration)
    put_foreign(table, changed, Protocol(min_reader_version=2, min_writer_version=5))
    return _memory(table)


# --- deletion vectors ------------------------------------------------------------------------------------------------


def _kill(table: Table, positions: list[int], *, prefix: str = "", kind: str = "u") -> None:
    """Give the newest data file a vector, stored as the second of two vectors in its file."""
    other, blob = bitmap([5]), bitmap(positions)
    path = f"{prefix}/{_VECTOR_NAME}" if prefix else _VECTOR_NAME
    table.store.put_if_absent(path, vector_file(other, blob))
    text = path if kind == "p" else prefix + _VECTOR_TEXT
    _replace(table, _vector(kind, text, 1 + len(other) + 8, len(blob), len(positions)))


def _vector(kind: str, text: str, offset: int | None, size: int, cardinality: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=kind, path_or_inline_dv=text, offset=offset, size_in_bytes=size, cardinality=cardinality
    )


def _replace(table: Table, vector: DeletionVectorDescriptor) -> None:
    old: AddFile = live_files(table.refresh())[-1]
    put_foreign(table, remove(old), msgspec.structs.replace(old, deletion_vector=vector))
    table.refresh()


def _memory(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


# --- checkpoints of other writers ------------------------------------------------------------------------------------


def _parquet(rows: pa.Table) -> bytes:
    """Parquet as Spark writes it, with page checksums."""
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, write_page_checksum=True, store_schema=False)
    return buffer.getvalue()


def _checkpoint_rows(store: Store) -> pa.Table:
    state = load(store, AT)
    checkpoint_writer.write_checkpoint(store, state.head, state.files())
    content = store.read(filenames.checkpoint_path(AT))
    store.delete(filenames.checkpoint_path(AT))
    return pq.ParquetFile(io.BytesIO(content)).read(columns=_WRITTEN)


def _put_parts(store: Store) -> None:
    rows = _checkpoint_rows(store)
    for part in (1, 2):
        chosen = rows.take([number for number in range(rows.num_rows) if number % 2 == part - 1])
        store.put_if_absent(f"{LOG}/{AT:020d}.checkpoint.{part:010d}.{2:010d}.parquet", _parquet(chosen))


def _put_v2(store: Store, *, as_json: bool) -> None:
    file_rows, others = split(_checkpoint_rows(store))
    content, name = _parquet(file_rows.select(["add", "remove"])), f"{_CHECKPOINT_ID}.parquet"
    store.put_if_absent(f"{LOG}/_sidecars/{name}", content)
    extra: list[dict[str, Any]] = [
        {"sidecar": {"path": name, "sizeInBytes": len(content), "modificationTime": START_MS}},
        {"checkpointMetadata": {"version": AT}},
    ]
    stem = f"{LOG}/{AT:020d}.checkpoint.{_CHECKPOINT_ID}"
    if as_json:
        lines = [*json_lines(others), *extra]
        store.put_if_absent(f"{stem}.json", b"\n".join(json.dumps(line).encode() for line in lines))
    else:
        rows = pa.concat_tables([others, pa.Table.from_pylist(extra)], promote_options="default")
        store.put_if_absent(f"{stem}.parquet", _parquet(rows))
