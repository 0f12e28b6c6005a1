"""Policies against staged jobs: each cell of each matrix, and several winners in turn."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from tests.log.conflict.policy_jobs import (
    CLASSES,
    INSERT,
    OVERWRITE,
    PARTITIONED,
    PLAIN,
    UPDATE_DELETE,
    VECTOR,
    file,
    gone,
    mine,
    theirs,
)
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.outcome import Conflict
from tidelog.log.conflict.policies import (
    DELTA_TABLE,
    POLICIES,
    SERIALIZABLE,
    TRANSACTIONAL_TABLE,
    WRITE_SERIALIZABLE,
    Policy,
    Verdict,
)
from tidelog.log.conflict.policy_check import check_policy
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConcurrentDeleteReadException, ConflictError
from tidelog.log.format.actions import Commit, Metadata
from tidelog.log.format.paths import canonical


def cells() -> list[Any]:
    return [
        pytest.param(policy, earlier, later, id=f"{policy.name}-{earlier}-{later}")
        for policy in POLICIES.values()
        for earlier, later in itertools.product(CLASSES, repeat=2)
    ]


def expected(policy: Policy, earlier: OperationClass, later: OperationClass) -> tuple[bool, tuple[type, ...]]:
    first, second = policy.class_of(earlier), policy.class_of(later)
    assert first
    assert second
    return policy.verdict(first, second) is Verdict.FAIL, policy.errors(first, second)


@pytest.mark.parametrize("table", [PARTITIONED, PLAIN], ids=["one partition", "no partitions"])
@pytest.mark.parametrize(("policy", "earlier", "later"), cells())
def test_every_cell_with_overlapping_scopes(
    policy: Policy, earlier: OperationClass, later: OperationClass, table: Metadata
) -> None:
    found = check_policy(policy, mine(later), theirs(earlier), earlier, table)
    fails, errors = expected(policy, earlier, later)
    assert (found is not None) == fails
    if found:
        assert found.error in errors
        assert (found.winning_version, found.earlier, found.later, found.policy) == (7, earlier, later, policy.name)
        assert found.scope == ("the partition p=1" if table is PARTITIONED else "the whole table")
        for part in (policy.name, str(policy.class_of(earlier)), str(policy.class_of(later)), found.scope):
            assert part in found.evidence
        assert "old-1" in found.evidence or "theirs-1" in found.evidence


@pytest.mark.parametrize(("policy", "earlier", "later"), cells())
def test_every_cell_with_disjoint_scopes(policy: Policy, earlier: OperationClass, later: OperationClass) -> None:
    assert check_policy(policy, mine(later), theirs(earlier, "2"), earlier, PARTITIONED) is None


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.parametrize("other", CLASSES)
def test_a_commit_without_files_never_conflicts(policy: Policy, other: OperationClass) -> None:
    nothing = Commit(7, {}, ())
    assert check_policy(policy, mine(other), nothing, OperationClass.NONE, PLAIN) is None
    assert check_policy(policy, Staged("SET", OperationClass.NONE), theirs(other), other, PLAIN) is None


def test_evidence_names_a_few_files_and_counts_the_rest() -> None:
    many = [file(f"new-{number}") for number in range(10)]
    found = check_policy(SERIALIZABLE, mine(UPDATE_DELETE), Commit(7, {}, tuple(many)), INSERT, PARTITIONED)
    assert found
    assert "new-0, new-1, new-2 and 7 more" in found.evidence


# --- several winners --------------------------------------------------------------------------------------------------


def fold(policy: Policy, staged: Staged, *winners: tuple[Commit, OperationClass]) -> Conflict | None:
    """Check winners as a race does, oldest first. The job cannot have read files that earlier winners added."""
    fresh: set[str] = set()
    for winner, winner_class in winners:
        found = check_policy(policy, staged, winner, winner_class, PARTITIONED, fresh=fresh)
        if found:
            return found
        fresh |= {canonical(add.path) for add in winner.adds}
    return None


def test_the_oldest_conflicting_winner_is_named() -> None:
    steps = [(theirs(OVERWRITE, "2", 5), OVERWRITE), (theirs(INSERT, "1", 6), INSERT), (theirs(INSERT, "1", 7), INSERT)]
    found = fold(DELTA_TABLE, mine(INSERT), *steps)
    assert found
    assert (found.winning_version, found.error) == (6, ConflictError)
    assert fold(TRANSACTIONAL_TABLE, mine(INSERT), *steps) is None
    assert fold(DELTA_TABLE, mine(INSERT)) is None


def test_files_added_by_earlier_winners_were_not_read() -> None:
    """A blind append can be ordered later, and so can a compaction of its files, but not one of older files."""
    staged, fresh = mine(UPDATE_DELETE), file("fresh")
    inserted = (Commit(5, {}, (fresh,)), INSERT)
    vectored = msgspec.structs.replace(fresh, deletion_vector=VECTOR, data_change=False)
    rewritten = (Commit(6, {}, (gone(fresh, data_change=False), vectored)), OperationClass.MAJOR)
    again = (Commit(7, {}, (gone(vectored, data_change=False), file("big", data_change=False))), OperationClass.MAJOR)
    assert fold(WRITE_SERIALIZABLE, staged, inserted, rewritten, again) is None
    taken = (Commit(8, {}, (gone(file("old-1"), data_change=False),)), OperationClass.MAJOR)
    found = fold(WRITE_SERIALIZABLE, staged, inserted, rewritten, again, taken)
    assert found
    assert (found.winning_version, found.error) == (8, ConcurrentDeleteReadException)
    # Without the earlier winner, the file may have existed before.
    assert fold(WRITE_SERIALIZABLE, staged, rewritten)
