"""The level `auto`, at which a daemon plans: MINOR and MAJOR mixed, the best first, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compaction_daemon.planning.histories import SECOND, A, B, commit, history, measured, stream
from tests.compaction_daemon.planning.planned_tables import File, numbers, table_of
from tests.compaction_daemon.support import put_commit
from tidelog.compaction_daemon import Budget, Plan, plan
from tidelog.compaction_daemon.planning import compaction_planner, planned_groups
from tidelog.compaction_daemon.planning.compaction_planner import plan_snapshot
from tidelog.compaction_daemon.planning.history import MAX_KNOWN_WRITES, CommitFacts, History
from tidelog.compaction_daemon.planning.request import DUE, CompactionRequest
from tidelog.log import Table
from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import Metadata

NOW_S = 1000
DEAD = File(900, at=9, rows=100, dead=30)
MANY = Budget(10**9, 10**9)


def planned(files: Sequence[File] | Table, past: History, **asked: object) -> Plan:
    table = files if isinstance(files, Table) else table_of(files)
    level = "auto" if asked.pop("major", True) else "minor"
    request = replace(DUE, level=level, growth=asked.pop("growth", DUE.growth))  # type: ignore[arg-type]
    arguments = {"now_ms": NOW_S * SECOND, "budget": MANY, **asked}
    return plan_snapshot(table.at(), request, history=past, **arguments)  # type: ignore[arg-type]


def work(found: Plan) -> list[tuple[str, list[int]]]:
    return [(group.level, inputs) for group, inputs in zip(found.groups, numbers(found), strict=True)]


SMALL = [File(10, at=at) for at in range(3)]
MEASURED = measured(files=2, read=20, written=10, seconds=4.0)
BUSY_A = history(*stream(A, range(900, 1000, 10)))


# --- hot partitions --------------------------------------------------------------------------------------------------


def test_a_quiet_partition_gets_major_and_a_hot_one_minor() -> None:
    files = [*SMALL, DEAD, *(in_part(file, "b") for file in [*SMALL, DEAD])]
    found = planned(files, BUSY_A)
    assert sorted(work(found)) == [("major", [4, 5, 6, 7]), ("minor", [0, 1, 2])]
    reasons = {scope.partition_values["part"]: scope.reason for scope in found.scopes}
    assert reasons == {
        "a": "1 group for minor; major waits for another 50 s without a commit to the partition",
        "b": "1 group for major",
    }


def test_a_partition_that_may_have_been_written_is_hot() -> None:
    """The commits to others since then say nothing about it, so it waits from the oldest of them on."""
    past = history(*stream(B, range(950, 1000)), whole=False)
    later = [planned([*SMALL, DEAD], past, now_ms=at_s * SECOND) for at_s in (1000, 1009, 1010)]
    assert [group.level for found in later for group in found.groups] == ["minor", "minor", "major"]
    assert later[0].scopes[0].reason == (
        "1 group for minor; major waits for another 10 s without a commit to the partition"
    )


def in_part(file: File, part: str) -> File:
    return File(file.size, file.at, part, rows=file.rows, dead=file.dead)


def test_major_comes_when_the_partition_has_been_quiet() -> None:
    """The gaps are 10 s, so it waits for the least time, 60 s after the last commit at 990 s."""
    later = [planned([*SMALL, DEAD], BUSY_A, now_ms=at_s * SECOND) for at_s in (1049, 1050)]
    assert [work(found) for found in later] == [[("minor", [0, 1, 2])], [("major", [0, 1, 2, 3])]]


def test_a_half_dead_partition_does_not_wait() -> None:
    found = planned([File(900, at=1, rows=100, dead=60), File(100, at=1, rows=10)], BUSY_A)
    assert work(found) == [("major", [0, 1])]
    assert found.scopes[0].reason == "1 group for major; major does not wait, because half of the partition is dead"


def test_a_file_that_waits_says_so() -> None:
    table = table_of([DEAD, File(900, at=1, rows=100)])
    request = CompactionRequest("auto")
    found = plan_snapshot(table.at(), request, history=BUSY_A, now_ms=NOW_S * SECOND, explain=True)
    assert [entry.reason for entry in found.reasons] == [
        "large enough for now; major waits for another 50 s without a commit to the partition",
        "large enough",
    ]


def test_without_major_everything_is_minor() -> None:
    assert work(planned([*SMALL, DEAD], History(), major=False)) == [("minor", [0, 1, 2])]


def test_major_of_merely_small_files_waits_for_growth() -> None:
    """Otherwise each quiet minute would rewrite the largest of them with the few new ones."""
    files = [File(700, at=1), File(10, at=2), File(10, at=3)]
    assert work(planned(files, History())) == []
    assert work(planned(files, History(), growth=1.0)) == [("major", [0, 1, 2])]
    assert numbers(plan(table_of(files), "major")) == [[0, 1, 2]], "a user who asks for it gets it"


# --- ranking and budget ----------------------------------------------------------------------------------------------


def test_the_best_groups_come_first() -> None:
    """By debt removed per byte rewritten: dead files cost nothing; small files are cheap to merge."""
    files = [
        File(900, at=1, part="few", rows=100, dead=10),
        File(900, at=1, part="half", rows=100, dead=49),
        *(File(200, at=at, part="b", rows=5) for at in range(3)),
        *(File(10, at=at, part="c", rows=5) for at in range(3)),
        File(900, at=1, part="gone", rows=100, dead=100),
    ]
    found = planned(files, History())
    order = [group.partition_values["part"] for group in found.groups]
    assert order == ["gone", "c", "b", "half", "few"]
    assert [scope.partition_values["part"] for scope in found.scopes] == order
    scores = [scope.score for scope in found.scopes]
    assert scores == sorted(scores, reverse=True)
    assert [scope.groups for scope in found.scopes] == [1] * 5


def test_a_budget_takes_the_best_groups_and_says_what_is_left() -> None:
    files = [File(100 + number, at=at, part=f"p{number}") for number in range(4) for at in range(2)]
    everything = planned(files, History())
    assert len(everything.groups) == 4
    assert everything.left_out.groups == 0
    two = planned(files, History(), budget=Budget(size_bytes=200 + 202))
    assert two.groups == everything.groups[:2]
    assert (two.left_out.groups, two.left_out.files, two.left_out.size_bytes) == (2, 4, 204 + 206)
    assert two.predicted == everything.groups[0].predicted + everything.groups[1].predicted
    seconds = everything.groups[0].predicted.seconds
    assert len(planned(files, History(), budget=Budget(seconds=3.5 * seconds)).groups) == 3
    assert len(planned(files, History(), budget=Budget(1, 0.0001)).groups) == 1, "at least one"


@pytest.mark.parametrize("bounds", [{"size_bytes": 0}, {"seconds": -1.0}, {"seconds": float("nan")}])
def test_a_budget_is_above_zero(bounds: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=r"the budget's \w+ is "):
        Budget(**bounds)  # type: ignore[arg-type]


def test_a_plan_names_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_groups, "MAX_PLANNED_FILES", 5)
    files = [File(10, at=at, part=part) for part in "abc" for at in range(2)]
    found = plan(table_of(files))
    assert numbers(found) == [[0, 1], [2, 3]]
    assert (found.left_out.groups, found.left_out.files) == (1, 2)
    assert [entry.reason for entry in found.reasons[4:]] == ["small; left to a later plan"] * 2
    assert not any(entry.chosen for entry in found.reasons[4:])


def test_a_plan_shows_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_planner, "MAX_SCOPES_SHOWN", 2)
    found = plan(table_of([File(10 * size, at=at, part=part) for size, part in enumerate("abc", 1) for at in range(2)]))
    assert [scope.partition_values for scope in found.scopes] == [{"part": "a"}, {"part": "b"}]
    assert found.num_scopes == 3


def test_files_that_are_set_apart_are_packed_by_themselves_or_left_alone() -> None:
    table = table_of([File(10, at=at, part=part) for part in "ab" for at in range(6)])
    (paths, _) = (group.paths for group in planned(table, History()).groups)
    apart = {"gone": 7, paths[1]: 2, paths[3]: 2, paths[0]: -1, paths[4]: -1}
    assert numbers(planned(table, History(), apart=apart)) == [[6, 7, 8, 9, 10, 11], [2, 5], [1, 3]]
    found = plan_snapshot(table.at(), CompactionRequest("auto"), apart=apart, explain=True)
    left = [entry.path for entry in found.reasons if entry.reason.endswith("is left alone for a while")]
    assert left == [paths[0], paths[4]]
    assert sum(entry.chosen for entry in found.reasons) == 10


def test_a_dead_file_is_dropped_although_it_is_set_apart() -> None:
    table = table_of([File(10, at=1, rows=5, dead=5), File(10, at=2), File(10, at=3, rows=5, dead=5)])
    first = table.at().files()["path"][0].as_py()
    assert numbers(planned(table, History(), apart={first: -1})) == [[0, 2]]


# --- debt and predictions --------------------------------------------------------------------------------------------


def test_the_debt_of_a_partition() -> None:
    files = [File(900, at=1, rows=100, dead=25), File(10, at=1, rows=5), File(30, at=2, rows=5), File(1000, at=3)]
    (debt,) = plan(table_of(files), "major").scopes
    assert (debt.files, debt.small_files, debt.small_bytes) == (4, 2, 40)
    assert (debt.dead_rows, debt.dead_bytes, debt.unclustered_files) == (25, 225, 0)
    assert debt.read_amplification == 2.0, "4 files, whose live rows need 2 of the target size"
    assert debt.groups == 1


def test_clustering_is_debt_as_well() -> None:
    files = [File(1000, at=1, clustered=("n",)), File(1000, at=2)]
    (debt,) = plan(table_of(files), "major", cluster_by=["n"]).scopes
    assert debt.unclustered_files == 1
    assert debt.score == 0.5, "half of a file is saved, if half of the scans are selective"


def test_predictions_follow_the_history() -> None:
    record = measured(files=2, read=20, written=10, seconds=4.0)
    past = history(
        commit(800, A, compaction=True, record=record),
        *[commit(900 + number, A, changes=True) for number in range(20)],
    )
    files = [*SMALL, *(File(10, at=at, part="b") for at in range(3))]
    first, second = planned(files, past).groups
    assert first.partition_values == {"part": "a"}
    assert first.predicted.seconds == second.predicted.seconds > 1.0
    assert first.predicted.bytes_to_write == 15
    assert first.predicted.conflict_odds > 0.1
    assert second.predicted.conflict_odds == 0.0
    assert planned(files, past).predicted.conflict_odds == pytest.approx(first.predicted.conflict_odds)


def test_columns_that_were_dropped_do_not_stop_the_daemon() -> None:
    schema = pa.schema([("part", pa.string()), ("n", pa.int64())])
    table = Table.create("memory://dropped-column", schema, partition_by=["part"],
                         properties={"tidelog.targetFileSize": 1000, "tidelog.clusterBy": "n"})  # fmt: skip
    put_commit(table, *[file.to_add(f"{number:04}") for number, file in enumerate(SMALL)])
    assert planned(table, History()).groups[0].cluster_by == ("n",)
    metadata: Metadata = table.head.metadata
    put_commit(table, msgspec.structs.replace(metadata, configuration={**metadata.configuration,
                                                                       "tidelog.clusterBy": "gone"}))  # fmt: skip
    found = planned(table, History())
    assert work(found) == [("major", [0, 1, 2])]
    assert found.groups[0].cluster_by == ()
    assert found.notes[0].startswith("tidelog.clusterBy is ignored: TIDELOG_CONFIGURATION: cannot cluster: there is no")
    with pytest.raises(ConfigurationError, match="there is no column 'gone'"):
        plan(table, "major")


@st.composite
def some_files(draw: st.DrawFn) -> list[File]:
    sizes = st.one_of(st.integers(1, 100), st.integers(1, 1500))
    one = st.builds(
        lambda size, at, part, dead: File(size, at, part, rows=20, dead=dead),
        sizes, st.integers(0, 50), st.sampled_from(["a", "b", "c", None]), st.sampled_from([0, 0, 1, 5, 20]),
    )  # fmt: skip
    return draw(st.lists(one, max_size=25))


@st.composite
def some_commits(draw: st.DrawFn) -> list[CommitFacts]:
    one = st.builds(
        lambda at_s, late_s, scopes, changes: commit(at_s, *scopes, changes=changes, latest_s=at_s + late_s),
        st.integers(1, 3000), st.integers(0, 300), st.sets(st.sampled_from([A, B])), st.booleans(),
    )  # fmt: skip
    everywhere = st.builds(lambda at_s: commit(at_s, everywhere=True, changes=True), st.integers(1, 3000))
    compactions = st.builds(lambda at_s: commit(at_s, A, compaction=True, record=MEASURED), st.integers(1, 3000))
    return draw(st.lists(st.one_of(one, one, everywhere, compactions), max_size=MAX_KNOWN_WRITES))


@settings(max_examples=40)
@given(some_files(), some_commits(), st.data())
def test_a_plan_depends_on_when_partitions_were_written_and_not_on_the_order_or_the_number_of_looks(
    files: list[File], commits: list[CommitFacts], data: st.DataObject
) -> None:
    table, first, now_ms = table_of(files), commit(0, A), data.draw(st.integers(0, 4000)) * SECOND
    whole = data.draw(st.booleans())
    shuffled = data.draw(st.permutations(commits))
    cut = data.draw(st.integers(0, len(commits)))
    past = history(first, *commits, whole=whole)
    other = history(first, *shuffled[:cut], whole=whole).followed_by(shuffled[cut:])
    other = replace(other, scopes=dict(reversed(list(other.scopes.items()))))
    assert planned(table, past, now_ms=now_ms) == planned(table, other, now_ms=now_ms)


@given(some_files(), st.integers(0, 5000), st.integers(1, 5000))
def test_every_plan_is_the_same_twice_and_a_budget_takes_its_beginning(
    files: list[File], now_s: int, size: int
) -> None:
    table = table_of(files)
    past = history(*stream(A, [10, 20, 40]), commit(50, B, changes=True))
    everything, again = (planned(table, past, now_ms=now_s * SECOND) for _ in range(2))
    assert everything == again
    assert Plan.from_json(everything.to_json()) == everything
    some = planned(table, past, now_ms=now_s * SECOND, budget=Budget(size))
    assert some.groups == everything.groups[: len(some.groups)]
    assert bool(some.groups) == bool(everything.groups)
    assert len(some.groups) <= 1 or some.predicted.bytes_to_read <= size
    assert some.left_out.groups == len(everything.groups) - len(some.groups)
    chosen = [number for group in numbers(everything) for number in group]
    assert len(chosen) == len(set(chosen)), "a file in two groups"
    for group, inside in zip(everything.groups, numbers(everything), strict=True):
        assert len({files[number].part for number in inside}) == 1
        assert group.level == "major" or all(files[number].size < 750 or files[number].dead == 20 for number in inside)
