"""Check a staged transaction and one winner against a policy: the matrix as published, without a retry.

MaxCompute's two policies use the matrix if the scopes overlap. Delta's two levels compare files, in Delta's order: did
the winner add rows that the transaction should have read, or remove a file that it read or removes too?
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias, TypeVar

from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Conflict
from tidelog.log.conflict.overlap import may_have_read, overlap
from tidelog.log.conflict.partitions import describe_partition
from tidelog.log.conflict.policies import Policy, PolicyClass, Verdict
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
)
from tidelog.log.format.actions import AddFile, Commit, Metadata, RemoveFile
from tidelog.log.format.paths import canonical

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
