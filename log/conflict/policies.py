"""Conflict policies as data: can a job commit after another one committed first in the same scope?

A policy is a matrix over its classes. The two MaxCompute matrices come from its documentation (Delta Table;
transactional table) and are for jobs on one non-partitioned table or one partition. Delta Lake's two isolation levels
are its table of write conflicts, written out by the order of commits, for operations on the same files.

`FAIL` is the verdict on a job as it stands. With `tidelog.metadataRetry` on (the default), a rebase can still save it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
)


class PolicyClass(StrEnum):
    """The names of the rows and columns of the matrices."""

    OVERWRITE = "OVERWRITE"
    INSERT = "INSERT"
    UPDATE_DELETE = "UPDATE_DELETE"
    MINOR = "MINOR"
    MAJOR = "MAJOR"
    MERGE = "MERGE"
    COMPACT = "COMPACT"


class Verdict(StrEnum):
    """The verdict of a matrix on the later job."""

    OK = "ok"
    FAIL = "fail"


# Keyed by the class of the earlier job, then by that of the later one.
Matrix: TypeAlias = Mapping[PolicyClass, Mapping[PolicyClass, Verdict]]
Exceptions: TypeAlias = Mapping[PolicyClass, Mapping[PolicyClass, tuple[type[ConflictError], ...]]]


@dataclass(frozen=True, slots=True)
class Policy:
    """A matrix, and the mapping from tidelog's operation classes to its own.

    `exceptions` holds the possible errors for each pair. Only Delta's two levels have it; they compare files, while the
    other policies compare partitions.
    """

    name: str
    source: str
    class_of_operation: Mapping[OperationClass, PolicyClass]
    matrix: Matrix
    exceptions: Exceptions | None = None

    @property
    def classes(self) -> tuple[PolicyClass, ...]:
        """The classes of the matrix, in its order."""
        return tuple(self.matrix)

    @property
    def judges_files(self) -> bool:
        """Whether the policy compares files instead of partitions."""
        return self.exceptions is not None

    def class_of(self, operation_class: OperationClass) -> PolicyClass | None:
        """The policy's class for an operation class; None for NONE, which no matrix covers."""
        return None if operation_class is OperationClass.NONE else self.class_of_operation[operation_class]

    def verdict(self, earlier: PolicyClass, later: PolicyClass) -> Verdict:
        """The cell for a job of class `later` after a commit of class `earlier` in the same scope."""
        return self.matrix[earlier][later]

    def errors(self, earlier: PolicyClass, later: PolicyClass) -> tuple[type[ConflictError], ...]:
        """The error classes that the later job can fail with; empty if the verdict is `OK`."""
        if self.verdict(earlier, later) is Verdict.OK:
            return ()
        return (ConflictError,) if self.exceptions is None else self.exceptions[earlier][later]


_OK, _FAIL = Verdict.OK, Verdict.FAIL
_OVERWRITE, _INSERT, _UPDATE_DELETE = PolicyClass.OVERWRITE, PolicyClass.INSERT, PolicyClass.UPDATE_DELETE
_MINOR, _MAJOR, _MERGE, _COMPACT = PolicyClass.MINOR, PolicyClass.MAJOR, PolicyClass.MERGE, PolicyClass.COMPACT


def _mapping(minor: PolicyClass, major: PolicyClass) -> Mapping[OperationClass, PolicyClass]:
    return {
        OperationClass.OVERWRITE: _OVERWRITE,
        OperationClass.INSERT: _INSERT,
        OperationClass.UPDATE_DELETE: _UPDATE_DELETE,
        OperationClass.MINOR: minor,
        OperationClass.MAJOR: major,
    }


DELTA_TABLE = Policy(
    name="delta-table",
    source="MaxCompute Delta Table",
    class_of_operation=_mapping(_MINOR, _MAJOR),
    matrix={
        _OVERWRITE: {_OVERWRITE: _OK, _INSERT: _FAIL, _UPDATE_DELETE: _FAIL, _MINOR: _FAIL, _MAJOR: _FAIL},
        _INSERT: {_OVERWRITE: _OK, _INSERT: _FAIL, _UPDATE_DELETE: _FAIL, _MINOR: _OK, _MAJOR: _FAIL},
        _UPDATE_DELETE: {_OVERWRITE: _OK, _INSERT: _FAIL, _UPDATE_DELETE: _FAIL, _MINOR: _OK, _MAJOR: _FAIL},
        _MINOR: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _OK, _MINOR: _FAIL, _MAJOR: _OK},
        _MAJOR: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _OK, _MINOR: _FAIL, _MAJOR: _FAIL},
    },
)

TRANSACTIONAL_TABLE = Policy(
    name="transactional-table",
    source="MaxCompute transactional table",
    class_of_operation=_mapping(_MERGE, _MERGE),
    matrix={
        _OVERWRITE: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _MERGE: _FAIL},
        _INSERT: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _MERGE: _FAIL},
        _UPDATE_DELETE: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _MERGE: _FAIL},
        _MERGE: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _MERGE: _FAIL},
    },
)

_APPEND = (ConcurrentAppendException,)
_REMOVED = (ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)
_ALL_THREE = (*_APPEND, *_REMOVED)
# The possible errors of each pair: what the earlier job can do to files that the later one reads or removes.
_DELTA_EXCEPTIONS: Exceptions = {
    _OVERWRITE: {_OVERWRITE: _ALL_THREE, _INSERT: (), _UPDATE_DELETE: _ALL_THREE, _COMPACT: _REMOVED},
    _INSERT: {_OVERWRITE: _APPEND, _INSERT: (), _UPDATE_DELETE: _APPEND, _COMPACT: ()},
    _UPDATE_DELETE: {_OVERWRITE: _ALL_THREE, _INSERT: (), _UPDATE_DELETE: _ALL_THREE, _COMPACT: _REMOVED},
    _COMPACT: {_OVERWRITE: _ALL_THREE, _INSERT: (), _UPDATE_DELETE: _ALL_THREE, _COMPACT: _REMOVED},
}

WRITE_SERIALIZABLE = Policy(
    name="write-serializable",
    source="Delta Lake, isolation level WriteSerializable",
    class_of_operation=_mapping(_COMPACT, _COMPACT),
    matrix={
        _OVERWRITE: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _FAIL},
        _INSERT: {_OVERWRITE: _OK, _INSERT: _OK, _UPDATE_DELETE: _OK, _COMPACT: _OK},
        _UPDATE_DELETE: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _FAIL},
        _COMPACT: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _FAIL},
    },
    exceptions=_DELTA_EXCEPTIONS,
)

SERIALIZABLE = Policy(
    name="serializable",
    source="Delta Lake, isolation level Serializable",
    class_of_operation=_mapping(_COMPACT, _COMPACT),
    matrix={
        _OVERWRITE: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _FAIL},
        _INSERT: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _OK},
        _UPDATE_DELETE: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _FAIL},
        _COMPACT: {_OVERWRITE: _FAIL, _INSERT: _OK, _UPDATE_DELETE: _FAIL, _COMPACT: _FAIL},
    },
    exceptions=_DELTA_EXCEPTIONS,
)

# Keyed by the value of `tidelog.conflictPolicy`.
POLICIES: Mapping[str, Policy] = {
    policy.name: policy for policy in (DELTA_TABLE, TRANSACTIONAL_TABLE, WRITE_SERIALIZABLE, SERIALIZABLE)
}
