"""Which files a MINOR compaction rewrites; the files exist in the log only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction_daemon.planning.planned_tables import File, numbers, table_of
from tidelog.compaction_daemon import plan
from tidelog.compaction_daemon.planning import decisions
from tidelog.compaction_daemon.planning.plan import oldest_ms
from tidelog.log.errors import ConfigurationError

DAY_MS = 86_400_000


def grouped(files: Sequence[File], *, growth: float = 1.0, target: int = 1000, span: str = "1 day") -> list[list[int]]:
    """The numbers of the files in each group, in the plan's order."""
    return numbers(plan(table_of(files, target=target, span=span), growth=growth))


def test_small_files_are_packed_in_the_order_of_their_commits() -> None:
    assert grouped([File(10, at=3), File(10, at=1), File(10, at=2)]) == [[1, 2, 0]]


def test_files_with_the_same_commit_time_stay_in_log_order() -> None:
    assert grouped([File(10, at=1), File(10, at=1), File(10, at=1)]) == [[0, 1, 2]]


def test_a_file_of_three_quarters_of_the_target_is_large_and_left_alone() -> None:
    assert grouped([File(749, at=1), File(749, at=2), File(750, at=3), File(5000, at=4), File(10, at=5)]) == [[1, 4]]


def test_a_group_is_full_at_the_target_size() -> None:
    assert grouped([File(500, at=at) for at in range(5)]) == [[0, 1], [2, 3]]
    assert grouped([File(501, at=at) for at in range(4)]) == []
    assert grouped([File(334, at=at) for at in range(6)]) == [[0, 1], [2, 3], [4, 5]]


def test_the_last_two_groups_share_their_files_unless_one_would_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths(files: Sequence[File]) -> list[int]:
        groups = sorted(grouped(files))
        assert [*chain(*groups)] == [*range(len(files))]
        return [len(group) for group in groups]

    assert lengths([File(100, at=at) for at in range(16)]) == [8, 8]
    assert lengths([File(100, at=at) for at in range(15)]) == [10, 5], "700 bytes would be small"
    assert lengths([File(100, at=at) for at in range(36)]) == [10, 10, 8, 8]
    assert lengths([File(0, at=at) for at in (0, 0, DAY_MS + 1, DAY_MS + 1)]) == [2, 2]
    assert lengths([File(100, at=0)] * 10 + [File(100, at=DAY_MS + 1)] * 6) == [10, 6], "they are a day apart"
    two_days = [File(350, at=0), File(350, at=0), *(File(size, at=2 * DAY_MS) for size in (100, 375, 375))]
    assert lengths(two_days) == [2, 3], "the first three would be two days apart"
    few_large = [File(400, at=0), File(400, at=1), *(File(100, at=at) for at in range(2, 10))]
    assert lengths(few_large) == [2, 8]
    monkeypatch.setattr(decisions, "MAX_GROUP_FILES", 6)
    assert lengths(few_large) == [4, 6]


def test_a_lone_file_is_not_a_group() -> None:
    assert grouped([File(10, at=1)]) == []
    assert grouped([]) == []


def test_partitions_are_not_mixed() -> None:
    parts = ["a", "b", None, "a", "b", None, "c", ""]
    found = plan(table_of([File(10, at=at, part=part) for at, part in enumerate(parts)]))
    assert sorted(numbers(found)) == [[0, 3], [1, 4], [2, 5, 7]], "the empty text is null"
    partitions = [dict(group.partition_values) for group in found.groups]
    assert partitions == [{"part": None}, {"part": "a"}, {"part": "b"}], "the most files per byte first"


def test_commits_further_apart_than_the_span_are_not_mixed() -> None:
    day = DAY_MS
    files = [File(10, at=0), File(10, at=day), File(10, at=day + 1), File(10, at=2 * day + 1), File(10, at=9 * day)]
    assert grouped(files) == [[0, 1], [2, 3]]
    assert grouped(files, span="9 days") == [[0, 1, 2, 3, 4]]


def test_a_compacted_file_is_as_old_as_its_oldest_rows() -> None:
    compacted = File(10, at=DAY_MS, oldest=0)
    assert grouped([compacted, File(10, at=DAY_MS + 1)]) == []
    assert grouped([compacted, File(10, at=DAY_MS)]) == [[0, 1]]
    assert oldest_ms(compacted.to_add("x")) == 0
    assert oldest_ms(File(1, at=7).to_add("x")) == 7


def test_growth_waits_until_a_rewrite_pays() -> None:
    """With 100 bytes next to 10, nine tenths of the rewrite would repeat the last one."""
    assert grouped([File(100, at=1), File(10, at=2)], growth=2.0) == []
    assert grouped([File(100, at=1), *[File(10, at=at) for at in range(2, 10)]], growth=2.0) == []
    assert grouped([File(100, at=1), *[File(10, at=at) for at in range(2, 11)]], growth=2.0) == [list(range(10))]
    # Two files with equally many rows differ by some bytes, and still count as twice one.
    assert grouped([File(100, at=1), File(98, at=2)], growth=2.0) == [[0, 1]]
    assert grouped([File(100, at=1), File(10, at=2)]) == [[0, 1]]


def test_a_group_that_becomes_large_pays_regardless_of_growth() -> None:
    assert grouped([File(700, at=1), File(50, at=2)], growth=2.0) == [[0, 1]]
    assert grouped([File(700, at=1), File(49, at=2)], growth=2.0) == []


def test_the_plan_counts_files() -> None:
    found = plan(table_of([File(10, at=1), File(10, at=2), File(900, at=3), File(10, at=4, part="b")]))
    assert (found.level, found.version, found.num_files, found.small_files) == ("minor", 1, 4, 3)
    assert [group.size_bytes for group in found.groups] == [20]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is no compaction level 'huge'; use one of minor, major"):
        plan(table_of([]), "huge")


@st.composite
def some_file(draw: st.DrawFn) -> File:
    at = draw(st.integers(0, 300))
    # A compaction keeps the span of 100, so a file is never wider than that.
    oldest = draw(st.none() | st.integers(max(0, at - 100), at))
    return File(draw(st.integers(1, 1500)), at, draw(st.sampled_from(["a", "b", None])), oldest)


FILES = st.lists(some_file(), max_size=25)


@given(FILES, st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_every_plan_keeps_the_rules(files: list[File], growth: float) -> None:
    target, span = 1000, 100
    table = table_of(files, target=target, span=f"{span} milliseconds")
    found = plan(table, growth=growth)
    assert plan(table, growth=growth) == found, "not deterministic"
    chosen = [number for group in numbers(found) for number in group]
    assert len(chosen) == len(set(chosen)), "a file in two groups"
    small = {number for number, file in enumerate(files) if file.size < target * 3 // 4}
    assert found.small_files == len(small)
    for group in numbers(found):
        members = [files[number] for number in group]
        assert len(group) > 1
        assert set(group) <= small
        (part,) = {file.part for file in members}
        assert sum(file.size for file in members) <= target
        oldest = min(file.at if file.oldest is None else file.oldest for file in members)
        assert members[-1].at - oldest <= span
        assert growth == 1.0 or sum(file.size for file in members) >= min(
            0.95 * growth * max(file.size for file in members), target * 3 / 4
        )
        # Order is kept: the group is a run of neighbours among the small files of its partition, oldest commit first.
        line = sorted((number for number in small if files[number].part == part), key=lambda n: (files[n].at, n))
        first = line.index(group[0])
        assert line[first : first + len(group)] == group


@given(st.lists(st.integers(1, 749), max_size=30), st.floats(0.3, 1.0))
def test_repeated_packing_ends(sizes: list[int], shrink: float) -> None:
    """However much a rewrite shrinks the bytes, each plan leaves fewer files, until there is nothing to do."""
    files = [File(size, at=number) for number, size in enumerate(sizes)]
    for _ in range(len(sizes) + 1):
        groups = grouped(files)
        if not groups:
            return
        packed = {number for group in groups for number in group}
        outputs = [
            File(max(1, int(sum(files[n].size for n in group) * shrink)), at=files[group[-1]].at) for group in groups
        ]
        files = [file for number, file in enumerate(files) if number not in packed] + outputs
    raise AssertionError(files)
