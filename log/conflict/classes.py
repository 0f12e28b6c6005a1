"""Operation classes: what a commit did, told from its typed actions.

Neither `isBlindAppend` nor the operation's name decides: other writers get both wrong.
"""

from __future__ import annotations

from enum import StrEnum

from tidelog.log.format import commit_info, lineage
from tidelog.log.format.actions import Commit


class OperationClass(StrEnum):
    """The classes of MaxCompute's Delta Table matrix, and NONE for commits that touch no file."""

    NONE = "NONE"
    INSERT = "INSERT"
    OVERWRITE = "OVERWRITE"
    UPDATE_DELETE = "UPDATE_DELETE"
    MINOR = "MINOR"
    MAJOR = "MAJOR"


def is_own(commit: Commit) -> bool:
    """Whether tidelog wrote the commit, and so keeps to what tidelog promises of its commits."""
    engine = commit.info.get("engineInfo")
    return isinstance(engine, str) and engine.startswith("tidelog/")


def classify(commit: Commit) -> OperationClass:
    """The class of a commit, as its own writer recorded it (tidelog's commits) or as its actions tell."""
    recorded = commit_info.tidelog(commit.info).get("class")
    if isinstance(recorded, str) and recorded in OperationClass.__members__:
        return OperationClass(recorded)
    adds, removes = commit.adds, commit.removes
    if not adds and not removes:
        return OperationClass.NONE
    if not commit.data_change:
        has_lineage = lineage.from_builtins(commit_info.tidelog(commit.info).get("lineage")) is not None
        return OperationClass.MINOR if has_lineage else OperationClass.MAJOR
    if any(remove.data_change for remove in removes):
        return OperationClass.UPDATE_DELETE
    return OperationClass.INSERT
