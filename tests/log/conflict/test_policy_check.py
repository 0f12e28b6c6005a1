"""What each policy says of two jobs: every cell of its table where they meet, and none where they do not."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from tests.log.support import add, metadata
from tidelog.log import predicate
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
from tidelog.log.conflict.staged import MoveGroup, Reads, RowDelete, Staged
from tidelog.log.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConflictError,
)
from tidelog.log.format.actions import Action, AddFile, Commit, DeletionVectorDescriptor, Metadata
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.format.paths import canonical
from tidelog.log.pruning.partition_scope import Scope

SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])
PARTITIONED = metadata(SCHEMA, partition_columns=("p",))
PLAIN = metadata(SCHEMA)
CLASSES = [each for each in OperationClass if each is not OperationClass.NONE]
VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="x" * 20, size_in_bytes=40, cardinality=1, offset=1
)


def file(path: str, p: str | None = "1", low: int = 0, high: int = 9, *, data_change: bool = True) -> AddFile:
    stats = {"numRecords": 10, "minValues": {"n": low}, "maxValues": {"n": high}, "nullCount": {"n": 0}}
    return add(path, partition_values={"p": p}, stats=json.dumps(stats), data_change=data_change)


def gone(action: AddFile, *, data_change: bool = True) -> Any:
    return action.removed(1, data_change=data_change)


def where(text: str) -> predicate.Expression:
    return predicate.parse(text, SCHEMA)


def mine(operation_class: OperationClass, p: str = "1") -> Staged:
    """A job of that class on the partition `p`, in which the file `old-<p>` lies."""
    old, new = file(f"old-{p}", p), file(f"mine-{p}", p)
    match operation_class:
        case OperationClass.INSERT:
            return Staged("WRITE", operation_class, adds=(new,))
        case OperationClass.OVERWRITE:
            return Staged("WRITE", operation_class, adds=(new,), replaces=Scope(predicate=where(f"p = {int(p)}")))
        case OperationClass.UPDATE_DELETE:
            read = Reads(where(f"p = {int(p)} AND n = 3"))
            return Staged("DELETE", operation_class, deletes=(delete(old),), reads=read)
        case OperationClass.MINOR | OperationClass.MAJOR:
            group = MoveGroup((gone(old, data_change=False),), (new,), LineageGroup((), ()))
            return Staged("OPTIMIZE", operation_class, moves=(group,))
        case _:
            raise AssertionError(operation_class)


def delete(old: AddFile) -> RowDelete:
    return RowDelete(old, BitMap64([3]), 10)


def theirs(operation_class: OperationClass, p: str = "1", version: int = 7) -> Commit:
    """A commit of that class on the partition `p`, in which the file `old-<p>` lies."""
    old, new = file(f"old-{p}", p), file(f"theirs-{p}", p)
    actions: tuple[Action, ...]
    match operation_class:
        case OperationClass.INSERT:
            actions = (new,)
        case OperationClass.OVERWRITE:
            actions = (gone(old), new)
        case OperationClass.UPDATE_DELETE:
            actions = (gone(old), msgspec.structs.replace(old, deletion_vector=VECTOR))
        case OperationClass.MINOR | OperationClass.MAJOR:
            actions = (gone(old, data_change=False), msgspec.structs.replace(new, data_change=False))
        case _:
            raise AssertionError(operation_class)
    return Commit(version, {}, actions)


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


def error_of(found: Conflict | None) -> type | None:
    return found.error if found else None


@pytest.mark.parametrize("table", [PARTITIONED, PLAIN], ids=["one partition", "no partitions"])
@pytest.mark.parametrize(("policy", "earlier", "later"), cells())
def test_every_cell_where_the_two_meet(
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
def test_every_cell_where_they_do_not(policy: Policy, earlier: OperationClass, later: OperationClass) -> None:
    assert check_policy(policy, mine(later), theirs(earlier, "2"), earlier, PARTITIONED) is None


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.parametrize("other", CLASSES)
def test_what_touches_no_file_never_conflicts(policy: Policy, other: OperationClass) -> None:
    nothing = Commit(7, {}, ())
    assert check_policy(policy, mine(other), nothing, OperationClass.NONE, PLAIN) is None
    assert check_policy(policy, Staged("SET", OperationClass.NONE), theirs(other), other, PLAIN) is None


# --- scopes of partitions --------------------------------------------------------------------------------------------

INSERT, OVERWRITE, UPDATE_DELETE = OperationClass.INSERT, OperationClass.OVERWRITE, OperationClass.UPDATE_DELETE


def meets(staged: Staged, winner: Commit, table: Metadata = PARTITIONED) -> str | None:
    """The scope in which they met, by a cell that fails."""
    found = check_policy(DELTA_TABLE, staged, winner, INSERT, table)
    return found.scope if found else None


def reading(text: str, **more: Any) -> Staged:
    return Staged("DELETE", UPDATE_DELETE, reads=Reads(where(text), **more))


def inserting(*partitions: str | None) -> Commit:
    return Commit(7, {}, tuple(file(f"t{number}", p) for number, p in enumerate(partitions)))


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        (pa.int64(), "01", "1", True),
        (pa.int64(), "1", "2", False),
        (pa.float64(), "1.0", "1", True),
        (pa.float64(), "NaN", "nan", True),
        (pa.float64(), "-0.0", "0", True),
        (pa.float32(), "0.1", "0.10000000149011612", True),
        (pa.decimal128(9, 2), "1.5", "1.50", True),
        (pa.bool_(), "TRUE", "true", True),
        (pa.timestamp("us", "UTC"), "2026-01-31 00:00:00", "2026-01-31T00:00:00.000000Z", True),
        (pa.timestamp("us", "UTC"), "2026-01-31T01:00:00+01:00", "2026-01-31T00:00:00Z", True),
        (pa.timestamp("us"), "2026-01-31 00:00:00", "2026-01-31 00:00:00.000000", True),
        (pa.timestamp("us"), "2026-01-31 00:00:00", "2026-01-31 00:00:01", False),
        (pa.date32(), "2026-01-31", "2026-01-30", False),
        (pa.string(), "01", "1", False),
        (pa.string(), "", None, True),
        (pa.binary(), "a", "a", True),
        (pa.int64(), None, None, True),
        (pa.int64(), None, "1", False),
        (pa.int64(), "no number", "1", True),
    ],
    ids=str,
)
def test_partitions_are_compared_as_typed_values(kind: pa.DataType, one: str, other: str, same: bool) -> None:
    table = metadata(pa.schema([("p", kind), ("n", pa.int64())]), partition_columns=("p",))
    staged = Staged("WRITE", INSERT, adds=(file("mine", one),))
    for winner in (inserting(other), Commit(7, {}, (gone(file("theirs", other)),))):
        assert (meets(staged, winner, table) is not None) == same


def test_only_the_partition_that_both_have_is_the_scope() -> None:
    staged = Staged("WRITE", INSERT, adds=(file("a", "1"), file("b", "3")))
    assert meets(staged, inserting("2", "3")) == "the partition p=3"
    assert meets(staged, inserting("2", "4")) is None


def test_every_kind_of_file_that_is_written_counts() -> None:
    one = file("mine", "1")
    group = MoveGroup((), (one,), LineageGroup((), ()))
    for staged in (
        Staged("WRITE", INSERT, adds=(one,)),
        Staged("DELETE", UPDATE_DELETE, deletes=(delete(one),)),
        Staged("OPTIMIZE", OperationClass.MAJOR, moves=(group,)),
    ):
        assert meets(staged, inserting("1")) == "the partition p=1"
        assert meets(staged, inserting("2")) is None


@pytest.mark.parametrize(
    ("text", "p", "met"),
    [
        ("p = 1", "1", True),
        ("p = 1", "2", False),
        ("p = 1 AND n = 3", "1", True),
        ("p = 1 AND n = 3", "2", False),
        ("p = 1 OR n = 3", "2", True),
        ("n = 300", "2", True),
        ("p < 2", None, False),
        ("p IS NULL", None, True),
    ],
)
def test_a_scope_holds_the_partitions_that_reads_may_match_whatever_statistics_say(
    text: str, p: str, met: bool
) -> None:
    assert (meets(reading(text), inserting(p)) is not None) == met


def test_keys_reach_the_whole_table_unless_they_hold_the_partition() -> None:
    anything = where("n IS NOT NULL")
    by_n = Staged("MERGE", UPDATE_DELETE, reads=Reads(anything, keys=pa.table({"n": [1]})))
    assert meets(by_n, inserting("2")) == "the partition p=2"
    keys = pa.table({"n": pa.array([1, 2], pa.int32()), "p": pa.array([1, None], pa.int32())})
    by_both = Staged("MERGE", UPDATE_DELETE, reads=Reads(anything, keys=keys))
    assert meets(by_both, inserting("2")) is None
    assert meets(by_both, inserting("2", "01")) == "the partition p=01"
    assert meets(by_both, inserting(None)) == "the partition p=None"


@pytest.mark.parametrize(
    ("scope", "met"),
    [
        (Scope(), True),
        (Scope(predicate=where("p > 1")), True),
        (Scope(predicate=where("p > 2")), False),
        (Scope(partitions=pa.table({"p": pa.array([2, 3], pa.int64())})), True),
        (Scope(partitions=pa.table({"p": pa.array([3], pa.int64())})), False),
    ],
    ids=str,
)
def test_what_is_replaced_is_in_the_scope(scope: Scope, met: bool) -> None:
    staged = Staged("MERGE", UPDATE_DELETE, replaces=scope)
    assert (meets(staged, inserting("2")) is not None) == met


def test_an_empty_text_in_the_rows_is_the_null_of_the_log() -> None:
    table = metadata(pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_columns=("p",))
    staged = Staged("MERGE", UPDATE_DELETE, replaces=Scope(partitions=pa.table({"p": ["", "a"]})))
    assert [meets(staged, inserting(p), table) is not None for p in (None, "", "a", "b")] == [True, True, True, False]


def test_a_table_without_partitions_is_one_scope_even_where_no_file_shows_it() -> None:
    assert meets(mine(INSERT), Commit(7, {}, ()), PLAIN) == "the whole table"
    assert meets(mine(INSERT), Commit(7, {}, ())) is None


def test_a_restore_reaches_the_whole_table() -> None:
    assert meets(Staged("RESTORE", UPDATE_DELETE, restores=pa.table({})), inserting("2"))


def test_a_winner_that_recorded_the_whole_table_meets_everybody() -> None:
    info = {"tidelog": {"class": "OVERWRITE", "scope": "table"}}
    for actions in ((), (gone(file("theirs", "2")),)):
        found = check_policy(DELTA_TABLE, mine(INSERT), Commit(7, info, actions), OVERWRITE, PARTITIONED)
        assert found
        assert found.scope == "the whole table"
    elsewhere = Commit(7, {"tidelog": {"class": "OVERWRITE", "scope": "partitions"}}, (gone(file("t", "2")),))
    assert check_policy(DELTA_TABLE, mine(INSERT), elsewhere, OVERWRITE, PARTITIONED) is None


def test_a_file_whose_partition_is_not_told_may_lie_anywhere() -> None:
    unknown = msgspec.structs.replace(gone(file("theirs", "2")), partition_values=None)
    assert meets(mine(INSERT), Commit(7, {}, (unknown,)))
    untold = Staged("DELETE", UPDATE_DELETE, deletes=(delete(add("old", partition_values={})),))
    assert meets(untold, inserting("2"))


def test_column_mapping_spells_partitions_by_physical_names() -> None:
    schema = PARTITIONED.schema_string.replace(
        '"name":"p","type":"long","nullable":true,"metadata":{}',
        '"name":"p","type":"long","nullable":true,"metadata":'
        '{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}',
    ).replace(
        '"name":"n","type":"long","nullable":true,"metadata":{}',
        '"name":"n","type":"long","nullable":true,"metadata":'
        '{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"col-2"}',
    )
    mapped = metadata(
        partition_columns=("p",), schema_string=schema, configuration={"delta.columnMapping.mode": "name"}
    )
    staged = Staged("WRITE", INSERT, adds=(add("mine", partition_values={"col-1": "1"}),))
    for p, scope in (("01", "the partition p=01"), ("2", None)):
        winner = Commit(7, {}, (add("theirs", partition_values={"col-1": p}),))
        assert meets(staged, winner, mapped) == scope


# --- Delta's checks by files -----------------------------------------------------------------------------------------


def files_verdict(
    staged: Staged, *actions: Action, policy: Policy = SERIALIZABLE, earlier: OperationClass = UPDATE_DELETE
) -> type | None:
    return error_of(check_policy(policy, staged, Commit(7, {}, actions), earlier, PARTITIONED))


def test_the_first_check_that_fails_names_the_error() -> None:
    staged = mine(UPDATE_DELETE)
    old = file("old-1")
    assert files_verdict(staged, gone(old), file("new")) is ConcurrentAppendException
    assert files_verdict(staged, gone(old), file("new", low=5)) is ConcurrentDeleteReadException
    misjudged = msgspec.structs.replace(old, stats=file("x", low=5).stats)
    assert files_verdict(staged, gone(misjudged), file("new", low=5)) is ConcurrentDeleteDeleteException


@pytest.mark.parametrize(("low", "error"), [(0, ConcurrentAppendException), (4, None)])
def test_added_files_of_the_partition_count_only_if_they_may_match(low: int, error: type | None) -> None:
    assert files_verdict(reading("p = 1 AND n = 3"), file("new", low=low)) is error


def test_disjoint_files_of_one_partition_are_no_conflict() -> None:
    other = file("other", low=5)
    for policy in (SERIALIZABLE, WRITE_SERIALIZABLE):
        for later in (UPDATE_DELETE, OperationClass.MINOR, OperationClass.MAJOR):
            vectored = msgspec.structs.replace(other, deletion_vector=VECTOR)
            assert files_verdict(mine(later), gone(other), vectored, policy=policy) is None


def test_disjoint_partition_predicates_are_no_conflict_and_others_are() -> None:
    for policy in (SERIALIZABLE, WRITE_SERIALIZABLE):
        assert files_verdict(reading("p = 1 AND n = 3"), gone(file("old-2", "2")), policy=policy) is None
        assert files_verdict(reading("n = 3"), gone(file("old-2", "2")), policy=policy) is ConcurrentDeleteReadException


def test_a_compaction_reads_and_removes_its_inputs_only() -> None:
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
def test_a_blind_append_may_come_later_under_write_serializable_only(info: dict[str, Any], blind: bool) -> None:
    winner = Commit(7, info, (file("new"),))
    for later in (UPDATE_DELETE, OVERWRITE):
        found = check_policy(WRITE_SERIALIZABLE, mine(later), winner, INSERT, PARTITIONED)
        assert error_of(found) is (None if blind else ConcurrentAppendException)
        assert (
            error_of(check_policy(SERIALIZABLE, mine(later), winner, INSERT, PARTITIONED)) is ConcurrentAppendException
        )


def test_rows_that_another_class_of_commit_added_are_no_blind_append() -> None:
    added = [gone(file("old-2", "2")), file("new")]
    found = files_verdict(mine(UPDATE_DELETE), *added, policy=WRITE_SERIALIZABLE)
    assert found is ConcurrentAppendException


def test_what_is_replaced_was_read() -> None:
    whole = Staged("TRUNCATE", OVERWRITE, replaces=Scope())
    part = Staged("TRUNCATE", OVERWRITE, replaces=Scope(predicate=where("p = 1")))
    both = Scope(partitions=pa.table({"p": pa.array([1, 2], pa.int64())}))
    some = Staged("WRITE", OVERWRITE, replaces=both)
    for staged, met in ((whole, True), (part, False), (some, True)):
        error = ConcurrentAppendException if met else None
        assert files_verdict(staged, file("new", "2"), earlier=INSERT) is error
        error_2 = ConcurrentDeleteReadException if met else None
        assert files_verdict(staged, gone(file("x", "2"))) is error_2


def test_a_removed_file_without_statistics_goes_by_its_partition() -> None:
    for p, error in (("1", ConcurrentDeleteReadException), ("2", None)):
        bare = msgspec.structs.replace(gone(file("x", p)), stats=None)
        assert files_verdict(reading("p = 1 AND n = 300"), bare) is error


def test_evidence_shows_a_few_files_and_counts_the_others() -> None:
    many = [file(f"new-{number}") for number in range(10)]
    found = check_policy(SERIALIZABLE, mine(UPDATE_DELETE), Commit(7, {}, tuple(many)), INSERT, PARTITIONED)
    assert found
    assert "new-0, new-1, new-2 and 7 more" in found.evidence


# --- several winners -------------------------------------------------------------------------------------------------


def fold(policy: Policy, staged: Staged, *winners: tuple[Commit, OperationClass]) -> Conflict | None:
    """As a race does: one after the other, oldest first, each of which adds files that cannot have been read."""
    fresh: set[str] = set()
    for winner, winner_class in winners:
        found = check_policy(policy, staged, winner, winner_class, PARTITIONED, fresh=fresh)
        if found:
            return found
        fresh |= {canonical(add.path) for add in winner.adds}
    return None


def test_the_oldest_winner_that_ends_it_is_named() -> None:
    steps = [(theirs(OVERWRITE, "2", 5), OVERWRITE), (theirs(INSERT, "1", 6), INSERT), (theirs(INSERT, "1", 7), INSERT)]
    found = fold(DELTA_TABLE, mine(INSERT), *steps)
    assert found
    assert (found.winning_version, found.error) == (6, ConflictError)
    assert fold(TRANSACTIONAL_TABLE, mine(INSERT), *steps) is None
    assert fold(DELTA_TABLE, mine(INSERT)) is None


def test_nobody_has_read_a_file_that_came_after() -> None:
    """A blind append may come later, and so may the compaction of what it added; not one of what was there."""
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
    # Where only the later one is known, the file may have been there.
    assert fold(WRITE_SERIALIZABLE, staged, rewritten)
