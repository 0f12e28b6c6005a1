"""Which files a MAJOR compaction rewrites, and the reasons in a plan; the files exist in the log only."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction_daemon.planning.planned_tables import File, numbers, table_of
from tests.compaction_daemon.support import SCHEMA, memory_table, put_commit
from tidelog.compaction_daemon import FileReason, Plan, plan
from tidelog.compaction_daemon.planning import decisions
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError, PredicateError

LARGE = File(900, at=1, rows=100)
SMALL = File(10, at=2, rows=5)


def reasons(found: Plan) -> dict[int, tuple[bool, str]]:
    return {int(entry.path): (entry.chosen, entry.reason) for entry in found.reasons}


def test_small_files_of_a_partition_are_packed_regardless_of_age() -> None:
    files = [File(10, at=0), File(400, at=10**12), LARGE, File(10, at=10**11), File(10, at=3, part="b")]
    assert numbers(plan(table_of(files), "major")) == [[0, 3, 1]]
    assert numbers(plan(table_of(files), "minor")) == []


def test_a_clean_large_file_and_a_lone_small_file_are_left_alone() -> None:
    found = plan(table_of([LARGE, LARGE, SMALL]), "major")
    assert found.groups == ()
    assert reasons(found) == {
        0: (False, "large enough"),
        1: (False, "large enough"),
        2: (False, "small, but a rewrite would not leave fewer files"),
    }


@pytest.mark.parametrize(("dead", "taken"), [(9, False), (10, True), (99, True)])
def test_a_tenth_of_dead_rows_makes_a_file_worth_a_rewrite(dead: int, taken: bool) -> None:
    found = plan(table_of([File(900, at=1, rows=100, dead=dead)]), "major")
    assert numbers(found) == ([[0]] if taken else [])
    why = f"{dead} of its 100 rows are dead" if taken else "large enough, with few dead rows"
    assert reasons(found) == {0: (taken, why)}


def test_a_purge_rewrites_every_file_with_a_dead_row() -> None:
    files = [File(900, at=1, rows=100, dead=1), LARGE, File(10, at=2, part="b", rows=5, dead=1)]
    found = plan(table_of(files), "major", purge=True)
    assert numbers(found) == [[2], [0]], "the best first: of the small file a larger share is dead"
    assert reasons(found) == {
        0: (True, "has dead rows to purge"),
        1: (False, "large enough"),
        2: (True, "small, has dead rows to purge"),
    }


def test_dead_rows_of_an_unknown_share_are_worth_a_rewrite() -> None:
    found = plan(table_of([File(900, at=1, dead=1)]), "major")
    assert reasons(found) == {0: (True, "1 of an unknown number of rows are dead")}


@pytest.mark.parametrize("level", ["minor", "major"])
def test_files_without_a_live_row_are_dropped_regardless_of_size(level: str) -> None:
    """They make a group without outputs, which needs no data to be read."""
    files = [LARGE, File(900, at=1, rows=7, dead=7), File(5000, at=2, rows=9, dead=9), SMALL, File(10, at=3, rows=1)]
    found = plan(table_of(files), level)
    assert numbers(found) == [[1, 2], [3, 4]]
    assert [(group.outputs, group.bytes_to_read) for group in found.groups] == [(0, 0), (1, 20)]
    assert reasons(found)[1] == reasons(found)[2] == (True, "all of its rows are dead")


def test_clustering_rewrites_files_that_are_not_clustered_by_these_columns() -> None:
    files = [LARGE, File(900, at=2, clustered=("n",)), File(900, at=3, clustered=("other",)), File(10, at=4)]
    found = plan(table_of(files), "major", cluster_by=["n"])
    assert numbers(found) == [[0, 2, 3]]
    assert [(group.cluster_by, group.outputs) for group in found.groups] == [(("n",), 2)]
    assert reasons(found) == {
        0: (True, "not clustered by n yet"),
        1: (False, "large enough, clustered by n"),
        2: (True, "not clustered by n yet"),
        3: (True, "small, not clustered by n yet"),
    }


@pytest.mark.parametrize(
    ("sizes", "outputs"),
    [([700, 700], 1), ([700, 700, 700], 2), ([740, 10], 1), ([749] * 10, 7), ([5] * 10, 1), ([74, 1400], 1)],
)
def test_outputs_are_of_about_the_target_size(sizes: list[int], outputs: int) -> None:
    files = [File(size, at=at, rows=100, dead=0 if size < 750 else 11) for at, size in enumerate(sizes)]
    (group,) = plan(table_of(files), "major").groups
    assert group.outputs == outputs


def test_dead_rows_do_not_count_for_the_number_of_outputs() -> None:
    files = [File(2000, at=1, rows=100, dead=50), File(2000, at=1, rows=100, dead=75)]
    (group,) = plan(table_of(files), "major").groups
    assert group.outputs == 2


def test_a_group_reads_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MAX_GROUP_BYTES", 1400)
    files = [File(700, at=at) for at in range(5)] + [File(5000, at=6, rows=2, dead=1), File(10, at=7), File(10, at=8)]
    assert sorted(numbers(plan(table_of(files), "major"))) == [[0, 1], [2, 3], [5], [6, 7]]
    assert numbers(plan(table_of([File(700, at=at) for at in range(5)], target=4000), "major")) == [[0, 1, 2, 3, 4]]


def test_a_group_reads_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MAX_GROUP_ROWS", 250)
    files = [File(10, at=at, rows=100) for at in range(5)] + [File(10, at=5, rows=1000), File(10, at=6, rows=1)]
    assert numbers(plan(table_of(files), "major")) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("level", ["minor", "major"])
def test_where_chooses_partitions(level: str) -> None:
    files = [File(10, at=at, part=part) for at, part in enumerate(["a", "b", None, "a", "b", None])]
    table = table_of(files)
    found = plan(table, level, where="part = 'b' or part is null")
    assert numbers(found) == [[1, 4], [2, 5]]
    assert (found.num_files, found.small_files) == (4, 4)
    assert reasons(found)[0] == (False, "not in the partitions asked for")
    assert reasons(found)[1] == (True, "small")
    assert plan(table, level, where="part = 'c'").groups == ()


def test_where_takes_partition_columns_only() -> None:
    with pytest.raises(PredicateError, match="'n' is not a partition column"):
        plan(table_of([SMALL]), "major", where="part = 'a' and n = 1")
    with pytest.raises(PredicateError):
        plan(table_of([SMALL]), "major", where="part ==== 'a'")


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        (["nothing"], "there is no column 'nothing'"),
        (["n", "n"], "column 'n' is named twice"),
        (["part"], "'part' is a partition column, which has one value per file"),
        (["inner"], r"column 'inner' has the type struct<x: int64>, which cannot be sorted"),
        (["inner.x"], "there is no column 'inner.x'"),
        ("n", "cluster_by must be a list of column names, not a string; give a list: "),
    ],
)
def test_columns_that_cannot_be_sorted_by_are_refused(columns: list[str], fault: str) -> None:
    schema = SCHEMA.append(pa.field("inner", pa.struct([("x", pa.int64())])))
    table = Table.create(f"memory://{uuid.uuid4()}", schema, partition_by=["part"])
    with pytest.raises(ConfigurationError, match=fault):
        plan(table, "major", cluster_by=columns)


def test_the_table_says_how_to_cluster_if_the_caller_does_not() -> None:
    schema = pa.schema([("part", pa.string()), ("n", pa.int64()), ("m", pa.int64())])
    clustering = {"tidelog.targetFileSize": 1000, "tidelog.clusterBy": "n, m"}
    table = Table.create(f"memory://{uuid.uuid4()}", schema, partition_by=["part"], properties=clustering)
    both = ("n", "m")
    files = [LARGE, File(900, at=1, clustered=both), File(900, at=2, clustered=both, order="sort")]
    put_commit(table, *[file.to_add(f"{number:04}") for number, file in enumerate(files)])

    def clustered(**asked: Any) -> list[tuple[list[int], tuple[str, ...], str]]:
        found = plan(table, "major", **asked)
        return [
            (inputs, group.cluster_by, group.cluster_order)
            for inputs, group in zip(numbers(found), found.groups, strict=True)
        ]

    assert clustered() == [([0, 2], both, "hilbert")]
    assert clustered(cluster_order="sort") == [([0, 1], both, "sort")]
    assert clustered(cluster_by=["m"]) == [([0, 1, 2], ("m",), "sort")], "one column is sorted"
    table.set_properties({"tidelog.clusterOrder": "sort"})
    assert clustered() == [([0, 1], both, "sort")]
    assert clustered(cluster_order="hilbert") == [([0, 2], both, "hilbert")]
    assert numbers(plan(table, "minor")) == [], "minor keeps the order"


def test_an_unknown_cluster_order_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no cluster order 'zorder'; use one of hilbert, sort"):
        plan(memory_table(), "major", cluster_by=["n"], cluster_order="zorder")


@pytest.mark.parametrize("asked", [{"cluster_by": ["n"]}, {"purge": True}, {"cluster_order": "sort"}])
def test_a_minor_compaction_neither_clusters_nor_purges(asked: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="a minor compaction neither clusters nor purges"):
        plan(memory_table(), **asked)  # type: ignore[arg-type]


def test_a_plan_is_the_same_after_json() -> None:
    files = [File(900, at=1, rows=100, dead=11), SMALL, File(10, at=3, part=None, oldest=1), File(1, at=1, part="ü")]
    found = plan(table_of(files), "major", cluster_by=["n"])
    assert found.groups
    assert found.reasons[0] == FileReason(
        "0000", chosen=True, reason="11 of its 100 rows are dead, not clustered by n yet"
    )
    assert Plan.from_json(found.to_json()) == found
    for text in ("", "{}", '{"level": 1}', b"\xff"):
        with pytest.raises(ConfigurationError, match="the text is not a plan"):
            Plan.from_json(text)


@st.composite
def some_file(draw: st.DrawFn) -> File:
    rows = draw(st.none() | st.integers(1, 50))
    dead = draw(st.integers(0, rows or 5))
    return File(draw(st.integers(1, 3000)), draw(st.integers(0, 50)), draw(st.sampled_from("ab")), None, rows, dead)


@given(st.lists(some_file(), max_size=20), st.booleans(), st.sampled_from([(), ("n",)]), st.floats(0.3, 1.0))
def test_repeated_plans_end(files: list[File], purge: bool, cluster_by: tuple[str, ...], shrink: float) -> None:
    """However much a rewrite shrinks the rows on disk; and each plan keeps the rules."""
    # A file larger than the target becomes several, which may be packed again once they have shrunk.
    for _ in range(len(files) + sum(file.size for file in files) // 500 + 3):
        table = table_of(files)
        found = plan(table, "major", purge=purge, cluster_by=cluster_by)
        assert plan(table, "major", purge=purge, cluster_by=cluster_by) == found, "not deterministic"
        assert Plan.from_json(found.to_json()) == found
        groups = numbers(found)
        chosen = [number for group in groups for number in group]
        assert len(chosen) == len(set(chosen)), "a file in two groups"
        assert {int(entry.path) for entry in found.reasons if entry.chosen} == set(chosen)
        assert [int(entry.path) for entry in found.reasons] == list(range(len(files)))
        assert all(entry.reason for entry in found.reasons)
        assert all(len({files[number].part for number in group}) == 1 for group in groups)
        if not groups:
            return
        files = [file for number, file in enumerate(files) if number not in chosen] + [
            output
            for group, planned in zip(groups, found.groups, strict=True)
            for output in _rewritten([files[number] for number in group], planned.outputs, cluster_by, shrink)
        ]
    raise AssertionError(files)


def _rewritten(inputs: list[File], outputs: int, cluster_by: tuple[str, ...], shrink: float) -> list[File]:
    live = sum(file.size * (1 - file.dead / file.rows if file.rows else 1) for file in inputs)
    newest = max(file.at for file in inputs)
    each = File(max(1, math.ceil(live * shrink / max(1, outputs))), newest, inputs[0].part, None, 10, 0, cluster_by)
    return [each] * outputs
