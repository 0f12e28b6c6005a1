"""The class of a commit, from actions as tidelog, delta-spark and others write them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import (
    START_MS,
    add,
    memory_store,
    metadata,
    new_table,
    numbers,
    put_commit,
    put_foreign,
    remove,
    reopen,
)
from tidelog.log import Table
from tidelog.log.conflict.files_by_partition import FilesByPartition
from tidelog.log.conflict.operation_class import Classified, OperationClass, classify, classify_with_evidence
from tidelog.log.errors import HistoryExpiredError
from tidelog.log.format.actions import (
    Action,
    AddCDCFile,
    AddFile,
    Commit,
    DeletionVectorDescriptor,
    DomainMetadata,
    RemoveFile,
    SetTransaction,
)
from tidelog.log.state import files
from tidelog.log.state.loader import LogState, load

SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64())])
PARTITIONED = metadata(SCHEMA, partition_columns=("p",))
CDC = AddCDCFile(path="c", partition_values={}, size=1)
OURS = {"engineInfo": "tidelog/0.1.0"}
LINEAGE: dict[str, Any] = {"groups": []}


def vector(name: str, cardinality: int = 1) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=40, cardinality=cardinality
    )


def dead(file: AddFile, name: str, cardinality: int = 1) -> AddFile:
    return msgspec.structs.replace(file, deletion_vector=vector(name, cardinality))


def at(path: str, p: str = "1", *, data_change: bool = True) -> AddFile:
    return add(path, partition_values={"p": p}, data_change=data_change)


def commit(*actions: Any, **info: Any) -> Commit:
    return Commit(version=9, info=info, actions=actions)


def census(*live: AddFile, gone: Sequence[RemoveFile] = (), table: Any = PARTITIONED) -> FilesByPartition:
    return FilesByPartition(files.apply(files.EMPTY, [Commit(0, {}, tuple(live)), Commit(1, {}, tuple(gone))]), table)


class Silent:
    """A table that nobody may ask."""

    def holds(self, adds: Sequence[AddFile]) -> bool:
        raise AssertionError(adds)

    def removed(self, adds: Sequence[AddFile]) -> Collection[str]:
        raise AssertionError(adds)

    def beside(self, files: Sequence[AddFile | RemoveFile]) -> Collection[str]:
        raise AssertionError(files)


A, B, NEW = at("a"), at("b"), at("new")
MOVED = [remove(A, data_change=False), at("new", data_change=False)]


# --- by the actions alone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "info", "expected"),
    [
        ([], {}, "NONE"),
        ([SetTransaction(app_id="a", version=1)], {}, "NONE"),
        ([DomainMetadata(domain="d", configuration="", removed=False)], {}, "NONE"),
        ([metadata()], {}, "NONE"),
        ([CDC], {}, "NONE"),
        ([at("a", data_change=False)], {}, "NONE"),
        ([remove(A), A], {}, "NONE"),
        ([A], {}, "INSERT"),
        ([A], {"operation": "OPTIMIZE", "isBlindAppend": False}, "INSERT"),
        ([A, metadata()], {}, "INSERT"),
        ([remove(A)], {}, "UPDATE_DELETE"),
        ([remove(A), B], {"operation": "WRITE", "isBlindAppend": True}, "UPDATE_DELETE"),
        ([remove(A, data_change=False), B], {}, "INSERT"),
        (MOVED, {}, "MAJOR"),
        ([remove(A, data_change=False)], {}, "MAJOR"),
        (MOVED, {"tidelog": {"lineage": LINEAGE}}, "MINOR"),
        ([remove(A), B], {"tidelog": {"lineage": LINEAGE}}, "UPDATE_DELETE"),
        (MOVED, {**OURS, "tidelog": {"class": "MAJOR", "lineage": LINEAGE}}, "MAJOR"),
        ([A], {**OURS, "tidelog": {"class": "OVERWRITE"}}, "OVERWRITE"),
        ([remove(A)], {**OURS, "tidelog": {"class": "NONE"}}, "NONE"),
    ],
)
def test_the_class_is_told_from_the_actions(actions: list[Action], info: dict[str, Any], expected: str) -> None:
    assert classify(Commit(version=1, info=info, actions=tuple(actions))) == expected


@pytest.mark.parametrize(
    "info",
    [
        {"tidelog": {"class": "OVERWRITE"}},
        {"engineInfo": "Apache-Spark/4.2 Delta-Lake/4.4", "tidelog": {"class": "OVERWRITE"}},
        {"engineInfo": "tidelogger/1", "tidelog": {"class": "OVERWRITE"}},
        {"engineInfo": 7, "tidelog": {"class": "OVERWRITE"}},
        {**OURS, "tidelog": {"class": "UNHEARD_OF"}},
        {**OURS, "tidelog": {"class": 7}},
        {**OURS, "tidelog": "OVERWRITE"},
        OURS,
    ],
    ids=str,
)
def test_only_a_record_of_tidelogs_own_is_believed(info: dict[str, Any]) -> None:
    assert classify(commit(A, **info)) == "INSERT"


def test_a_recorded_class_needs_no_state() -> None:
    for name in OperationClass:
        assert classify(commit(remove(A), B, metadata(), **OURS, tidelog={"class": str(name)}), Silent()) == name


# --- what delta-spark 4.4.0 writes (the table in the model) ----------------------------------------------------------

STATE = (A, B, at("c", "2"), dead(at("d", "3"), "old", 2))
STATED = [metadata(), msgspec.structs.replace(metadata(), created_time=1)]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        pytest.param([NEW], "INSERT", id="INSERT"),
        pytest.param([NEW, SetTransaction(app_id="a", version=1)], "INSERT", id="streaming append"),
        pytest.param([remove(A), dead(A, "x")], "UPDATE_DELETE", id="DELETE with vectors"),
        pytest.param([remove(A), dead(A, "x"), NEW, CDC], "UPDATE_DELETE", id="UPDATE with vectors and feed"),
        pytest.param([remove(A), dead(A, "x"), NEW], "UPDATE_DELETE", id="MERGE with vectors"),
        pytest.param([remove(A), NEW], "UPDATE_DELETE", id="UPDATE without vectors"),
        pytest.param([remove(A), remove(B), NEW, CDC], "UPDATE_DELETE", id="UPDATE of all files, with feed"),
        pytest.param([remove(A), remove(B), NEW], "OVERWRITE", id="UPDATE of all files of a partition"),
        pytest.param([remove(A)], "UPDATE_DELETE", id="DELETE of a whole file"),
        pytest.param([remove(at("c", "2"))], "OVERWRITE", id="DELETE of a whole partition"),
        pytest.param([remove(file) for file in STATE], "OVERWRITE", id="TRUNCATE"),
        pytest.param([*(remove(file) for file in STATE), NEW], "OVERWRITE", id="OVERWRITE"),
        pytest.param([remove(at("c", "2")), at("new", "2")], "OVERWRITE", id="dynamic OVERWRITE"),
        pytest.param([remove(at("c", "2")), at("new", "2"), at("n2", "7")], "OVERWRITE", id="and of an empty one"),
        pytest.param([remove(at("c", "2")), NEW], "UPDATE_DELETE", id="rows that went to another partition"),
        pytest.param([NEW, remove(A), dead(A, "x")], "UPDATE_DELETE", id="replaceWhere on data"),
        pytest.param(
            [at("new", data_change=False), *(remove(file, data_change=False) for file in (A, B))],
            "MAJOR",
            id="OPTIMIZE",
        ),
        pytest.param([remove(STATE[3]), at("d", "3"), *STATED], "OVERWRITE", id="RESTORE that takes a vector off"),
        pytest.param([remove(STATE[3]), dead(at("d", "3"), "x", 1)], "OVERWRITE", id="RESTORE of a smaller vector"),
        pytest.param([remove(B), at("gone"), *STATED], "OVERWRITE", id="RESTORE of a removed file"),
        pytest.param(STATED[:1], "NONE", id="ALTER"),
    ],
)
def test_what_delta_spark_writes(actions: list[Action], expected: str) -> None:
    before = census(*STATE, gone=[remove(at("gone"))])
    assert classify(commit(*actions, isBlindAppend=True, operation="WRITE"), before) == expected


# --- each rule, and their order --------------------------------------------------------------------------------------


def test_files_that_are_stated_anew_are_nothing_whatever_they_say_of_themselves() -> None:
    before = census(A, dead(B, "x"))
    with_statistics = msgspec.structs.replace(A, stats='{"numRecords":1}')
    assert classify(commit(with_statistics, dead(B, "x")), before) == "NONE"
    assert classify(commit(with_statistics, dead(B, "y")), before) == "INSERT"
    assert classify(commit(with_statistics, NEW), before) == "INSERT"
    assert classify(commit(at("new", data_change=False)), before) == "MAJOR", "a file that was not there"


def test_a_compaction_that_also_states_files_anew_is_a_compaction() -> None:
    assert classify(commit(*MOVED, at("b", data_change=False)), census(A, B)) == "MAJOR"


def test_a_compaction_with_vectors_that_shrink_is_a_compaction() -> None:
    """REORG rewrites files and drops their vectors: rule 2 comes before rule 3."""
    old = dead(at("a", data_change=False), "x")
    assert classify_with_evidence(
        commit(remove(old, data_change=False), at("a", data_change=False)), census(old)
    ) == Classified(OperationClass.MAJOR)


def test_rows_that_come_back_mark_their_files() -> None:
    before = census(A, dead(B, "x", 3), gone=[remove(at("g"))])
    resurrecting = commit(remove(dead(B, "x", 3)), dead(B, "y", 2), at("g"), NEW)
    assert classify_with_evidence(resurrecting, before) == Classified(OperationClass.OVERWRITE, frozenset({"b", "g"}))
    assert classify_with_evidence(resurrecting) == Classified(OperationClass.OVERWRITE, frozenset({"b"})), (
        "as the actions tell"
    )
    grown = commit(remove(dead(B, "x", 3)), dead(B, "y", 4), NEW)
    assert classify_with_evidence(grown, before) == Classified(OperationClass.UPDATE_DELETE)


def test_a_file_that_left_and_came_back_by_another_spelling_is_known() -> None:
    before = census(A, gone=[remove(at("file:///x/g"))])
    assert classify_with_evidence(commit(at("/x/g")), before).resurrected == {"/x/g"}


def test_tidelogs_own_restore_marks_its_files_too() -> None:
    before = census(A, dead(B, "x", 3), gone=[remove(at("g"))])
    actions = [remove(dead(B, "x", 3)), B, at("g"), NEW]
    own = commit(*actions, **OURS, tidelog={"class": "OVERWRITE"})
    assert classify_with_evidence(own, before) == Classified(OperationClass.OVERWRITE, frozenset({"b", "g"}))
    update = commit(*actions, **OURS, tidelog={"class": "UPDATE_DELETE"})
    assert classify_with_evidence(update, Silent()) == Classified(OperationClass.UPDATE_DELETE)


def test_a_partition_that_loses_all_its_files_was_overwritten() -> None:
    before = census(A, B, at("c", "2"))
    assert classify(commit(remove(A), remove(B)), before) == "OVERWRITE"
    assert classify(commit(remove(A), remove(B)), None) == "UPDATE_DELETE", "nobody knows what else was there"
    assert classify(commit(remove(A), remove(B), remove(at("c", "2"))), before) == "OVERWRITE"
    assert classify(commit(remove(A), remove(at("c", "2"))), before) == "UPDATE_DELETE"
    assert classify(commit(remove(A), remove(B, data_change=False)), before) == "UPDATE_DELETE"
    assert classify(commit(remove(A), remove(B), CDC), before) == "UPDATE_DELETE"


def test_partitions_are_typed_values() -> None:
    before = census(at("a", "1"), at("b", "01"))
    assert classify(commit(remove(at("a", "1"))), before) == "UPDATE_DELETE"
    assert classify(commit(remove(at("a", "1")), remove(at("b", "01"))), before) == "OVERWRITE"


def test_a_file_whose_partition_is_not_told_may_be_in_any() -> None:
    before = census(A, at("b", "2"))
    bare = msgspec.structs.replace(remove(A), partition_values=None)
    assert classify(commit(bare), before) == "OVERWRITE", "the table knows where it was"
    stranger = add("new", partition_values={})
    assert classify(commit(bare, stranger), before) == "UPDATE_DELETE"
    assert classify(commit(bare, remove(at("b", "2")), stranger), before) == "OVERWRITE", "all of the table went"
    assert classify(commit(remove(A)), census(A, add("x", partition_values={}))) == "UPDATE_DELETE"


def test_a_table_without_partitions_is_one() -> None:
    one, two = add("a"), add("b")
    before = census(one, two, table=metadata())
    assert classify(commit(remove(one)), before) == "UPDATE_DELETE"
    assert classify(commit(remove(one), remove(two), add("c")), before) == "OVERWRITE"


def test_the_actions_alone_decide_where_they_can() -> None:
    for actions in ([], [remove(A), A], MOVED, [remove(A), dead(A, "x")], [remove(dead(A, "x")), A], [metadata()]):
        classify(commit(*actions), Silent())


# --- the census ------------------------------------------------------------------------------------------------------


def seen(of: FilesByPartition) -> tuple[Any, ...]:
    """What a census says of all that the tests below have in it."""
    candidates = [A, B, NEW, dead(A, "x"), dead(A, "y"), at("c", "2")]
    partitions = [sorted(of.beside([at("?", p)])) for p in ("1", "2", "3")]
    return partitions, [of.holds([each]) for each in candidates]


HISTORY = [
    commit(A, B, at("c", "2")),
    commit(remove(A), dead(A, "x")),
    commit(remove(dead(A, "x")), dead(A, "y", 2), remove(B), NEW),
    commit(msgspec.structs.replace(remove(dead(A, "y", 2)), partition_values=None), A),
    commit(remove(A), remove(NEW), at("e", "3")),
]


def test_a_census_moves_along_the_log_both_ways() -> None:
    states = [
        FilesByPartition(files.apply(files.EMPTY, HISTORY[:number]), PARTITIONED) for number in range(len(HISTORY) + 1)
    ]
    forward = census()
    for each, expected in zip(HISTORY, states[1:], strict=True):
        forward.apply(each)
        assert seen(forward) == seen(expected)
    back = states[-1]
    for each, number in zip(reversed(HISTORY), reversed(range(len(HISTORY))), strict=True):
        back.take_back(each)
        rebuilt = FilesByPartition(files.apply(files.EMPTY, HISTORY[:number]), PARTITIONED)
        assert seen(back) == seen(rebuilt)


def test_a_census_knows_what_was_removed_since() -> None:
    moving = census(A, B)
    assert moving.removed([A, B, NEW]) == set()
    moving.apply(commit(remove(A), NEW))
    assert moving.removed([A, B, NEW]) == {"a"}
    moving.apply(commit(A))
    assert moving.removed([A, B, NEW]) == set()
    moving.take_back(commit(A))
    moving.take_back(commit(remove(A), NEW))
    assert moving.removed([A, B, NEW]) == set()
    assert moving.holds([A, B])


def test_a_file_that_is_live_was_not_removed_and_lies_in_one_partition() -> None:
    assert FilesByPartition(files.apply(files.EMPTY, HISTORY[:2]), PARTITIONED).removed([A]) == set(), (
        "its tombstone is another's"
    )
    moving = census(A)
    moving.apply(commit(remove(A)))
    moving.take_back(commit(remove(A)))
    assert moving.removed([A]) == set()
    moving.apply(commit(at("a", "2")))
    assert [moving.beside([at("?", p)]) for p in ("1", "2")] == [set(), {"a"}]


# --- the history -----------------------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The versions whose state the history loads."""
    from tidelog.log import history  # noqa: PLC0415 - what is patched

    found: list[int | None] = []

    def counted(store: Any, version: int | None = None) -> LogState:
        found.append(version)
        return load(store, version)

    monkeypatch.setattr(history, "load", counted)
    return found


def classes(table: Table, limit: int | None = None) -> list[str]:
    return [str(record.operation_class) for record in reopen(table).history(limit)]


def test_a_history_of_tidelogs_own_commits_loads_no_state(loads: list[int | None]) -> None:
    table = new_table(memory_store())
    for number in range(3):
        table.insert(numbers([number]))
    table.truncate()
    put_foreign(table, add("x"))
    assert classes(table) == ["INSERT", "OVERWRITE", "INSERT", "INSERT", "INSERT", "NONE"]
    assert loads == []


def test_a_history_of_others_commits_loads_one(loads: list[int | None]) -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["p"])
    put_foreign(table, A, B, at("c", "2"))
    put_foreign(table, remove(A), remove(B), NEW)
    put_foreign(table, at("e", "1"))
    put_foreign(table, remove(NEW))
    put_foreign(table, remove(at("c", "2")), at("f", "2"))
    assert classes(table) == ["OVERWRITE", "UPDATE_DELETE", "INSERT", "OVERWRITE", "INSERT", "NONE"]
    assert loads == [5]
    loads.clear()
    assert classes(table, 2) == ["OVERWRITE", "UPDATE_DELETE"]
    assert loads == [5]


def test_a_restore_in_the_history_is_known(loads: list[int | None]) -> None:
    table = new_table(memory_store())
    put_foreign(table, add("a"), add("b"))
    put_foreign(table, remove(add("b")))
    put_foreign(table, add("b"), load(table.store).head.metadata)
    put_foreign(table, add("c"), load(table.store).head.metadata)
    assert classes(table)[:3] == ["INSERT", "OVERWRITE", "UPDATE_DELETE"]
    assert loads == [3, 2, 2]


def test_a_history_whose_states_are_gone_is_told_without_them(loads: list[int | None]) -> None:
    store = memory_store()
    table = new_table(store)
    put_foreign(table, add("a"))
    put_foreign(table, remove(add("a")), add("b"))
    put_foreign(table, remove(add("b")), add("c"))
    reopen(table).checkpoint()
    for version in (0, 1):
        store.delete(f"_delta_log/{version:020d}.json")
    put_commit(store, 4, add("d"), info={"inCommitTimestamp": load(store).head.timestamp_ms + 1})
    assert classes(table) == ["INSERT", "OVERWRITE", "OVERWRITE"], "one state serves what lies before the checkpoint"
    assert loads == [3]
    put_commit(store, 5, remove(add("c")), remove(add("d")), info={"inCommitTimestamp": START_MS * 2})
    reopen(table).checkpoint()
    loads.clear()
    assert classes(table) == ["OVERWRITE", "INSERT", "OVERWRITE", "OVERWRITE"]
    assert loads == [5]


def test_where_no_state_is_left_the_actions_alone_tell(
    loads: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.log import history  # noqa: PLC0415 - what is patched

    table = new_table(memory_store())
    put_foreign(table, add("a"))
    put_foreign(table, remove(add("a")), add("b"))
    put_foreign(table, remove(add("b")), add("c"), load(table.store).head.metadata)

    def gone(store: Any, version: int | None = None) -> LogState:
        loads.append(version)
        raise HistoryExpiredError("gone", path=store.url)

    monkeypatch.setattr(history, "load", gone)
    assert classes(table) == ["UPDATE_DELETE", "UPDATE_DELETE", "INSERT", "NONE"]
    assert loads == [2, 3], "asked for once, and once for what the last one may have brought back"
