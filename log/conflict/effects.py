"""The effect of a commit on rows: which rows it moved, deleted, added or brought back.

Works for commits of any engine, from their typed actions. tidelog's own commits also record lineage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyroaring import BitMap64

from tidelog.log.conflict.moves import Blobs, Move, move_of
from tidelog.log.conflict.operation_class import OperationClass, is_own
from tidelog.log.format import commit_info, lineage
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.paths import canonical


@dataclass(frozen=True, slots=True)
class Vectored:
    """A file whose deletion vector changed. `data_change` is True if rows changed, False if they only moved."""

    old: DeletionVectorDescriptor | None
    file: AddFile
    data_change: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """What a commit did. All paths are canonical. `own` is True for a commit by tidelog.

    `removed` maps a removed file to whether its rows died (True) or live in other files (False). `added` are new files
    with new or restored rows, `arrived` are new files with rows that existed before.
    """

    version: int
    operation_class: OperationClass
    own: bool
    is_blind_append: bool
    moves: tuple[Move, ...]
    removed: Mapping[str, bool]
    vectored: Mapping[str, Vectored]
    added: Mapping[str, AddFile]
    arrived: Mapping[str, AddFile]

    @property
    def changes_rows(self) -> bool:
        """Whether it added, deleted or restored rows, rather than only moving them."""
        died = any(self.removed.values()) or any(vectored.data_change for vectored in self.vectored.values())
        return died or bool(self.added)

    @property
    def keeps_dead_rows_dead(self) -> bool:
        """Whether every new vector is known to contain the old one, without reading them."""
        return self.own and self.operation_class is not OperationClass.OVERWRITE


def effect_of(commit: Commit, operation_class: OperationClass, blobs: Blobs) -> Effect:
    """The effect of one commit, which any engine may have written."""
    own = is_own(commit)
    recorded = lineage.from_builtins(commit_info.tidelog(commit.info).get("lineage")) if own else None
    removes = {canonical(remove.path): remove for remove in commit.removes}
    adds = {canonical(add.path): add for add in commit.adds}
    vectored = {
        path: Vectored(removes[path].deletion_vector, add, add.data_change or removes[path].data_change)
        for path, add in adds.items()
        if path in removes
    }
    fresh = {path: add for path, add in adds.items() if path not in vectored}
    return Effect(
        version=commit.version,
        operation_class=operation_class,
        own=own,
        is_blind_append=operation_class is OperationClass.INSERT and commit.info.get("isBlindAppend") is True,
        moves=tuple(move_of(group, blobs) for group in recorded.groups) if recorded else (),
        removed={path: remove.data_change for path, remove in removes.items() if path not in vectored},
        vectored=vectored,
        added={path: add for path, add in fresh.items() if add.data_change},
        arrived={path: add for path, add in fresh.items() if not add.data_change},
    )


def brings_back(vectored: Vectored, blobs: Blobs) -> bool:
    """Whether dead rows are live again, because the new vector lacks some rows of the old one."""
    old, new = vectored.old, vectored.file.deletion_vector
    if old is None or (new is not None and new.unique_id == old.unique_id):
        return False
    if new is None or new.cardinality < old.cardinality:
        return True
    return not blobs.dead_rows(old).issubset(blobs.dead_rows(new))


LogicalFile: TypeAlias = AddFile | RemoveFile
"""A data file with its deletion vector. A staged compaction knows its inputs only by the removes that it will write."""


class LiveFiles:
    """Files by canonical path. `rows` holds the physical row counts of the files whose rows are followed."""

    def __init__(self, blobs: Blobs) -> None:
        self.files: dict[str, LogicalFile] = {}
        self.rows: dict[str, int] = {}
        self._blobs = blobs

    def dead(self, path: str) -> BitMap64:
        """The dead rows of a live file."""
        return self.dead_in(self.files[path].deletion_vector)

    def dead_in(self, vector: DeletionVectorDescriptor | None) -> BitMap64:
        """The rows in a vector."""
        return BitMap64() if vector is None else self._blobs.dead_rows(vector)

    def apply(self, effect: Effect) -> None:
        """Move to the state after one more commit."""
        for path in effect.removed:
            self.files.pop(path, None)
        for files in (effect.added, effect.arrived):
            self.files.update(files)
        self.files.update({path: vectored.file for path, vectored in effect.vectored.items()})
        for move in effect.moves:
            self.rows.update(zip(move.outputs, move.output_rows, strict=True))
