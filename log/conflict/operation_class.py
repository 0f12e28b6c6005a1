"""Operation classes: what a commit did, told from its typed actions.

Neither `isBlindAppend` nor the operation's name decides: other writers get both wrong. What tidelog recorded of its own
commits does. Of another engine's commit the first rule that fits tells the class:

1. no file, or only files stated anew (same path, same deletion vector): NONE
2. no change of data: MINOR where tidelog's lineage says so, else MAJOR
3. rows come back, by a smaller vector or a file that had been removed (a RESTORE): OVERWRITE
4. every file of the partitions that it touches goes, and no trace of rows that changed: OVERWRITE
5. a file goes, or rows of one: UPDATE_DELETE
6. else: INSERT
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
    """The classes of MaxCompute's Delta Table matrix, and NONE for commits that touch no file."""

    NONE = "NONE"
    INSERT = "INSERT"
    OVERWRITE = "OVERWRITE"
    UPDATE_DELETE = "UPDATE_DELETE"
    MINOR = "MINOR"
    MAJOR = "MAJOR"


class Before(Protocol):
    """The table just before a commit. It is asked only what the commit's actions do not tell; paths are canonical."""

    def holds(self, adds: Sequence[AddFile]) -> bool:
        """Whether all these logical files are in it."""

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        """The paths, of these files', that were in the table at some time and are not now."""

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str] | None:
        """The paths of all files in the partitions of these; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Classified:
    """A commit's class, and the canonical paths of the files in which dead rows came back to life."""

    operation_class: OperationClass
    resurrected: frozenset[str] = frozenset()


def is_own(commit: Commit) -> bool:
    """Whether tidelog wrote the commit, and so keeps to what tidelog promises of its commits."""
    engine = commit.info.get("engineInfo")
    return isinstance(engine, str) and engine.startswith("tidelog/")


def classify(commit: Commit, before: Before | None = None) -> OperationClass:
    """The class of a commit, as tidelog recorded it for its own, or as the actions tell.

    Without `before` rule 4 is not decided: such a commit is UPDATE_DELETE.
    """
    recorded = _recorded(commit)
    return classify_with_evidence(commit, before).operation_class if recorded is None else recorded


def classify_with_evidence(commit: Commit, before: Before | None = None) -> Classified:
    """As `classify`, with the files in which rows came back, which no transaction that touches them is rebased over.

    A vector no smaller than the old one is taken to hold it: only a look into both would tell.
    """
    recorded = _recorded(commit)
    if recorded is not None:
        rows_return = recorded is OperationClass.OVERWRITE
        return Classified(recorded, _resurrected(commit, before) if rows_return else frozenset())
    if _only_states_anew(commit, before):
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


def _recorded(commit: Commit) -> OperationClass | None:
    """The class that tidelog recorded; None for another engine's commit, which may have copied the record."""
    recorded = commit_info.tidelog(commit.info).get("class")
    if not is_own(commit) or not isinstance(recorded, str) or recorded not in OperationClass.__members__:
        return None
    return OperationClass(recorded)


def _only_states_anew(commit: Commit, before: Before | None) -> bool:
    added = {add.key for add in commit.adds}
    taken = {remove.key for remove in commit.removes}
    if not taken <= added:
        return False
    rest = [add for add in commit.adds if add.key not in taken]
    if not rest or before is None:
        # Files that bring no rows and take nobody's place must be there already.
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
    """Whether all that was in the partitions it touches is gone.

    A file of changed rows does not tell by itself whether it holds an update's or a delete's: either is a trace.
    """
    gone = {canonical(remove.path) for remove in commit.removes if remove.data_change}
    if before is None or not gone or commit.cdc or any(canonical(add.path) in gone for add in commit.adds):
        return False
    beside = before.beside([*commit.adds, *commit.removes])
    return beside is not None and gone.issuperset(beside)
