"""Helpers for the tests of tidelog.log: a clock, tables in memory, hand-written commits."""

from __future__ import annotations

import itertools
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from tidelog.log import Table, Transaction
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.format import filenames
from tidelog.log.format.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    encode_commit,
)
from tidelog.log.format.lineage import LineageGroup, LineageInput, LineageOutput
from tidelog.log.format.schema import to_schema_string
from tidelog.log.format.statistics import num_records
from tidelog.log.operations import create_table
from tidelog.log.state import files
from tidelog.log.state.loader import load
from tidelog.log.state.segment import CheckpointFiles
from tidelog.log.storage import Store
from tidelog.log.storage.memory import MemoryStore
from tidelog.log.system import System

NUMBERS = pa.schema([("n", pa.int64())])
# In the past, so that mixing it up with the real clock shows.
START_MS = 1_700_000_000_000


class Clock(System):
    """A clock that moves only when a test sets it. It records sleeps instead of sleeping."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms
        self.slept_s: list[float] = []

    def in_background(self, work: Callable[[], None]) -> None:
        """Nothing: what a test sees depends on no thread."""

    def now_ms(self) -> int:
        return self.ms

    def sleep_s(self, seconds: float) -> None:
        self.slept_s.append(seconds)


def memory_url() -> str:
    return f"memory://{uuid.uuid4()}"


def memory_store(system: System | None = None) -> MemoryStore:
    return MemoryStore(memory_url()) if system is None else MemoryStore(memory_url(), system=system)


def new_table(
    store: Store,
    schema: pa.Schema = NUMBERS,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    system: System | None = None,
) -> Table:
    """Create a table with a given store and clock, which `Table.create` does not allow."""
    clock = system or System()
    assert create_table.create(store, schema, partition_by, properties or {}, clock)
    return Table(store, load(store), clock)


def reopen(table: Table) -> Table:
    return Table(table.store, load(table.store))


def numbers(values: Iterable[int]) -> pa.Table:
    return pa.table({"n": pa.array(list(values), pa.int64())})


def read_numbers(table: Any) -> list[int]:
    """The column `n` of a table, snapshot or scan, sorted."""
    scan = table.scan() if hasattr(table, "scan") else table
    return sorted(scan.to_arrow()["n"].to_pylist())


# --- hand-written actions --------------------------------------------------------------------------------------------

PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("appendOnly", "deletionVectors", "inCommitTimestamp", "invariants"),
)


def metadata(schema: pa.Schema = NUMBERS, *, id: str = "11111111-2222-3333-4444-555555555555", **more: Any) -> Metadata:  # noqa: A002 - the action's key
    configuration = {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true"}
    values: dict[str, Any] = {
        "format": Format(),
        "schema_string": to_schema_string(schema),
        "partition_columns": (),
        "configuration": configuration,
    }
    return Metadata(id=id, **{**values, **more})


def add(path: str, *, data_change: bool = True, **more: Any) -> AddFile:
    values: dict[str, Any] = {"partition_values": {}, "size": 100, "modification_time": 1}
    return AddFile(path=path, data_change=data_change, **{**values, **more})


def remove(action: AddFile, *, data_change: bool = True, deletion_timestamp: int = START_MS) -> RemoveFile:
    return RemoveFile(
        path=action.path,
        data_change=data_change,
        deletion_timestamp=deletion_timestamp,
        extended_file_metadata=True,
        partition_values=action.partition_values,
        size=action.size,
        deletion_vector=action.deletion_vector,
    )


def put_commit(store: Store, version: int, *actions: Action, info: Mapping[str, Any] | None = None) -> None:
    """Put a commit as another writer would. Its timestamp is START_MS + version unless `info` has one."""
    content = {"inCommitTimestamp": START_MS + version, "operation": "TEST", **(info or {})}
    known = {key: value for key, value in content.items() if value is not None}
    store.put_if_absent(filenames.commit_path(version), encode_commit(known, actions))


def put_foreign(table: Table, *actions: Action) -> int:
    """Commit the next version of a table as another writer would, and return the version."""
    newest = load(table.store).head
    put_commit(table.store, newest.version + 1, *actions, info={"inCommitTimestamp": newest.timestamp_ms + 1})
    return newest.version + 1


def live_files(table: Table) -> list[AddFile]:
    return files.to_adds(table.at().files())


# --- deletion vectors ------------------------------------------------------------------------------------------------


def clean_up_before(table: Table, version: int) -> None:
    """Write a checkpoint of the newest version, and delete the commits before a version, as a clean-up does."""
    table.checkpoint()
    for each in range(version):
        table.store.delete(filenames.commit_path(each))
        table.store.delete(filenames.checksum_path(each))


def bitmap(positions: Iterable[int]) -> bytes:
    """The bitmap of `positions`, encoded as the Delta protocol describes."""
    values = BitMap64(positions)
    values.run_optimize()
    return struct.pack("<I", 1681511377) + bytes(values.serialize())


def vector_file(*blobs: bytes) -> bytes:
    parts = [struct.pack(">i", len(blob)) + blob + struct.pack(">I", zlib.crc32(blob)) for blob in blobs]
    return b"\x01" + b"".join(parts)


def put_vector(store: Store, positions: Sequence[int], name: str) -> DeletionVectorDescriptor:
    """Write one deletion vector file; storage type `p` names it by an absolute path."""
    blob = bitmap(positions)
    store.put_if_absent(name, vector_file(blob))
    return DeletionVectorDescriptor(
        storage_type="p", path_or_inline_dv=name, offset=1, size_in_bytes=len(blob), cardinality=len(positions)
    )


# --- compaction ------------------------------------------------------------------------------------------------------


def move_group(transaction: Transaction, inputs: Sequence[AddFile], schema: pa.Schema, store: Store) -> MoveGroup:
    """Rewrite the rows of `inputs` in order. The files are in one partition and have no deletion vectors."""
    partition = inputs[0].partition_values
    assert all(file.partition_values == partition and file.deletion_vector is None for file in inputs)
    data_schema = pa.schema([field for field in schema if field.name not in partition])
    batches = itertools.chain.from_iterable(read_batches(store, DataFile.of(file), data_schema) for file in inputs)
    rows = pa.Table.from_batches(batches, data_schema)
    outputs = tuple(transaction.writer.write_partition(rows, partition, data_change=False))
    return MoveGroup(
        inputs=tuple(remove(file, data_change=False) for file in inputs),
        outputs=outputs,
        lineage=LineageGroup(
            tuple(LineageInput(file.path, None, num_records(file.stats) or 0) for file in inputs),
            tuple(LineageOutput(file.path, num_records(file.stats) or 0) for file in outputs),
        ),
    )


def stage_compaction(
    table: Table, *groups: Sequence[AddFile], operation_class: OperationClass = OperationClass.MINOR
) -> Transaction:
    """Stage, but do not commit, a compaction of these groups of files.

    The default is one group of all live files without a deletion vector. (A compaction that lost rows to another one
    leaves files with a vector.)
    """
    transaction = table.begin()
    chosen = groups or ([file for file in live_files(table) if file.deletion_vector is None],)
    moves = [move_group(transaction, group, table.schema, table.store) for group in chosen if group]
    return transaction.stage_moves(moves, operation_class=operation_class)


def classic(version: int) -> CheckpointFiles:
    """The classic single-file checkpoint of a version."""
    return CheckpointFiles(version, (filenames.checkpoint_path(version).rpartition("/")[2],))
