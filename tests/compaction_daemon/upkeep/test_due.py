"""What is due, as pure functions."""

from __future__ import annotations

import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.compaction_daemon.upkeep.due import (
    CLEAN_UPS,
    PERIODS_MS,
    Chore,
    LastTime,
    TableAge,
    checkpoint_is_due,
    due_ms,
    is_settled,
    period_of,
    phase_ms,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000
WEEK_MS = 7 * DAY_MS
OLD = TableAge("t", NOW_MS - 100 * DAY_MS, NOW_MS, NOW_MS)


@pytest.mark.parametrize(
    ("version", "checkpoint", "is_due"),
    [(98, None, False), (99, None, True), (99, 0, False), (100, 0, True), (250, 150, True), (249, 150, False)],
)
def test_a_checkpoint_is_due_after_the_interval(version: int, checkpoint: int | None, is_due: bool) -> None:
    assert checkpoint_is_due(version, checkpoint, 100) is is_due


@pytest.mark.parametrize("chore", CLEAN_UPS)
def test_a_table_is_cleaned_up_within_an_hour_after_it_was_first_seen(chore: Chore) -> None:
    at_ms = due_ms(chore, OLD, None, WEEK_MS, NOW_MS)
    assert at_ms is not None
    assert NOW_MS <= at_ms < NOW_MS + HOUR_MS


@given(st.uuids().map(str), st.sampled_from(CLEAN_UPS), st.integers(NOW_MS, NOW_MS + HOUR_MS), st.integers(5, 60))
def test_restarts_do_not_postpone_it(table_id: str, chore: Chore, start_ms: int, every_minutes: int) -> None:
    every_ms = every_minutes * 60_000
    starts_ms = range(start_ms, start_ms + HOUR_MS, every_ms)
    found = [due_ms(chore, TableAge(table_id, None, seen_ms, NOW_MS), None, WEEK_MS, seen_ms) for seen_ms in starts_ms]
    assert any(seen_ms <= (at_ms or 0) < seen_ms + every_ms for seen_ms, at_ms in zip(starts_ms, found, strict=True))


@pytest.mark.parametrize("chore", CLEAN_UPS)
def test_a_new_table_waits_until_anything_can_be_old_enough(chore: Chore) -> None:
    at_ms = due_ms(chore, TableAge("t", NOW_MS, NOW_MS, NOW_MS), None, WEEK_MS, NOW_MS)
    assert at_ms is not None
    assert NOW_MS + WEEK_MS <= at_ms < NOW_MS + WEEK_MS + HOUR_MS


def test_a_table_that_does_not_say_when_it_was_created_counts_as_old() -> None:
    at_ms = due_ms(Chore.EXPIRE, TableAge("t", None, NOW_MS, NOW_MS), None, WEEK_MS, NOW_MS)
    assert at_ms is not None
    assert at_ms < NOW_MS + HOUR_MS


@given(st.uuids(), st.sampled_from(CLEAN_UPS), st.integers(0, 2 * WEEK_MS))
def test_it_is_due_once_a_period_at_the_same_time(table: uuid.UUID, chore: Chore, later_ms: int) -> None:
    age = TableAge(str(table), None, 0, NOW_MS + later_ms)
    period_ms = PERIODS_MS[chore]
    done_ms = NOW_MS + later_ms
    first = due_ms(chore, age, LastTime(done_ms), WEEK_MS, done_ms)
    assert first is not None
    assert done_ms + period_ms // 2 <= first < done_ms + period_ms // 2 + period_ms
    # It may take until half a period later, and is then due at the table's own time again.
    for delay_ms in (0, 1, period_ms // 2):
        assert due_ms(chore, age, LastTime(first + delay_ms), WEEK_MS, first + delay_ms) == first + period_ms


def test_tables_are_spread_over_the_day() -> None:
    hours = [phase_ms(str(uuid.UUID(int=number * 7919)), Chore.VACUUM, DAY_MS) // HOUR_MS for number in range(2400)]
    sizes = [len(list(group)) for _, group in itertools.groupby(sorted(hours))]
    assert len(sizes) == 24
    assert max(sizes) < 2 * min(sizes)


def test_a_last_time_in_the_future_counts_as_never() -> None:
    """Somebody's clock was years ahead when the record was written."""
    at_ms = due_ms(Chore.VACUUM, OLD, LastTime(NOW_MS + 1000 * DAY_MS), WEEK_MS, NOW_MS)
    assert at_ms is not None
    assert at_ms < NOW_MS + HOUR_MS
    skewed = due_ms(Chore.VACUUM, OLD, LastTime(NOW_MS + HOUR_MS), WEEK_MS, NOW_MS)
    assert skewed is not None
    assert skewed >= NOW_MS + DAY_MS // 2


@pytest.mark.parametrize("chore", CLEAN_UPS)
def test_a_table_without_commits_is_left_alone_once_all_was_old_enough(chore: Chore) -> None:
    """Only files that no commit names can still appear, which a listing finds."""
    quiet = TableAge("t", None, 0, NOW_MS - WEEK_MS - DAY_MS)
    at_ms = due_ms(chore, quiet, LastTime(NOW_MS, is_complete=True), WEEK_MS, NOW_MS)
    assert (at_ms is None) is (chore is not Chore.LISTING)
    assert due_ms(chore, quiet, LastTime(NOW_MS, is_complete=False), WEEK_MS, NOW_MS) is not None
    assert due_ms(chore, quiet, LastTime(NOW_MS - 1, is_complete=True), WEEK_MS, NOW_MS) is not None


def test_settled_is_a_day_after_the_retention() -> None:
    assert not is_settled(LastTime(NOW_MS + WEEK_MS + DAY_MS - 1, is_complete=True), NOW_MS, WEEK_MS)
    assert is_settled(LastTime(NOW_MS + WEEK_MS + DAY_MS, is_complete=True), NOW_MS, WEEK_MS)


@pytest.mark.parametrize(
    ("chore", "retention_ms", "period_ms"),
    [
        (Chore.EXPIRE, 30 * DAY_MS, DAY_MS),
        (Chore.VACUUM, 2 * DAY_MS, DAY_MS),
        (Chore.VACUUM, 6 * HOUR_MS, 3 * HOUR_MS),
        (Chore.VACUUM, 1000, 60_000),
        (Chore.LISTING, 30 * DAY_MS, WEEK_MS),
        (Chore.LISTING, 2 * DAY_MS, WEEK_MS),
        (Chore.LISTING, 6 * HOUR_MS, 21 * HOUR_MS),
    ],
)
def test_a_short_retention_is_kept_as_well_as_a_long_one(chore: Chore, retention_ms: int, period_ms: int) -> None:
    assert period_of(chore, retention_ms) == period_ms
    at_ms = due_ms(chore, OLD, None, retention_ms, NOW_MS)
    assert at_ms is not None
    assert NOW_MS <= at_ms < NOW_MS + min(HOUR_MS, period_ms)
    again_ms = due_ms(chore, OLD, LastTime(at_ms), retention_ms, at_ms)
    assert again_ms is not None
    assert period_ms // 2 <= again_ms - at_ms <= 3 * period_ms // 2


def test_settled_comes_with_the_end_of_a_short_retention() -> None:
    assert not is_settled(LastTime(NOW_MS + HOUR_MS - 1, is_complete=True), NOW_MS, HOUR_MS)
    assert is_settled(LastTime(NOW_MS + HOUR_MS, is_complete=True), NOW_MS, HOUR_MS)
