"""Compactions in several commits, beside writers that never stop: nothing is lost, nobody fails, and it converges."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.compaction_daemon.compaction.test_compaction import assert_no_orphans
from tests.compaction_daemon.racing import HONEST, clocked, meanwhile
from tests.compaction_daemon.support import live_files, memory_table, numbers_of, put, put_commit
from tidelog.compaction_daemon import (
    Budget,
    CompactionReport,
    Daemon,
    Plan,
    PlannedGroup,
    compact,
    plan,
    prediction_outcomes,
    read_history,
    stage,
)
from tidelog.compaction_daemon.compaction import applying
from tidelog.compaction_daemon.compaction.applying import COMMIT_INTERVAL_S, Conduct
from tidelog.compaction_daemon.compaction.compaction import compact_with
from tidelog.compaction_daemon.planning.request import CompactionRequest
from tidelog.log import OperationClass, Table
from tidelog.log.conflict.staged import MoveGroup
from tidelog.log.errors import (
    CompactionVerificationError,
    ConfigurationError,
    LeaseLostError,
    MetadataChangedException,
    StoreUnavailableError,
    TableReplacedError,
    TidelogError,
)
from tidelog.log.format.actions import SetTransaction

MINOR = CompactionRequest()


@pytest.fixture(autouse=True)
def one_group_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens meanwhile has an order then."""
    monkeypatch.setattr(applying, "THREADS", 1)


# --- commits from time to time ---------------------------------------------------------------------------------------


def test_few_small_groups_are_one_commit() -> None:
    table, _ = clocked("a", "b", "c")
    report = compact(table)
    assert (report.groups, report.versions, report.version) == (3, (10,), 10)


def test_a_long_compaction_commits_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b", "c", "d", "e")
    meanwhile(monkeypatch, lambda _: clock.pass_s(COMMIT_INTERVAL_S / 2))
    reports: list[CompactionReport] = []
    report = compact_with(table, MINOR, Conduct(on_commit=reports.append))
    assert report.versions == (16, 17, 18)
    assert [entry.groups for entry in reports] == [2, 2, 1]
    assert (report.groups, report.files_removed, report.files_added) == (5, 15, 5)
    assert report.bytes_read == sum(entry.bytes_read for entry in reports)
    assert report.seconds == 5 * COMMIT_INTERVAL_S / 2
    assert (report.rebased_over, report.wasted_bytes, report.groups_left) == ((), 0, 0)
    assert Counter(numbers_of(table)) == Counter([0, 1, 2] * 5)
    assert table.version == 18, "the table is at the newest version"


def test_much_data_is_committed_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked("a", "b", "c")
    monkeypatch.setattr(applying, "COMMIT_BYTES", 1)
    assert len(compact(table).versions) == 3
    table, _ = clocked("a", "b", "c")
    monkeypatch.setattr(applying, "COMMIT_BYTES", 2**40)
    monkeypatch.setattr(applying, "COMMIT_ROWS", 6)
    assert len(compact(table).versions) == 2


def test_an_executor_is_kept_busy_across_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that are being rewritten while others are committed are committed later, on the version they began on."""
    table, _ = clocked(*"abcdefgh")
    monkeypatch.setattr(applying, "COMMIT_BYTES", 1)
    monkeypatch.setattr(applying, "MAX_RUNNING", 3)
    with ThreadPoolExecutor(3) as executor:
        report = compact(table, executor=executor)
    assert (report.groups, report.files_added) == (8, 8)
    assert len(report.versions) > 1
    assert Counter(numbers_of(table)) == Counter([0, 1, 2] * 8)
    assert_no_orphans(table)


def test_a_group_is_followed_from_the_version_that_it_was_begun_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of `b` are deleted during its rewrite, then `a` is committed, then `b`."""
    table, _ = clocked("a", "b")
    deleted, committed = threading.Event(), threading.Event()

    def happens(group: PlannedGroup) -> None:
        if group.partition_values["part"] == "a":
            assert deleted.wait(30)
        else:
            Table.open(table.path).delete("part = 'b' and n = 1")
            deleted.set()
            assert committed.wait(30)

    meanwhile(monkeypatch, happens)
    monkeypatch.setattr(applying, "COMMIT_BYTES", 1)
    with ThreadPoolExecutor(2) as executor:
        report = compact_with(table, MINOR, Conduct(executor, on_commit=lambda _: committed.set()))
    assert (report.groups, report.rebased_over) == (2, (7,))
    assert (numbers_of(table, part="a"), numbers_of(table, part="b")) == ([0, 1, 2], [0, 2])
    assert len(live_files(table)) == 2


def test_what_was_committed_survives_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b", "c", "d")
    done: list[str | None] = []

    def third_is_killed(group: PlannedGroup) -> None:
        clock.pass_s(COMMIT_INTERVAL_S)
        done.append(group.partition_values["part"])
        if len(done) == 3:
            raise KeyboardInterrupt

    meanwhile(monkeypatch, third_is_killed)
    with pytest.raises(KeyboardInterrupt):
        compact(table)
    assert table.refresh().version == 14
    assert len(live_files(table)) == 2 + 2 * 3
    monkeypatch.undo()
    assert compact(table).groups == 2
    assert Counter(numbers_of(table)) == Counter([0, 1, 2] * 4)


def test_a_conflict_after_a_commit_ends_it_with_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b", "c")
    other = Table.open(table.path)

    def second_meets_new_properties(group: PlannedGroup) -> None:
        clock.pass_s(COMMIT_INTERVAL_S)
        if group.partition_values["part"] == "b":
            other.set_properties({"delta.dataSkippingNumIndexedCols": 1})

    meanwhile(monkeypatch, second_meets_new_properties)
    report = compact(table)
    assert (report.groups, len(report.versions)) == (1, 1)
    assert report.stopped is not None
    assert "TIDELOG_METADATA_CHANGED" in report.stopped
    assert report.groups_left == 1, "the group that lost is not counted: its files are the next plan's"
    assert_no_orphans(table)
    monkeypatch.undo()
    assert compact(table).groups == 2


def test_a_conflict_before_the_first_commit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked("a")
    meanwhile(monkeypatch, lambda _: Table.open(table.path).set_properties({"delta.dataSkippingNumIndexedCols": 1}))
    with pytest.raises(MetadataChangedException):
        compact(table)


def test_groups_that_others_took_between_two_commits_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b", "c")

    def others_take_c(group: PlannedGroup) -> None:
        clock.pass_s(COMMIT_INTERVAL_S)
        if group.partition_values["part"] == "a":
            Table.open(table.path).truncate(where="part = 'c'")

    meanwhile(monkeypatch, others_take_c)
    report = compact(table)
    assert report.groups == 2
    assert [(drop.partition_values, drop.files) for drop in report.dropped] == [({"part": "c"}, 3)]
    assert report.wasted_bytes == 0, "its files were not rewritten in vain"
    assert report.rebased_over == (10,)


def test_a_compaction_can_be_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked("a", "b", "c")
    done: list[PlannedGroup] = []
    meanwhile(monkeypatch, done.append)
    report = compact_with(table, MINOR, Conduct(stopping=lambda: len(done) == 2))
    assert (report.groups, report.groups_left) == (2, 1)
    assert compact_with(table, MINOR, Conduct(stopping=lambda: True)).did_anything is False


def test_both_levels_are_committed_as_what_they_are() -> None:
    """`auto` on partitions that were written this moment, and on one that is half dead."""
    table = memory_table()
    for number in range(3):
        put(table, number, part="a")
    put(table, *range(10), part="b")
    table.delete("part = 'b' and n < 6")
    report = compact_with(table, CompactionRequest("auto"), Conduct(), history=read_history(table.refresh()))
    assert report.levels == ("major", "minor")
    assert len(report.versions) == 2
    assert {record.operation_class for record in table.history(2)} == {OperationClass.MINOR, OperationClass.MAJOR}
    assert Counter(numbers_of(table)) == Counter([0, 1, 2, 6, 7, 8, 9])


# --- errors after a commit -------------------------------------------------------------------------------------------


def breaking(monkeypatch: pytest.MonkeyPatch, part: str, failure: Exception) -> None:
    """Commit each group by itself, and let the rewrite in one partition fail."""

    def rewritten(*args: Any, **named: Any) -> MoveGroup:
        if args[2].partition_values["part"] == part:
            raise failure
        return HONEST(*args, **named)

    monkeypatch.setattr(applying, "rewrite", rewritten)
    monkeypatch.setattr(applying, "COMMIT_BYTES", 1)


@pytest.mark.parametrize(
    "failure",
    [
        CompactionVerificationError("rows are missing", path="x", evidence="y"),
        TableReplacedError("it is another table", advice="open it again; nothing was committed", path="x"),
        ConfigurationError("the clock is wrong; nothing was committed"),
    ],
)
def test_an_error_after_a_commit_says_what_was_committed(
    failure: TidelogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = clocked("a", "b")
    breaking(monkeypatch, "b", failure)
    with pytest.raises(type(failure)) as raised:
        compact(table)
    assert (table.refresh().version, len(live_files(table))) == (7, 1 + 3)
    text = str(raised.value)
    assert "what this compaction committed before stays, up to version 7" in text
    assert "nothing was committed" not in text
    report: Any = raised.value.fields["report"]
    assert (report.versions, report.groups, report.files_removed) == ((7,), 1, 3)
    assert pickle.loads(pickle.dumps(raised.value)).report == report
    assert_no_orphans(table)


def test_an_error_discards_what_was_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked("a", "b", "c")
    sizes = {part: sum(add.size for add in live_files(table) if add.partition_values["part"] == part) for part in "abc"}
    breaking(monkeypatch, "b", LeaseLostError("taken over", path="x"))
    monkeypatch.setattr(applying, "COMMIT_BYTES", 2**40)
    reports: list[CompactionReport] = []
    with pytest.raises(LeaseLostError):
        compact_with(table, MINOR, Conduct(on_end=reports.append))
    (report,) = reports
    assert (report.versions, report.bytes_read) == ((), sizes["a"] + sizes["b"]), "c was not begun"
    assert report.wasted_bytes == report.bytes_written > 0
    assert_no_orphans(table)


def test_an_error_before_any_commit_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked("a")
    breaking(monkeypatch, "a", TableReplacedError("another", advice="nothing was committed", path="x"))
    with pytest.raises(TableReplacedError, match="; nothing was committed") as raised:
        compact(table)
    assert "report" not in raised.value.fields


def test_a_store_that_fails_after_a_commit_does_not_claim_that_nothing_was(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = clocked("a", "b")
    breaking(monkeypatch, "b", StoreUnavailableError("full", advice="free it; nothing was committed", path="x"))
    report = compact(table)
    assert (report.versions, report.groups_left) == ((7,), 0)
    assert report.stopped is not None
    assert "nothing more was committed" in report.stopped


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LeaseLostError("taken over", path="x"), None),
        (CompactionVerificationError("rows are missing", path="x", evidence="y"), "TIDELOG_COMPACTION_VERIFICATION"),
        (ZeroDivisionError("a bug"), "TIDELOG_RETRYABLE"),
    ],
)
def test_a_daemon_counts_what_was_committed_before_an_error(
    failure: Exception, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock = clocked("a", "b", "c")
    sizes = sum(add.size for add in live_files(table))
    daemon = Daemon([table.path], clock=clock)
    breaking(monkeypatch, "c", failure)
    (step,) = daemon.step().tables
    assert (step.compaction.versions, step.compaction.groups) == ((10, 11), 2)
    assert (step.error.code if step.error else None) == code
    (status,) = daemon.status().tables
    assert (status.totals.compactions, status.totals.files_removed) == ({"minor": 2}, 6)
    assert status.totals.bytes_read == daemon.status().bytes_last_hour == sizes
    assert status.debt[-1].version == status.version == 11
    assert status.last_compaction is not None
    assert_no_orphans(table)


def test_a_lease_that_is_lost_between_two_commits_counts_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b")
    daemon = Daemon([table.path], clock=clock)

    def another_takes_over(group: PlannedGroup) -> None:
        if group.partition_values["part"] == "b":
            epoch = table.refresh().transactions.get("tidelog.daemon/0", 0)
            put_commit(Table.open(table.path), SetTransaction("tidelog.daemon/0", epoch + 5, 1))

    meanwhile(monkeypatch, another_takes_over)
    monkeypatch.setattr(applying, "COMMIT_BYTES", 1)
    (step,) = daemon.step().tables
    assert (step.error, step.compaction.groups, len(step.compaction.versions)) == (None, 1, 1)
    assert step.compaction.wasted_bytes > 0
    assert daemon.status().tables[0].totals.compactions == {"minor": 1}
    assert_no_orphans(table)


# --- plans and records -----------------------------------------------------------------------------------------------


def test_a_kept_plan_is_applied_as_far_as_it_fits() -> None:
    table, _ = clocked("a", "b")
    kept = Plan.from_json(plan(table).to_json())
    table.truncate(where="part = 'a'")
    report = compact(table, plan=kept)
    assert (report.groups, report.files_removed) == (1, 3)
    assert [drop.partition_values for drop in report.dropped] == [{"part": "a"}]
    again = compact(table, plan=kept)
    assert not again.did_anything
    assert len(again.dropped) == 2


@pytest.mark.parametrize("other", [{"level": "major"}, {"where": "part = 'a'"}, {"budget": Budget(1)}])
def test_a_plan_stands_alone(other: dict[str, Any]) -> None:
    table, _ = clocked("a")
    with pytest.raises(ConfigurationError, match="a plan already says what to do"):
        compact(table, plan=plan(table), **other)


def test_predictions_are_recorded_with_what_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b")
    meanwhile(monkeypatch, lambda _: clock.pass_s(3))
    report = compact(table)
    (outcome,) = prediction_outcomes(read_history(table))
    assert (outcome.version, outcome.groups, outcome.seconds) == (report.version, 2, 6.0)
    assert outcome.predicted == report.predicted
    assert (outcome.bytes_read, outcome.bytes_written) == (report.bytes_read, report.bytes_written)
    assert outcome.had_conflict is False
    for number in range(3):
        put(table, number, part="a")
    assert 2 < plan(table).groups[0].predicted.seconds < 4, "the next plan has learned"


def test_a_staged_compaction_records_what_it_cost_as_well() -> None:
    table, _ = clocked("a", "b")
    stage(table).commit()
    (outcome,) = prediction_outcomes(read_history(table.refresh()))
    assert outcome.groups == 2
    assert outcome.bytes_written == sum(add.size for add in live_files(table))


def test_only_new_commits_are_read_for_a_known_history() -> None:
    table, _ = clocked("a")
    first = read_history(table)
    (written,) = first.scopes.values()
    assert (first.version, [each.version for each in written.all]) == (3, [1, 2, 3])
    compact(table)
    second = read_history(table.refresh(), first)
    assert (second.version, second.scopes, len(second.compactions)) == (4, first.scopes, 1)
    assert read_history(table, second) is second


def test_each_commit_carries_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = clocked("a", "b")
    meanwhile(monkeypatch, lambda _: clock.pass_s(COMMIT_INTERVAL_S))
    report = compact_with(table, MINOR, Conduct(fence=SetTransaction("tidelog.daemon/0", 7, 1)))
    assert len(report.versions) == 2
    assert table.refresh().transactions["tidelog.daemon/0"] == 7
    put(table, 5, part="a")
    with pytest.raises(LeaseLostError):
        compact_with(table, MINOR, Conduct(fence=SetTransaction("tidelog.daemon/0", 6, 1)))
    assert_no_orphans(table)
