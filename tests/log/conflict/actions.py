"""Commits built by hand, and the tables before them, for tests that classify commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tests.log.support import add, metadata, remove
from tidelog.log.conflict.partitions import FilesByPartition
from tidelog.log.format.actions import AddCDCFile, AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.state import files

SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])
PARTITIONED = metadata(SCHEMA, partition_columns=("p",))
CDC = AddCDCFile(path="c", partition_values={}, size=1)
OURS = {"engineInfo": "tidelog/0.1.0"}
LINEAGE: dict[str, Any] = {"groups": []}


def vector(name: str, cardinality: int = 1) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=40, cardinality=cardinality
    )


def dead(file: AddFile, name: str, cardinality: int = 1) -> AddFile:
    return msgspec.structs.replace(file, deletion_vector=vector(name, cardinality))


def at(path: str, p: str = "1", *, data_change: bool = True) -> AddFile:
    return add(path, partition_values={"p": p}, data_change=data_change)


def commit(*actions: Any, **info: Any) -> Commit:
    return Commit(version=9, info=info, actions=actions)


def live_files(*live: AddFile, gone: Sequence[RemoveFile] = (), table: Any = PARTITIONED) -> FilesByPartition:
    return FilesByPartition(files.apply(files.EMPTY, [Commit(0, {}, tuple(live)), Commit(1, {}, tuple(gone))]), table)


class Unread:
    """A table that must not be read."""

    def holds(self, adds: Sequence[AddFile]) -> bool:
        raise AssertionError(adds)

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        raise AssertionError(adds)

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str]:
        raise AssertionError(files)


A, B, NEW = at("a"), at("b"), at("new")
MOVED = [remove(A, data_change=False), at("new", data_change=False)]
