"""The files of each partition, moved along the log in both directions."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.log.conflict.actions import NEW, PARTITIONED, A, B, at, commit, dead, live_files
from tests.log.support import remove
from tidelog.log.conflict.partitions import FilesByPartition
from tidelog.log.state import files


def answers(of: FilesByPartition) -> tuple[Any, ...]:
    """All answers about the files that the tests below use."""
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


def test_files_move_along_the_log_in_both_directions() -> None:
    states = [
        FilesByPartition(files.apply(files.EMPTY, HISTORY[:number]), PARTITIONED) for number in range(len(HISTORY) + 1)
    ]
    forward = live_files()
    for each, expected in zip(HISTORY, states[1:], strict=True):
        forward.apply(each)
        assert answers(forward) == answers(expected)
    back = states[-1]
    for each, number in zip(reversed(HISTORY), reversed(range(len(HISTORY))), strict=True):
        back.take_back(each)
        rebuilt = FilesByPartition(files.apply(files.EMPTY, HISTORY[:number]), PARTITIONED)
        assert answers(back) == answers(rebuilt)


def test_removed_files_are_known_until_they_are_added_again() -> None:
    moving = live_files(A, B)
    assert moving.removed([A, B, NEW]) == set()
    moving.apply(commit(remove(A), NEW))
    assert moving.removed([A, B, NEW]) == {"a"}
    moving.apply(commit(A))
    assert moving.removed([A, B, NEW]) == set()
    moving.take_back(commit(A))
    moving.take_back(commit(remove(A), NEW))
    assert moving.removed([A, B, NEW]) == set()
    assert moving.holds([A, B])


def test_a_live_file_is_not_removed_and_is_in_one_partition() -> None:
    assert FilesByPartition(files.apply(files.EMPTY, HISTORY[:2]), PARTITIONED).removed([A]) == set(), (
        "the tombstone is of the same file with another vector"
    )
    moving = live_files(A)
    moving.apply(commit(remove(A)))
    moving.take_back(commit(remove(A)))
    assert moving.removed([A]) == set()
    moving.apply(commit(at("a", "2")))
    assert [moving.beside([at("?", p)]) for p in ("1", "2")] == [set(), {"a"}]
