"""The effect of a commit on rows: which it moved, killed, brought, or brought back. Told from its typed actions.

It works for every writer's commits: tidelog's say more (lineage), others' are read as the protocol defines them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.log.conflict.moves import Blobs, Move, move_of
from tidelog.log.conflict.operation_class import OperationClass, is_own
from tidelog.log.format import commit_info, lineage
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor
from tidelog.log.format.paths import canonical


@dataclass(frozen=True, slots=True)
class Vectored:
    """A file that stays with another deletion vector; `data_change` tells whether rows died or only moved away."""

    old: DeletionVectorDescriptor | None
    file: AddFile
    data_change: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """What a commit did. All paths are canonical.

    `removed` files are gone, and tell whether their rows died (True) or live elsewhere (False). `added` are new files
    with new rows or rows that come back, `arrived` new files that hold rows of before.
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
        """Whether it changed which rows there are, and not only where they lie."""
        died = any(self.removed.values()) or any(vectored.data_change for vectored in self.vectored.values())
        return died or bool(self.added)

    @property
    def keeps_dead_rows_dead(self) -> bool:
        """Whether its vectors are known to hold all that the old ones held, without a look at them."""
        return self.own and self.operation_class is not OperationClass.OVERWRITE


def effect_of(commit: Commit, operation_class: OperationClass, blobs: Blobs) -> Effect:
    """The effect of one commit of this class, whichever engine wrote it."""
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
    """Whether rows that were dead are live again: the new vector lacks some that the old one held."""
    old, new = vectored.old, vectored.file.deletion_vector
    if old is None or (new is not None and new.unique_id == old.unique_id):
        return False
    if new is None or new.cardinality < old.cardinality:
        return True
    return not blobs.dead_rows(old).issubset(blobs.dead_rows(new))
