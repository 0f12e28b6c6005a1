"""Check a staged transaction and one winner against a policy: the matrix as published, without a retry.

MaxCompute's two policies use the matrix if the scopes overlap. Delta's two levels compare files, in Delta's order: did
the winner add rows that the transaction should have read, or remove a file that it read or removes too?
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias, TypeVar

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Conflict
from tidelog.log.conflict.partitions import Partition, Place, Placed, describe_partition, partitions_in, partitions_of
from tidelog.log.conflict.policies import Policy, PolicyClass, Verdict
from tidelog.log.conflict.staged import Reads, Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
)
from tidelog.log.format import commit_info
from tidelog.log.format.actions import AddFile, Commit, Metadata, RemoveFile
from tidelog.log.format.paths import canonical
from tidelog.log.format.schema import columns_of
from tidelog.log.predicate import Expression
from tidelog.log.pruning.file_pruning import File, may_match
from tidelog.log.pruning.partition_scope import Scope

# Evidence is for people: it names this many files and counts the rest.
_SHOWN_FILES = 3


def check_policy(
    policy: Policy,
    staged: Staged,
    winner: Commit,
    winner_class: OperationClass,
    metadata: Metadata,
    *,
    fresh: Collection[str] = (),
) -> Conflict | None:
    """The conflict of `staged` with one winner; None if the policy allows it to commit after the winner.

    `fresh` are the canonical paths of files that earlier winners added, which `staged` cannot have read. They include
    files that only got another vector: if `staged` had read one, it would have lost already.
    """
    earlier, later = policy.class_of(winner_class), policy.class_of(staged.operation_class)
    if earlier is None or later is None:
        return None
    check = _check_files if policy.judges_files else _check_scope
    failed = check(policy, staged, winner, (earlier, later), metadata, fresh)
    if failed is None:
        return None
    error, scope, what = failed
    evidence = f"the policy {policy.name} does not allow {later} after {earlier} in {scope}: {what}"
    return Conflict(
        error, winner.version, winner_class, staged.operation_class, evidence, policy=policy.name, scope=scope
    )


# The error class, the scope in words, and what the winner did there.
_Failed: TypeAlias = tuple[type[ConflictError], str, str]
_Pair: TypeAlias = tuple[PolicyClass, PolicyClass]
F = TypeVar("F", AddFile, RemoveFile)


def _check_scope(
    policy: Policy, staged: Staged, winner: Commit, pair: _Pair, metadata: Metadata, fresh: Collection[str]
) -> _Failed | None:
    del fresh  # scopes are partitions, so it does not matter when a file was added
    if policy.verdict(*pair) is Verdict.OK:
        return None
    overlapping = overlap(staged, winner, metadata)
    if overlapping is None:
        return None
    scope, path = overlapping
    return ConflictError, scope, f"the winner added or removed {path}" if path else "the winner replaced it"


def _check_files(
    policy: Policy, staged: Staged, winner: Commit, pair: _Pair, metadata: Metadata, fresh: Collection[str]
) -> _Failed | None:
    _, later = pair
    exempt = policy.verdict(PolicyClass.INSERT, later) is Verdict.OK and _is_blind_append(winner, pair)
    added = [] if exempt else [add for add in winner.adds if add.data_change]
    gone = [remove for remove in winner.removes if canonical(remove.path) not in fresh]
    inputs = {canonical(remove.path) for group in staged.moves for remove in group.inputs}
    removed = inputs | {canonical(delete.file.path) for delete in staged.deletes}
    checks: tuple[tuple[type[ConflictError], str, Sequence[AddFile | RemoveFile]], ...] = (
        (
            ConcurrentAppendException,
            "the winner added rows that may match what this transaction read",
            _read(staged, added, metadata),
        ),
        (
            ConcurrentDeleteReadException,
            "the winner removed, or deleted rows of, files that this transaction read",
            _read(staged, gone, metadata) or [remove for remove in gone if canonical(remove.path) in inputs],
        ),
        (
            ConcurrentDeleteDeleteException,
            "the winner removed, or deleted rows of, files that this transaction removes or changes",
            [remove for remove in gone if canonical(remove.path) in removed],
        ),
    )
    for error, what, files in checks:
        if files:
            return error, describe_partition(files[0], metadata), f"{what}: {_shown(files)}"
    return None


def _is_blind_append(winner: Commit, pair: _Pair) -> bool:
    """Whether the winner only added rows and read nothing, so that it can be ordered after this transaction.

    Few writers set `isBlindAppend`. Only an explicit false, as of a MERGE that only inserted, means that it did read.
    """
    return pair[0] is PolicyClass.INSERT and winner.info.get("isBlindAppend") is not False


def _read(staged: Staged, files: Sequence[F], metadata: Metadata) -> list[F]:
    return [file for file, hit in zip(files, may_have_read(staged, files, metadata), strict=True) if hit]


def _shown(files: Sequence[AddFile | RemoveFile]) -> str:
    names = ", ".join(file.path for file in files[:_SHOWN_FILES])
    rest = len(files) - _SHOWN_FILES
    return f"{names} and {rest} more" if rest > 0 else names


WHOLE_TABLE = "the whole table"


# --- scopes -----------------------------------------------------------------------------------------------------------
#
# The scope of a staged transaction is the partitions that it writes, that its reads can match and that it replaces.
# Only the commit of a winner is known: its scope is the partitions of its files, or the whole table if tidelog recorded
# that. A table without partitions is one scope.


def overlap(staged: Staged, winner: Commit, metadata: Metadata) -> tuple[str, str] | None:
    """Where the scopes overlap, in words, and a file of the winner in that place; None if they do not overlap."""
    theirs: list[AddFile | RemoveFile] = [*winner.adds, *winner.removes]
    first = theirs[0].path if theirs else ""
    if not metadata.partition_columns or is_whole_table(winner):
        return WHOLE_TABLE, first
    hits = places_in_scope(staged, [Place(file.partition_values) for file in theirs], metadata)
    return next(
        ((describe_partition(file, metadata), file.path) for file, hit in zip(theirs, hits, strict=True) if hit), None
    )


def is_whole_table(winner: Commit) -> bool:
    """Whether tidelog recorded that the commit replaced the whole table."""
    return commit_info.tidelog(winner.info).get("scope") == "table"


def places_in_scope(staged: Staged, places: Sequence[Place], metadata: Metadata) -> list[bool]:
    """For each place, whether it is, or may be, in the scope of a staged transaction."""
    hits = [False] * len(places)
    written = partitions_of(_written(staged), metadata)
    if None in written:
        return [True] * len(places)
    _mark(hits, _among(places, {partition for partition in written if partition is not None}, metadata))
    _mark(hits, may_have_read(staged, places, metadata))
    return hits


def may_have_read(staged: Staged, files: Sequence[File], metadata: Metadata) -> list[bool]:
    """For each file, whether the transaction may have read, or replaces, a row of it."""
    hits = [staged.restores is not None] * len(files)
    if staged.reads is not None:
        _mark(hits, _looked_for(staged.reads, files, metadata))
    if staged.replaces is not None:
        _mark(hits, _replaced(staged.replaces, files, metadata))
    return hits


def _written(staged: Staged) -> list[Placed]:
    written: list[Placed] = [*staged.adds, *staged.cdc]
    for group in staged.moves:
        written += [*group.inputs, *group.outputs]
    for delete in staged.deletes:
        written += [delete.file, *(delete.survivors or ())]
    return written


def _looked_for(reads: Reads, files: Sequence[File], metadata: Metadata) -> list[bool]:
    if reads.keys is None:
        return _may_match(files, reads.predicate, metadata)
    known = not reads.key_files and set(metadata.partition_columns) <= set(reads.keys.column_names)
    if metadata.partition_columns and known:
        return _among(files, partitions_in(reads.keys, metadata), metadata)
    return [True] * len(files)


def _replaced(scope: Scope, files: Sequence[File], metadata: Metadata) -> list[bool]:
    if scope.predicate is not None:
        return _may_match(files, scope.predicate, metadata)
    if scope.partitions is not None:
        return _among(files, partitions_in(scope.partitions, metadata), metadata)
    return [True] * len(files)


def _may_match(files: Sequence[File], expression: Expression, metadata: Metadata) -> list[bool]:
    return may_match(files, expression, columns_of(metadata, ""), metadata)


def _among(files: Sequence[Placed], partitions: set[Partition], metadata: Metadata) -> list[bool]:
    """Whether each file is in one of the partitions, or may be because its partition is unknown."""
    return [found is None or found in partitions for found in partitions_of(files, metadata)]


def _mark(hits: list[bool], more: Sequence[bool]) -> None:
    hits[:] = [hit or other for hit, other in zip(hits, more, strict=True)]
