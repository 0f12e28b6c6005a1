"""What a daemon remembers of groups whose rewrite failed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.compaction_daemon.planning.failed_groups import FIRST_WAIT_S, LONGEST_WAIT_S, FailedGroups
from tidelog.log.errors import (
    CompactionGrowthError,
    CompactionVerificationError,
    CorruptLogError,
    DataFileDamagedError,
    WorkerLostError,
)

LOST = CorruptLogError("lost", path="x")
NOBODY = WorkerLostError("killed")


def live(*paths: str) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(paths, pa.string())])


def test_a_failed_group_is_left_alone_and_then_tried_by_itself() -> None:
    failed = FailedGroups()
    assert failed.fail(["a", "b"], LOST, 0.0)
    assert failed.fail(["c"], ZeroDivisionError("a bug"), 10.0)
    assert failed.apart(FIRST_WAIT_S) == {"a": 1, "b": 1, "c": -2}
    assert failed.apart(FIRST_WAIT_S + 10) == {"a": 1, "b": 1, "c": 2}
    assert [(each.code, each.error) for each in failed.left_alone()] == [
        ("TIDELOG_CORRUPT_LOG", str(LOST)),
        ("TIDELOG_RETRYABLE", "ZeroDivisionError: a bug"),
    ]


def test_each_failure_doubles_the_wait_up_to_a_day() -> None:
    failed = FailedGroups()
    now_s, waits = 0.0, []
    for _ in range(12):
        failed.fail(["a", "b"], LOST, now_s)
        (failure,) = failed.left_alone()
        waits.append(failure.due_s - now_s)
        now_s = failure.due_s
    assert waits == [min(FIRST_WAIT_S * 2**times, LONGEST_WAIT_S) for times in range(12)]


@pytest.mark.parametrize("kind", [CompactionGrowthError, CompactionVerificationError])
def test_what_would_end_the_same_way_waits_for_a_day(kind: type[Exception]) -> None:
    failed = FailedGroups()
    failed.fail(["a"], kind("no"), 0.0)
    assert failed.apart(LONGEST_WAIT_S - 1) == {"a": -1}
    assert len(failed.left_alone()) == int(kind is CompactionVerificationError)


def test_only_a_new_kind_of_error_is_news() -> None:
    failed = FailedGroups()
    errors = [LOST, CorruptLogError("of another file", path="y"), KeyError("n"), KeyError("m"), IndexError("n"), LOST]
    assert [failed.fail(["a"], error, 0.0) for error in errors] == [True, False, True, False, True, True]


def test_a_group_that_fails_again_is_halved_until_few_files_are_left() -> None:
    files = [f"{number:02}" for number in range(40)]
    failed = FailedGroups()
    failed.fail(files, LOST, 0.0)
    left = []
    for day in range(1, 7):
        apart = failed.apart(day * LONGEST_WAIT_S / 2)
        (bad,) = ([path for path in files if apart[path] == number] for number in {apart["14"]})
        left.append(len(files))
        assert failed.fail(bad, LOST, day * LONGEST_WAIT_S / 2) is False
        # The other half was rewritten.
        files = bad
        failed.keep_live(live(*files), day * LONGEST_WAIT_S / 2)
    assert (left, files) == ([40, 40, 20, 10, 5, 3], ["12", "13", "14"])


def test_a_file_that_an_error_names_is_set_apart_without_the_others() -> None:
    failed = FailedGroups()
    failed.fail(["a", "b", "c"], LOST, 0.0)
    failed.fail(["a", "b", "c"], DataFileDamagedError("no footer", path="x", file="b"), 300.0)
    assert failed.apart(300.0) == {"b": -1}
    failed.fail(["d", "e"], DataFileDamagedError("an output", path="x", file="of another group"), 300.0)
    assert failed.apart(300.0) == {"b": -1, "d": -2, "e": -2}


def test_what_was_on_its_way_when_a_worker_was_lost_is_tried_alone() -> None:
    failed = FailedGroups()
    for group in (["a", "b"], ["c", "d"]):
        failed.suspect(group, NOBODY, 0.0)
    assert failed.is_suspect(["a", "b"])
    assert not failed.is_suspect(["e"])
    assert failed.apart(0.0) == {"a": 1, "b": 1, "c": 2, "d": 2}, "at once"
    assert failed.left_alone() == (), "most of them did nothing"
    assert failed.fail(["a", "b"], NOBODY, 0.0)
    assert failed.is_suspect(["a", "b"]), "the next try is alone as well"
    assert failed.apart(0.0) == {"c": 1, "d": 1, "a": -2, "b": -2}
    (failure,) = failed.left_alone()
    assert (failure.code, failure.tries) == ("TIDELOG_WORKER_LOST", 1)


def test_files_that_are_gone_are_forgotten() -> None:
    failed = FailedGroups()
    failed.keep_live(live("a"), 0.0)
    failed.fail(["a", "b"], LOST, 0.0)
    failed.fail(["c"], LOST, 0.0)
    failed.keep_live(live("b", "d"), 0.0)
    assert failed.apart(0.0) == {"b": -1}
    assert len(failed) == 1
    failed.keep_live(live("d"), 0.0)
    assert len(failed) == 0


def test_a_group_that_is_never_tried_is_packed_with_others_after_a_day() -> None:
    failed = FailedGroups()
    failed.fail(["a"], LOST, 0.0)
    failed.keep_live(live("a"), FIRST_WAIT_S + LONGEST_WAIT_S - 1)
    assert len(failed) == 1
    failed.keep_live(live("a"), FIRST_WAIT_S + LONGEST_WAIT_S)
    assert len(failed) == 0
