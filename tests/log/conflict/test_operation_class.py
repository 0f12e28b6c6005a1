"""The class of a commit, from actions as tidelog, delta-spark and other engines write them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.log.conflict.actions import CDC, LINEAGE, MOVED, NEW, OURS, A, B, Unread, at, commit, dead, live_files
from tests.log.support import add, metadata, remove
from tidelog.log.conflict.operation_class import Classified, OperationClass, classify, classify_with_evidence
from tidelog.log.format.actions import Action, Commit, DomainMetadata, SetTransaction

# --- actions only -----------------------------------------------------------------------------------------------------


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
def test_the_actions_decide_the_class(actions: list[Action], info: dict[str, Any], expected: str) -> None:
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
def test_only_tidelogs_own_record_is_trusted(info: dict[str, Any]) -> None:
    assert classify(commit(A, **info)) == "INSERT"


def test_a_recorded_class_needs_no_state() -> None:
    for name in OperationClass:
        assert classify(commit(remove(A), B, metadata(), **OURS, tidelog={"class": str(name)}), Unread()) == name


def test_the_state_is_not_read_if_the_actions_suffice() -> None:
    for actions in ([], [remove(A), A], MOVED, [remove(A), dead(A, "x")], [remove(dead(A, "x")), A], [metadata()]):
        classify(commit(*actions), Unread())


# --- commits of delta-spark 4.4.0 -------------------------------------------------------------------------------------


STATE = (A, B, at("c", "2"), dead(at("d", "3"), "old", 2))
SAME_METADATA = [metadata(), msgspec.structs.replace(metadata(), created_time=1)]


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
        pytest.param(
            [remove(at("c", "2")), at("new", "2"), at("n2", "7")],
            "OVERWRITE",
            id="dynamic OVERWRITE of an empty partition too",
        ),
        pytest.param([remove(at("c", "2")), NEW], "UPDATE_DELETE", id="UPDATE that moves rows to another partition"),
        pytest.param([NEW, remove(A), dead(A, "x")], "UPDATE_DELETE", id="replaceWhere on data"),
        pytest.param(
            [at("new", data_change=False), *(remove(file, data_change=False) for file in (A, B))],
            "MAJOR",
            id="OPTIMIZE",
        ),
        pytest.param(
            [remove(STATE[3]), at("d", "3"), *SAME_METADATA], "OVERWRITE", id="RESTORE that takes a vector off"
        ),
        pytest.param([remove(STATE[3]), dead(at("d", "3"), "x", 1)], "OVERWRITE", id="RESTORE of a smaller vector"),
        pytest.param([remove(B), at("gone"), *SAME_METADATA], "OVERWRITE", id="RESTORE of a removed file"),
        pytest.param(SAME_METADATA[:1], "NONE", id="ALTER"),
    ],
)
def test_classes_of_delta_sparks_commits(actions: list[Action], expected: str) -> None:
    before = live_files(*STATE, gone=[remove(at("gone"))])
    assert classify(commit(*actions, isBlindAppend=True, operation="WRITE"), before) == expected


# --- each rule, and their order ---------------------------------------------------------------------------------------


def test_re_added_files_have_no_class_even_if_they_claim_a_data_change() -> None:
    before = live_files(A, dead(B, "x"))
    with_statistics = msgspec.structs.replace(A, stats='{"numRecords":1}')
    assert classify(commit(with_statistics, dead(B, "x")), before) == "NONE"
    assert classify(commit(with_statistics, dead(B, "y")), before) == "INSERT"
    assert classify(commit(with_statistics, NEW), before) == "INSERT"
    assert classify(commit(at("new", data_change=False)), before) == "MAJOR", "a file that was not in the table"


def test_a_compaction_that_also_re_adds_files_is_a_compaction() -> None:
    assert classify(commit(*MOVED, at("b", data_change=False)), live_files(A, B)) == "MAJOR"


def test_a_compaction_with_vectors_that_shrink_is_a_compaction() -> None:
    """REORG rewrites files and drops their vectors: rule 2 comes before rule 3."""
    old = dead(at("a", data_change=False), "x")
    assert classify_with_evidence(
        commit(remove(old, data_change=False), at("a", data_change=False)), live_files(old)
    ) == Classified(OperationClass.MAJOR)


def test_files_with_restored_rows_are_marked() -> None:
    before = live_files(A, dead(B, "x", 3), gone=[remove(at("g"))])
    resurrecting = commit(remove(dead(B, "x", 3)), dead(B, "y", 2), at("g"), NEW)
    assert classify_with_evidence(resurrecting, before) == Classified(OperationClass.OVERWRITE, frozenset({"b", "g"}))
    assert classify_with_evidence(resurrecting) == Classified(OperationClass.OVERWRITE, frozenset({"b"})), (
        "from the actions only"
    )
    grown = commit(remove(dead(B, "x", 3)), dead(B, "y", 4), NEW)
    assert classify_with_evidence(grown, before) == Classified(OperationClass.UPDATE_DELETE)


def test_a_restored_file_is_found_under_another_spelling_of_its_path() -> None:
    before = live_files(A, gone=[remove(at("file:///x/g"))])
    assert classify_with_evidence(commit(at("/x/g")), before).resurrected == {"/x/g"}


def test_tidelogs_own_restore_marks_its_files() -> None:
    before = live_files(A, dead(B, "x", 3), gone=[remove(at("g"))])
    actions = [remove(dead(B, "x", 3)), B, at("g"), NEW]
    own = commit(*actions, **OURS, tidelog={"class": "OVERWRITE"})
    assert classify_with_evidence(own, before) == Classified(OperationClass.OVERWRITE, frozenset({"b", "g"}))
    update = commit(*actions, **OURS, tidelog={"class": "UPDATE_DELETE"})
    assert classify_with_evidence(update, Unread()) == Classified(OperationClass.UPDATE_DELETE)


def test_removing_all_files_of_a_partition_is_an_overwrite() -> None:
    before = live_files(A, B, at("c", "2"))
    assert classify(commit(remove(A), remove(B)), before) == "OVERWRITE"
    assert classify(commit(remove(A), remove(B)), None) == "UPDATE_DELETE", "without the state, other files are unknown"
    assert classify(commit(remove(A), remove(B), remove(at("c", "2"))), before) == "OVERWRITE"
    assert classify(commit(remove(A), remove(at("c", "2"))), before) == "UPDATE_DELETE"
    assert classify(commit(remove(A), remove(B, data_change=False)), before) == "UPDATE_DELETE"
    assert classify(commit(remove(A), remove(B), CDC), before) == "UPDATE_DELETE"


def test_partitions_are_typed_values() -> None:
    before = live_files(at("a", "1"), at("b", "01"))
    assert classify(commit(remove(at("a", "1"))), before) == "UPDATE_DELETE"
    assert classify(commit(remove(at("a", "1")), remove(at("b", "01"))), before) == "OVERWRITE"


def test_a_file_with_an_unknown_partition_can_be_in_any() -> None:
    before = live_files(A, at("b", "2"))
    bare = msgspec.structs.replace(remove(A), partition_values=None)
    assert classify(commit(bare), before) == "OVERWRITE", "the state knows its partition"
    stranger = add("new", partition_values={})
    assert classify(commit(bare, stranger), before) == "UPDATE_DELETE"
    assert classify(commit(bare, remove(at("b", "2")), stranger), before) == "OVERWRITE", (
        "every file of the table was removed"
    )
    assert classify(commit(remove(A)), live_files(A, add("x", partition_values={}))) == "UPDATE_DELETE"


def test_a_table_without_partitions_is_one_partition() -> None:
    one, two = add("a"), add("b")
    before = live_files(one, two, table=metadata())
    assert classify(commit(remove(one)), before) == "UPDATE_DELETE"
    assert classify(commit(remove(one), remove(two), add("c")), before) == "OVERWRITE"
