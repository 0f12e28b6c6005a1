"""What a policy says of a staged transaction and those that committed first: the matrix as published, no retry.

MaxCompute's two policies ask the matrix where the scopes overlap. Delta's two levels look at files, in Delta's order:
did the winner add rows that I should have read, did it take a file that I read, did it take one that I remove?
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

# Evidence is for people: it shows these, and counts the others.
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
    """The conflict of `staged` with one winner; None where the policy lets it follow.

    `fresh` are the canonical paths of files that winners before this one added: `staged` cannot have read those. A
    file that only got another vector is among them: had `staged` read it, it would have lost already.
    """
    earlier, later = policy.class_of(winner_class), policy.class_of(staged.operation_class)
    if earlier is None or later is None:
        return None
    found = _met_in_files if policy.judges_files else _met_in_scope
    met = found(policy, staged, winner, (earlier, later), metadata, fresh)
    if met is None:
        return None
    error, scope, what = met
    evidence = f"under the policy {policy.name} {later} cannot follow {earlier} in {scope}: {what}"
    return Conflict(
        error, winner.version, winner_class, staged.operation_class, evidence, policy=policy.name, scope=scope
    )


_Met: TypeAlias = tuple[type[ConflictError], str, str]
_Pair: TypeAlias = tuple[PolicyClass, PolicyClass]
F = TypeVar("F", AddFile, RemoveFile)


def _met_in_scope(
    policy: Policy, staged: Staged, winner: Commit, pair: _Pair, metadata: Metadata, fresh: Collection[str]
) -> _Met | None:
    del fresh  # a scope is of partitions, whoever wrote the files in them
    if policy.verdict(*pair) is Verdict.OK:
        return None
    met = overlap(staged, winner, metadata)
    if met is None:
        return None
    scope, path = met
    return ConflictError, scope, f"it wrote {path}" if path else "it wrote there"


def _met_in_files(
    policy: Policy, staged: Staged, winner: Commit, pair: _Pair, metadata: Metadata, fresh: Collection[str]
) -> _Met | None:
    _, later = pair
    exempt = policy.verdict(PolicyClass.INSERT, later) is Verdict.OK and _is_blind_append(winner, pair)
    added = [] if exempt else [add for add in winner.adds if add.data_change]
    gone = [remove for remove in winner.removes if canonical(remove.path) not in fresh]
    inputs = {canonical(remove.path) for group in staged.moves for remove in group.inputs}
    removed = inputs | {canonical(delete.file.path) for delete in staged.deletes}
    checks: tuple[tuple[type[ConflictError], str, Sequence[AddFile | RemoveFile]], ...] = (
        (ConcurrentAppendException, "it added rows that may match what was read", _read(staged, added, metadata)),
        (
            ConcurrentDeleteReadException,
            "it took, or took rows of, what was read",
            _read(staged, gone, metadata) or [remove for remove in gone if canonical(remove.path) in inputs],
        ),
        (
            ConcurrentDeleteDeleteException,
            "it took, or took rows of, what is removed or changed here as well",
            [remove for remove in gone if canonical(remove.path) in removed],
        ),
    )
    for error, what, files in checks:
        if files:
            return error, describe_partition(files[0], metadata), f"{what}: {_shown(files)}"
    return None


def _is_blind_append(winner: Commit, pair: _Pair) -> bool:
    """Whether it only added rows and read nothing, so that it may as well have come later.

    Few writers say so; one that says that it did read (a MERGE that only inserted) is taken at its word.
    """
    return pair[0] is PolicyClass.INSERT and winner.info.get("isBlindAppend") is not False


def _read(staged: Staged, files: Sequence[F], metadata: Metadata) -> list[F]:
    return [file for file, hit in zip(files, may_have_read(staged, files, metadata), strict=True) if hit]


def _shown(files: Sequence[AddFile | RemoveFile]) -> str:
    names = ", ".join(file.path for file in files[:_SHOWN_FILES])
    rest = len(files) - _SHOWN_FILES
    return f"{names} and {rest} more" if rest > 0 else names
