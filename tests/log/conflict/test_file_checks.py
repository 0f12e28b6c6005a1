"""Delta's isolation levels compare files: which check fails first, and for which files."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.conflict.policy_jobs import (
    INSERT,
    OVERWRITE,
    PARTITIONED,
    UPDATE_DELETE,
    VECTOR,
    error_of,
    file,
    gone,
    mine,
    reading,
    where,
)
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.policies import SERIALIZABLE, WRITE_SERIALIZABLE, Policy
from tidelog.log.conflict.policy_check import check_policy
from tidelog.log.conflict.staged import Staged
from tidelog.log.errors import ConcurrentAppendException, ConcurrentDeleteDeleteException, ConcurrentDeleteReadException
from tidelog.log.format.actions import Action, Commit
from tidelog.log.pruning.partition_scope import Scope


def files_verdict(
    staged: Staged, *actions: Action, policy: Policy = SERIALIZABLE, earlier: OperationClass = UPDATE_DELETE
) -> type | None:
    return error_of(check_policy(policy, staged, Commit(7, {}, actions), earlier, PARTITIONED))


def test_the_first_failing_check_decides_the_error() -> None:
    staged = mine(UPDATE_DELETE)
    old = file("old-1")
    assert files_verdict(staged, gone(old), file("new")) is ConcurrentAppendException
    assert files_verdict(staged, gone(old), file("new", low=5)) is ConcurrentDeleteReadException
    misjudged = msgspec.structs.replace(old, stats=file("x", low=5).stats)
    assert files_verdict(staged, gone(misjudged), file("new", low=5)) is ConcurrentDeleteDeleteException


@pytest.mark.parametrize(("low", "error"), [(0, ConcurrentAppendException), (4, None)])
def test_an_added_file_of_the_partition_conflicts_only_if_it_may_match(low: int, error: type | None) -> None:
    assert files_verdict(reading("p = 1 AND n = 3"), file("new", low=low)) is error


def test_disjoint_files_of_one_partition_do_not_conflict() -> None:
    other = file("other", low=5)
    for policy in (SERIALIZABLE, WRITE_SERIALIZABLE):
        for later in (UPDATE_DELETE, OperationClass.MINOR, OperationClass.MAJOR):
            vectored = msgspec.structs.replace(other, deletion_vector=VECTOR)
            assert files_verdict(mine(later), gone(other), vectored, policy=policy) is None


def test_disjoint_partition_predicates_do_not_conflict() -> None:
    for policy in (SERIALIZABLE, WRITE_SERIALIZABLE):
        assert files_verdict(reading("p = 1 AND n = 3"), gone(file("old-2", "2")), policy=policy) is None
        assert files_verdict(reading("n = 3"), gone(file("old-2", "2")), policy=policy) is ConcurrentDeleteReadException


def test_a_compaction_reads_and_removes_only_its_inputs() -> None:
    for later in (OperationClass.MINOR, OperationClass.MAJOR):
        assert files_verdict(mine(later), gone(file("old-1"))) is ConcurrentDeleteReadException
        assert files_verdict(mine(later), gone(file("another")), file("new")) is None


def test_rows_that_a_compaction_moved_are_not_added_rows() -> None:
    moved = file("new", data_change=False)
    assert files_verdict(mine(UPDATE_DELETE), moved, earlier=OperationClass.MAJOR) is None


@pytest.mark.parametrize(
    ("info", "blind"),
    [({}, True), ({"isBlindAppend": True}, True), ({"isBlindAppend": "no"}, True), ({"isBlindAppend": False}, False)],
)
def test_only_write_serializable_orders_a_blind_append_later(info: dict[str, Any], blind: bool) -> None:
    winner = Commit(7, info, (file("new"),))
    for later in (UPDATE_DELETE, OVERWRITE):
        found = check_policy(WRITE_SERIALIZABLE, mine(later), winner, INSERT, PARTITIONED)
        assert error_of(found) is (None if blind else ConcurrentAppendException)
        assert (
            error_of(check_policy(SERIALIZABLE, mine(later), winner, INSERT, PARTITIONED)) is ConcurrentAppendException
        )


def test_rows_added_by_an_update_are_not_a_blind_append() -> None:
    added = [gone(file("old-2", "2")), file("new")]
    found = files_verdict(mine(UPDATE_DELETE), *added, policy=WRITE_SERIALIZABLE)
    assert found is ConcurrentAppendException


def test_a_replaced_scope_counts_as_read() -> None:
    whole = Staged("TRUNCATE", OVERWRITE, replaces=Scope())
    part = Staged("TRUNCATE", OVERWRITE, replaces=Scope(predicate=where("p = 1")))
    both = Scope(partitions=pa.table({"p": pa.array([1, 2], pa.int64())}))
    some = Staged("WRITE", OVERWRITE, replaces=both)
    for staged, overlaps in ((whole, True), (part, False), (some, True)):
        error = ConcurrentAppendException if overlaps else None
        assert files_verdict(staged, file("new", "2"), earlier=INSERT) is error
        error_2 = ConcurrentDeleteReadException if overlaps else None
        assert files_verdict(staged, gone(file("x", "2"))) is error_2


def test_a_removed_file_without_statistics_is_judged_by_its_partition() -> None:
    for p, error in (("1", ConcurrentDeleteReadException), ("2", None)):
        bare = msgspec.structs.replace(gone(file("x", p)), stats=None)
        assert files_verdict(reading("p = 1 AND n = 300"), bare) is error
