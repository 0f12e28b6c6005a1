"""Where the scopes of a staged job and a winner overlap."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from tests.log.conflict.policy_jobs import (
    INSERT,
    OVERWRITE,
    PARTITIONED,
    PLAIN,
    UPDATE_DELETE,
    delete,
    file,
    gone,
    inserting,
    mine,
    reading,
    where,
)
from tests.log.support import add, metadata
from tidelog.log.conflict.operation_class import OperationClass
from tidelog.log.conflict.policies import DELTA_TABLE
from tidelog.log.conflict.policy_check import check_policy
from tidelog.log.conflict.staged import MoveGroup, Reads, Staged
from tidelog.log.format.actions import Commit, Metadata
from tidelog.log.format.lineage import LineageGroup
from tidelog.log.pruning.partition_scope import Scope


def shared_scope(staged: Staged, winner: Commit, table: Metadata = PARTITIONED) -> str | None:
    """The scope that both touch, in words, through a cell that fails."""
    found = check_policy(DELTA_TABLE, staged, winner, INSERT, table)
    return found.scope if found else None


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
        assert (shared_scope(staged, winner, table) is not None) == same


def test_the_scope_is_the_partition_that_both_touch() -> None:
    staged = Staged("WRITE", INSERT, adds=(file("a", "1"), file("b", "3")))
    assert shared_scope(staged, inserting("2", "3")) == "the partition p=3"
    assert shared_scope(staged, inserting("2", "4")) is None


def test_every_kind_of_written_file_is_in_the_scope() -> None:
    one = file("mine", "1")
    group = MoveGroup((), (one,), LineageGroup((), ()))
    for staged in (
        Staged("WRITE", INSERT, adds=(one,)),
        Staged("DELETE", UPDATE_DELETE, deletes=(delete(one),)),
        Staged("OPTIMIZE", OperationClass.MAJOR, moves=(group,)),
    ):
        assert shared_scope(staged, inserting("1")) == "the partition p=1"
        assert shared_scope(staged, inserting("2")) is None


@pytest.mark.parametrize(
    ("text", "p", "overlaps"),
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
def test_reads_are_in_the_scope_by_partition_and_not_by_statistics(text: str, p: str, overlaps: bool) -> None:
    assert (shared_scope(reading(text), inserting(p)) is not None) == overlaps


def test_keys_read_the_whole_table_unless_they_contain_the_partition() -> None:
    anything = where("n IS NOT NULL")
    by_n = Staged("MERGE", UPDATE_DELETE, reads=Reads(anything, keys=pa.table({"n": [1]})))
    assert shared_scope(by_n, inserting("2")) == "the partition p=2"
    keys = pa.table({"n": pa.array([1, 2], pa.int32()), "p": pa.array([1, None], pa.int32())})
    by_both = Staged("MERGE", UPDATE_DELETE, reads=Reads(anything, keys=keys))
    assert shared_scope(by_both, inserting("2")) is None
    assert shared_scope(by_both, inserting("2", "01")) == "the partition p=01"
    assert shared_scope(by_both, inserting(None)) == "the partition p=None"


@pytest.mark.parametrize(
    ("scope", "overlaps"),
    [
        (Scope(), True),
        (Scope(predicate=where("p > 1")), True),
        (Scope(predicate=where("p > 2")), False),
        (Scope(partitions=pa.table({"p": pa.array([2, 3], pa.int64())})), True),
        (Scope(partitions=pa.table({"p": pa.array([3], pa.int64())})), False),
    ],
    ids=str,
)
def test_a_replaced_scope_is_in_the_scope(scope: Scope, overlaps: bool) -> None:
    staged = Staged("MERGE", UPDATE_DELETE, replaces=scope)
    assert (shared_scope(staged, inserting("2")) is not None) == overlaps


def test_an_empty_string_is_the_null_of_the_log() -> None:
    table = metadata(pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_columns=("p",))
    staged = Staged("MERGE", UPDATE_DELETE, replaces=Scope(partitions=pa.table({"p": ["", "a"]})))
    assert [shared_scope(staged, inserting(p), table) is not None for p in (None, "", "a", "b")] == [
        True,
        True,
        True,
        False,
    ]


def test_a_table_without_partitions_is_one_scope_even_for_a_commit_without_files() -> None:
    assert shared_scope(mine(INSERT), Commit(7, {}, ()), PLAIN) == "the whole table"
    assert shared_scope(mine(INSERT), Commit(7, {}, ())) is None


def test_the_scope_of_a_restore_is_the_whole_table() -> None:
    assert shared_scope(Staged("RESTORE", UPDATE_DELETE, restores=pa.table({})), inserting("2"))


def test_a_winner_that_replaced_the_whole_table_overlaps_every_scope() -> None:
    info = {"tidelog": {"class": "OVERWRITE", "scope": "table"}}
    for actions in ((), (gone(file("theirs", "2")),)):
        found = check_policy(DELTA_TABLE, mine(INSERT), Commit(7, info, actions), OVERWRITE, PARTITIONED)
        assert found
        assert found.scope == "the whole table"
    elsewhere = Commit(7, {"tidelog": {"class": "OVERWRITE", "scope": "partitions"}}, (gone(file("t", "2")),))
    assert check_policy(DELTA_TABLE, mine(INSERT), elsewhere, OVERWRITE, PARTITIONED) is None


def test_a_file_with_an_unknown_partition_overlaps_every_scope() -> None:
    unknown = msgspec.structs.replace(gone(file("theirs", "2")), partition_values=None)
    assert shared_scope(mine(INSERT), Commit(7, {}, (unknown,)))
    unpartitioned = Staged("DELETE", UPDATE_DELETE, deletes=(delete(add("old", partition_values={})),))
    assert shared_scope(unpartitioned, inserting("2"))


def test_partition_values_of_mapped_columns_have_physical_names() -> None:
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
        assert shared_scope(staged, winner, mapped) == scope
