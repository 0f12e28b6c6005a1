"""Staged jobs and winners of each class, for the policies."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from tests.log.support import add, metadata
from tidelog.log import predicate
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Conflict
from tidelog.log.conflict.staged import MoveGroup, Reads, RowDelete, Staged
from tidelog.log.format.actions import Action, AddFile, Commit, DeletionVectorDescriptor
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.pruning.partition_scope import Scope

SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])
PARTITIONED = metadata(SCHEMA, partition_columns=("p",))
PLAIN = metadata(SCHEMA)
CLASSES = [each for each in OperationClass if each is not OperationClass.NONE]
VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=40, cardinality=1, offset=1
)
INSERT, OVERWRITE, UPDATE_DELETE = OperationClass.INSERT, OperationClass.OVERWRITE, OperationClass.UPDATE_DELETE


def file(path: str, p: str | None = "1", low: int = 0, high: int = 9, *, data_change: bool = True) -> AddFile:
    stats = {"numRecords": 10, "minValues": {"n": low}, "maxValues": {"n": high}, "nullCount": {"n": 0}}
    return add(path, partition_values={"p": p}, stats=json.dumps(stats), data_change=data_change)


def gone(action: AddFile, *, data_change: bool = True) -> Any:
    return action.removed(1, data_change=data_change)


def where(text: str) -> predicate.Expression:
    return predicate.parse(text, SCHEMA)


def delete(old: AddFile) -> RowDelete:
    return RowDelete(old, BitMap64([3]), 10)


def reading(text: str, **more: Any) -> Staged:
    return Staged("DELETE", UPDATE_DELETE, reads=Reads(where(text), **more))


def inserting(*partitions: str | None) -> Commit:
    return Commit(7, {}, tuple(file(f"t{number}", p) for number, p in enumerate(partitions)))


def mine(operation_class: OperationClass, p: str = "1") -> Staged:
    """A staged job of this class on the partition `p`, which holds the file `old-<p>`."""
    old, new = file(f"old-{p}", p), file(f"mine-{p}", p)
    match operation_class:
        case OperationClass.INSERT:
            return Staged("WRITE", operation_class, adds=(new,))
        case OperationClass.OVERWRITE:
            return Staged("WRITE", operation_class, adds=(new,), replaces=Scope(predicate=where(f"p = {int(p)}")))
        case OperationClass.UPDATE_DELETE:
            read = Reads(where(f"p = {int(p)} AND n = 3"))
            return Staged("DELETE", operation_class, deletes=(delete(old),), reads=read)
        case OperationClass.MINOR | OperationClass.MAJOR:
            group = MoveGroup((gone(old, data_change=False),), (new,), LineageGroup((), ()))
            return Staged("OPTIMIZE", operation_class, moves=(group,))
        case _:
            raise AssertionError(operation_class)


def theirs(operation_class: OperationClass, p: str = "1", version: int = 7) -> Commit:
    """A commit of this class on the partition `p`, which holds the file `old-<p>`."""
    old, new = file(f"old-{p}", p), file(f"theirs-{p}", p)
    actions: tuple[Action, ...]
    match operation_class:
        case OperationClass.INSERT:
            actions = (new,)
        case OperationClass.OVERWRITE:
            actions = (gone(old), new)
        case OperationClass.UPDATE_DELETE:
            actions = (gone(old), msgspec.structs.replace(old, deletion_vector=VECTOR))
        case OperationClass.MINOR | OperationClass.MAJOR:
            actions = (gone(old, data_change=False), msgspec.structs.replace(new, data_change=False))
        case _:
            raise AssertionError(operation_class)
    return Commit(version, {}, actions)


def error_of(found: Conflict | None) -> type | None:
    return found.error if found else None
