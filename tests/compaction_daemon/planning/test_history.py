"""What plans learn from recent commits."""

from __future__ import annotations

import math

import msgspec
import pytest

from tests.compaction_daemon.planning.histories import SECOND, A, B, commit, history, measured, stream
from tidelog.compaction_daemon.planning import history as module
from tidelog.compaction_daemon.planning.history import (
    MAX_QUIET_MS,
    MIN_QUIET_MS,
    QUIET_GAPS,
    CommitFacts,
    History,
    facts_of,
    facts_of_large,
    odds,
    prediction_outcomes,
    scope_of,
)
from tidelog.log.format.actions import AddFile, Commit, RemoveFile


def test_a_partition_is_quiet_after_some_of_its_gaps() -> None:
    found, elsewhere = history(*stream(A, [0, 100, 200, 300]), *stream(B, [310])).activity()
    assert found[A].last_ms == 300 * SECOND
    assert found[A].quiet_after_ms == QUIET_GAPS * 100 * SECOND
    assert found[B].quiet_after_ms == MIN_QUIET_MS, "one commit has no gap"
    assert elsewhere is None
    assert found[A].waits_ms(300 * SECOND) == 500 * SECOND
    assert found[A].waits_ms(500 * SECOND) == 300 * SECOND
    assert found[A].waits_ms(800 * SECOND) == found[A].waits_ms(900 * SECOND) == 0
    assert found[A].waits_ms(0) == 500 * SECOND, "a clock that is behind waits the full time"


@pytest.mark.parametrize(("gap_s", "expected_ms"), [(0.1, MIN_QUIET_MS), (12, 60 * SECOND), (86_400, MAX_QUIET_MS)])
def test_the_wait_is_bounded(gap_s: float, expected_ms: int) -> None:
    found, _ = history(*stream(A, [gap_s * number for number in range(5)])).activity()
    assert found[A].quiet_after_ms == expected_ms


def test_compactions_and_commits_without_rows_are_no_activity() -> None:
    idle = commit(60, A)
    idle = CommitFacts(60, idle.timestamp_ms, frozenset(), False, False, False)
    found, elsewhere = history(commit(1, A), commit(50, A, compaction=True), idle).activity()
    assert found[A].last_ms == SECOND
    assert elsewhere is None


def test_a_commit_of_unknown_partitions_counts_for_all() -> None:
    found, elsewhere = history(commit(1, A), commit(50, everywhere=True)).activity()
    assert found[A].last_ms == 50 * SECOND
    assert elsewhere is not None
    assert elsewhere.last_ms == 50 * SECOND


def test_a_partition_that_is_not_named_may_have_been_written_before_the_first_commit_that_is_known() -> None:
    past = history(commit(100, A), commit(900, A), whole=False)
    _, elsewhere = past.activity()
    assert elsewhere is not None
    assert elsewhere.waits_ms(100 * SECOND) == MIN_QUIET_MS
    assert elsewhere.waits_ms(160 * SECOND) == 0
    _, elsewhere = history(commit(100, A, latest_s=130), whole=False).activity()
    assert elsewhere is not None
    assert elsewhere.waits_ms(160 * SECOND) == 30 * SECOND
    _, elsewhere = history(commit(0, everywhere=True), commit(100, everywhere=True), whole=False).activity()
    assert elsewhere is not None
    assert (elsewhere.last_ms, elsewhere.quiet_after_ms) == (100 * SECOND, 500 * SECOND)


def test_silence_is_that_of_the_readers_clock_and_gaps_those_of_the_writers() -> None:
    found, _ = history(commit(100, A, latest_s=700), commit(200, A, latest_s=701)).activity()
    assert (found[A].last_ms, found[A].quiet_after_ms) == (701 * SECOND, 500 * SECOND)


def test_a_long_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN_SCOPES", 3)
    monkeypatch.setattr(module, "MAX_KNOWN_COMPACTIONS", 2)
    parts = [scope_of({"part": str(number)}) for number in range(4)]
    record = measured(files=3, read=1000, written=900, seconds=0.5)
    past = history()
    for at_s in range(40):
        past = past.followed_by([commit(at_s, parts[at_s % 4], changes=True), commit(at_s, record=record)])
    assert set(past.scopes) == {parts[1], parts[2], parts[3]}
    assert (past.first, past.is_whole) == (commit(36).moment, False), "the last commit to the one that was forgotten"
    assert len(past.compactions) == 2
    often = history(*stream(A, range(100)), *[commit(100 + at_s, A, changes=True) for at_s in range(100)])
    assert [len(kept) for kept in often.scopes[A]] == [module.MAX_KNOWN_WRITES] * 2
    assert often.conflict_rates(200 * SECOND)[0][A] == pytest.approx(1.0), "the newest ones count"


def test_of_many_commits_at_once_no_more_is_kept_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN_SCOPES", 3)
    past = history(*[commit(at_s, scope_of({"part": str(at_s)})) for at_s in range(40)])
    assert [scope[0][1] for scope in past.scopes] == ["37", "38", "39"]
    assert past.first == commit(36).moment


def test_a_partition_that_is_quiet_in_any_case_is_forgotten() -> None:
    past = history(commit(0, A), commit(5, B), commit(MAX_QUIET_MS / SECOND, B))
    assert set(past.scopes) == {B}
    found, elsewhere = past.activity()
    assert elsewhere is not None
    assert elsewhere.waits_ms(MAX_QUIET_MS) == 0
    assert found[B].waits_ms(MAX_QUIET_MS) > 0


def test_conflicts_are_counted_per_second() -> None:
    commits = [commit(0, A), commit(10, A, changes=True), commit(20, A, changes=True), commit(30, everywhere=True)]
    commits += [commit(40, A, compaction=True), commit(50, B)]
    rates, elsewhere = history(*commits).conflict_rates(100 * SECOND)
    assert rates == {A: 0.02}
    assert elsewhere == 0.0
    rates, elsewhere = history(*commits, commit(60, everywhere=True, changes=True)).conflict_rates(100 * SECOND)
    assert (rates, elsewhere) == ({A: 0.03}, 0.01)
    assert History().conflict_rates(5) == ({}, 0.0)


def test_odds_are_those_of_a_poisson_process() -> None:
    assert odds(0.0, 100) == 0.0
    assert odds(0.1, 10) == pytest.approx(1 - math.exp(-1))
    assert odds(1e-9, 1) == pytest.approx(1e-9)


def test_the_empty_text_is_null_in_a_partition() -> None:
    assert scope_of({"b": "", "a": "1"}) == (("a", "1"), ("b", None))
    assert scope_of({}) == ()


def add(part: str, *, data_change: bool = True) -> AddFile:
    return AddFile(
        path=f"{part}.parquet", partition_values={"part": part}, size=1, modification_time=1, data_change=data_change
    )


def test_the_facts_of_a_commit() -> None:
    insert = facts_of(Commit(3, {}, (add("a"), add("b"))), 7)
    assert insert == CommitFacts(3, 7, frozenset({A, B}), is_compaction=False, data_change=True, changed_files=False)
    remove = RemoveFile(path="x", data_change=False, deletion_timestamp=1, partition_values={"part": "b"})
    moved = facts_of(Commit(4, {}, (add("a", data_change=False), remove)), 7)
    assert (moved.is_compaction, moved.data_change, moved.changed_files, moved.scopes) == (
        True, False, True, frozenset({A, B})
    )  # fmt: skip
    unknown = RemoveFile(path="x", data_change=True, deletion_timestamp=1)
    assert facts_of(Commit(5, {}, (unknown,)), 7).scopes is None
    assert facts_of(Commit(6, {"operation": "SET TBLPROPERTIES"}, ()), 7).scopes == frozenset()


def test_a_commit_of_very_many_partitions_touches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCOPES", 2)
    scopes = frozenset(facts_of(Commit(1, {}, tuple(map(add, "abc"))), 1).scopes or ())
    assert sorted(scopes, key=str) == [(("part", "a"),), (("part", "b"),), (("part", "c"),)]
    assert facts_of(Commit(1, {}, tuple(map(add, "abcd"))), 1).scopes is None


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, (False, True, True)),
        ({"tidelog": {"class": "INSERT"}}, (False, True, False)),
        ({"tidelog": {"class": "MAJOR"}}, (True, False, True)),
    ],
)
def test_a_large_commit_is_judged_by_its_info(info: dict[str, object], expected: tuple[bool, bool, bool]) -> None:
    found = facts_of_large(1, info, 5)
    assert (found.is_compaction, found.data_change, found.changed_files) == expected
    assert found.scopes is None


def outcome(over: list[int] | None, *commits: CommitFacts) -> bool | None:
    """Whether a compaction of A at version 9, which was rebased over these versions, had a conflict."""
    recorded = {"compaction": {
        "groups": 2, "files": 5, "liveBytes": 90, "clustered": False,
        "predicted": {"bytesRead": 100, "bytesWritten": 90, "seconds": 2.0, "conflictOdds": 0.5},
        "actual": {"bytesRead": 100, "bytesWritten": 80, "seconds": 1.5},
    }} | ({} if over is None else {"rebase": {"over": over}})  # fmt: skip
    made = facts_of(Commit(9, {"tidelog": recorded}, (add("a", data_change=False),)), 9)
    (found,) = prediction_outcomes(history(*commits, made))
    assert (found.version, found.groups, found.predicted.seconds, found.seconds) == (9, 2, 2.0, 1.5)
    assert (found.bytes_read, found.bytes_written, found.predicted.bytes_to_write) == (100, 80, 90)
    return found.had_conflict


def test_predictions_are_compared_with_what_came_out() -> None:
    assert outcome(None) is False
    assert outcome([7, 8], commit(7, A, changes=True), commit(8, A)) is True
    assert outcome([7, 8], commit(7, A), commit(8, B, changes=True)) is False, "inserts and other partitions do no harm"
    assert outcome([7, 8], commit(8, A)) is None, "version 7 is not known any more"
    assert outcome([7, 8], commit(8, A, changes=True)) is True
    assert prediction_outcomes(history(commit(1, A))) == ()


def test_the_record_of_another_version_of_tidelog_is_ignored() -> None:
    recorded = {"tidelog": {"compaction": {"groups": "two"}, "rebase": "no"}}
    found = facts_of(Commit(9, recorded, ()), 9)
    assert (found.record, found.rebased_over) == (None, None)


def test_a_record_survives_the_way_through_a_commit() -> None:
    record = measured(files=3, read=1000, written=900, seconds=0.5)
    info = {"tidelog": {"compaction": msgspec.to_builtins(record)}}
    assert facts_of(Commit(1, info, ()), 1).record == record
