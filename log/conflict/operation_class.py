"""Operation classes: what kind of operation a commit is for the conflict matrix.

tidelog records the class of its own commits. The class of another engine's commit comes from its typed actions, and not
from `isBlindAppend` or the operation's name, which other writers get wrong. The first rule that fits decides:

1. no file, or only re-adds of the same file (same path, same deletion vector): NONE
2. no data change: MINOR if the commit has tidelog's lineage, else MAJOR
3. rows come back, through a smaller vector or a file that had been removed (RESTORE): OVERWRITE
4. removes every file of the partitions that it touches, and has no sign of updated rows: OVERWRITE
5. removes a file, or rows of one: UPDATE_DELETE
6. otherwise: INSERT
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidelog.log.format import commit_info, lineage
from tidelog.log.format.actions import AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.paths import canonical


class OperationClass(StrEnum):
    """The classes of MaxCompute's Delta Table matrix, plus NONE for commits that touch no file."""

    NONE = "NONE"
    INSERT = "INSERT"
    OVERWRITE = "OVERWRITE"
    UPDATE_DELETE = "UPDATE_DELETE"
    MINOR = "MINOR"
    MAJOR = "MAJOR"


class Before(Protocol):
    """The table just before a commit, asked only if the commit's own actions do not suffice. Paths are canonical."""

    def holds(self, adds: Sequence[AddFile]) -> bool:
        """Whether all these logical files are in the table."""

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        """The paths of those of these files that were in the table once and have been removed."""

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str] | None:
        """The paths of all files in the partitions of these files; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class Classified:
    """A commit's class, and the canonical paths of the files in which dead rows came back to life."""

    operation_class: OperationClass
    resurrected: frozenset[str] = frozenset()


def is_own(commit: Commit) -> bool:
    """Whether tidelog wrote the commit, so that what it records about itself can be trusted."""
    engine = commit.info.get("engineInfo")
    return isinstance(engine, str) and engine.startswith("tidelog/")


def classify(commit: Commit, before: Before | None = None) -> OperationClass:
    """The class of a commit: as recorded if tidelog wrote it, else from its actions.

    Without `before`, rule 4 cannot apply, and such a commit is UPDATE_DELETE.
    """
    recorded = recorded_class(commit)
    return classify_with_evidence(commit, before).operation_class if recorded is None else recorded


def classify_with_evidence(commit: Commit, before: Before | None = None) -> Classified:
    """Like `classify`, with the files in which rows came back. A transaction on those files is never rebased.

    A vector at least as large as the old one is assumed to contain it; only reading both could prove that.
    """
    recorded = recorded_class(commit)
    if recorded is not None:
        rows_return = recorded is OperationClass.OVERWRITE
        return Classified(recorded, _resurrected(commit, before) if rows_return else frozenset())
    if _only_re_adds(commit, before):
        return Classified(OperationClass.NONE)
    if not (any(add.data_change for add in commit.adds) or any(remove.data_change for remove in commit.removes)):
        has_lineage = lineage.from_builtins(commit_info.tidelog(commit.info).get("lineage")) is not None
        return Classified(OperationClass.MINOR if has_lineage else OperationClass.MAJOR)
    resurrected = _resurrected(commit, before)
    if resurrected or _replaces_partitions(commit, before):
        return Classified(OperationClass.OVERWRITE, resurrected)
    if any(remove.data_change for remove in commit.removes):
        return Classified(OperationClass.UPDATE_DELETE)
    return Classified(OperationClass.INSERT)


def recorded_class(commit: Commit) -> OperationClass | None:
    """The class that tidelog recorded. None for another engine's commit, which can hold a copied record."""
    recorded = commit_info.tidelog(commit.info).get("class")
    if not is_own(commit) or not isinstance(recorded, str) or recorded not in OperationClass.__members__:
        return None
    return OperationClass(recorded)


def _only_re_adds(commit: Commit, before: Before | None) -> bool:
    added = {add.key for add in commit.adds}
    taken = {remove.key for remove in commit.removes}
    if not taken <= added:
        return False
    rest = [add for add in commit.adds if add.key not in taken]
    if not rest or before is None:
        # Files that add no rows and replace no file must be in the table already.
        return not any(add.data_change for add in rest)
    return before.holds(rest)


def _resurrected(commit: Commit, before: Before | None) -> frozenset[str]:
    taken = {canonical(remove.path): remove for remove in commit.removes}
    again = [(taken[canonical(add.path)], add) for add in commit.adds if canonical(add.path) in taken]
    shrunk = {canonical(add.path) for old, add in again if _shrinks(old.deletion_vector, add.deletion_vector)}
    fresh = [add for add in commit.adds if canonical(add.path) not in taken]
    return frozenset(shrunk | set(before.removed(fresh) if before is not None and fresh else ()))


def _shrinks(old: DeletionVectorDescriptor | None, new: DeletionVectorDescriptor | None) -> bool:
    return old is not None and (new is None or new.cardinality < old.cardinality)


def _replaces_partitions(commit: Commit, before: Before | None) -> bool:
    """Whether it removed every file of the partitions that it touches.

    Any cdc file counts as a sign of updated rows: its action does not show whether it holds updates or deletes.
    """
    gone = {canonical(remove.path) for remove in commit.removes if remove.data_change}
    if before is None or not gone or commit.cdc or any(canonical(add.path) in gone for add in commit.adds):
        return False
    beside = before.beside([*commit.adds, *commit.removes])
    return beside is not None and gone.issuperset(beside)
