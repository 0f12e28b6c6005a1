"""Planning the change feed, on tables in memory and without Spark."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.faults import Around, Counting
from tests.streaming.feed_planning.support import (
    PLAIN,
    append,
    appended_paths,
    at,
    ends,
    new_table,
    part_of,
    path_of,
    planner_of,
    start_of,
)
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import HistoryExpiredError, NotAppendOnlyError
from tidelog.log.format import filenames
from tidelog.log.read.table_reader import TableReader
from tidelog.log.state.loader import load
from tidelog.log.system import REAL_SYSTEM, System, utc_text
from tidelog.streaming.feed_planning.feed_planner import FeedPlanner
from tidelog.streaming.feed_planning.limits import NO_LIMITS, ReadLimits
from tidelog.streaming.feed_planning.offsets import COMPLETE, Offset
from tidelog.streaming.feed_planning.query_columns import QueryColumns


class Consumer:
    """Uses a planner as a streaming query does: ask how far to go, then read the files up to there."""

    def __init__(self, planner: FeedPlanner, max_files: int | None) -> None:
        self.planner = planner
        self.limits = ReadLimits(files=max_files)
        self.offset = start_of(planner.table)
        self.read: list[str] = []

    def poll(self) -> bool:
        """One trigger; whether a micro-batch ran."""
        end = self.planner.advance(self.offset, self.planner.table.version, self.limits)
        if end == self.offset:
            return False
        taken = [path_of(change) for change in self.planner.between(self.offset, end)]
        assert taken, "a micro-batch without rows"
        assert self.limits.files is None or len(taken) <= self.limits.files
        self.read += taken
        self.offset = Offset.from_json(json.loads(json.dumps(end.to_json())))
        return True

    def restart(self) -> None:
        """A new process, which knows only the offset."""
        self.planner = planner_of(Table.open(self.planner.table.path))


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["compact", "poll", "restart"]), st.just(0)),
)


@given(st.lists(OPERATIONS, max_size=14), st.none() | st.integers(1, 5))
def test_each_appended_file_is_read_once_in_order_and_no_compacted_file(
    operations: list[tuple[str, int]], max_files: int | None
) -> None:
    table = new_table()
    consumer = Consumer(planner_of(Table.open(table.path)), max_files)
    for operation, count in operations:
        match operation:
            case "append":
                append(table, count)
            case "compact":
                compact(table)
            case "poll":
                consumer.planner.table.refresh()
                consumer.poll()
            case _:
                consumer.restart()
    consumer.planner.table.refresh()
    while consumer.poll():
        pass
    assert consumer.read == appended_paths(table)


@given(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_adjacent_intervals_together_have_every_file_once(
    max_files: int, commits: list[int], data: st.DataObject
) -> None:
    """Even if Spark replays an interval with another limit."""
    table = new_table()
    for count in commits:
        append(table, count)
    planner = planner_of(table.refresh())
    end = start_of(table)
    for _ in range(data.draw(st.integers(0, 10))):
        end = planner.advance(end, table.version, ReadLimits(files=max_files))
    rest = planner.advance(end, table.version, NO_LIMITS)
    taken = [path_of(change) for change in [*planner.between(start_of(table), end), *planner.between(end, rest)]]
    assert taken == appended_paths(table)


def test_compactions_alone_do_not_advance_the_offset() -> None:
    table = new_table()
    append(table, 1)
    append(table, 1)
    planner = planner_of(table)
    done = planner.advance(start_of(table), table.refresh().version, NO_LIMITS)
    for _ in range(3):
        append(table, 1)
        done = planner.advance(done, table.refresh().version, NO_LIMITS)
        assert compact(table).did_anything
    compacted = planner.table.refresh().version
    assert done.version == compacted - 1
    assert planner.advance(done, compacted, NO_LIMITS) == done
    assert planner.advance(done, compacted, ReadLimits(files=1)) == done


def test_a_start_within_a_version_continues_after_the_files_read() -> None:
    table = new_table()
    append(table, 3)
    append(table, 2)
    planner = planner_of(table.refresh())
    first = planner.advance(start_of(table), table.version, ReadLimits(files=2))
    assert at(first) == (1, 2)
    second = planner.advance(first, table.version, ReadLimits(files=2))
    assert at(second) == (2, 1)
    assert at(planner.advance(second, table.version, ReadLimits(files=2))) == (2, COMPLETE)


def test_a_limit_that_ends_at_the_last_file_completes_the_version() -> None:
    table = new_table()
    append(table, 2)
    append(table, 1)
    planner = planner_of(table.refresh())
    assert at(planner.advance(start_of(table), table.version, ReadLimits(files=2))) == (1, COMPLETE)


def test_the_end_is_never_past_the_target_version() -> None:
    table = new_table()
    append(table, 1)
    target = table.refresh().version
    append(table, 1)
    planner = planner_of(table.refresh())
    assert at(planner.advance(start_of(table), target, NO_LIMITS)) == (target, COMPLETE)


# --- commits that an append-only reader cannot show -------------------------------------------------------------------


def test_what_comes_before_a_removal_is_read_first() -> None:
    table = new_table()
    append(table, 1)
    table.delete("n = 0")
    append(table, 2)
    planner = planner_of(table.refresh())
    before = planner.advance(start_of(table), table.version, NO_LIMITS)
    assert at(before) == (1, COMPLETE)
    with pytest.raises(NotAppendOnlyError, match="with a new checkpoint and after=2 ") as caught:
        planner.advance(before, table.version, NO_LIMITS)
    assert caught.value.version == 2
    assert at(planner.advance(start_of(table, 2), table.version, NO_LIMITS)) == (3, COMPLETE)


def test_skipped_commits_are_counted() -> None:
    table = new_table()
    append(table, 1)
    table.delete("n = 0")
    append(table, 2)
    table.delete("n = 1")
    planner = planner_of(table.refresh(), skips_changes=True)
    end = planner.advance(start_of(table), table.version, ReadLimits(files=2))
    assert (at(end), end.skipped) == ((3, 1), 1)
    rest = planner.advance(end, table.version, NO_LIMITS)
    assert (rest.version, rest.skipped) == (4, 2)
    assert len(list(planner.between(start_of(table), rest))) == 3
    append(table, 1)
    last = planner.advance(rest, table.refresh().version, NO_LIMITS)
    assert (last.version, last.skipped) == (5, 2)


# --- predicates -------------------------------------------------------------------------------------------------------


def test_files_without_matching_rows_are_not_read_and_count_nothing() -> None:
    table = new_table()
    append(table, 4)
    append(table, 1)
    append(table, 4)
    planner = planner_of(table.refresh(), columns=QueryColumns(None, "part >= 2", None))
    assert ends(planner, ReadLimits(files=2)) == [(2, COMPLETE), (3, COMPLETE)]
    taken = [part_of(change) for change in planner.between(start_of(table), Offset(table.id, 3))]
    assert taken == ["2", "3", "2", "3"]


def test_a_commit_without_matching_rows_runs_no_micro_batch() -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), columns=QueryColumns(None, "part >= 2", None))
    assert planner.advance(start_of(table), table.version, NO_LIMITS) == start_of(table)


# --- complete until ---------------------------------------------------------------------------------------------------


def test_an_offset_says_until_when_it_is_complete() -> None:
    table = new_table()
    append(table, 2)
    append(table, 2)
    table.set_properties({"delta.checkpointInterval": "50"})
    planner = planner_of(table.refresh())
    partial = planner.advance(start_of(table), table.version, ReadLimits(files=3))
    assert partial.complete_until == utc_text(table.at(version=1).timestamp)
    whole = planner.advance(partial, table.version, NO_LIMITS)
    assert (whole.version, whole.complete_until) == (3, utc_text(table.at(version=3).timestamp))


# --- polling ----------------------------------------------------------------------------------------------------------


class FakeClock(System):
    """A clock that only the test moves."""

    seconds = 1000.0

    def monotonic_s(self) -> float:
        return self.seconds


def test_a_trigger_reads_each_new_commit_once() -> None:
    table = new_table()
    store = Counting(table.store)
    planner = FeedPlanner(TableReader(store, load(store)), REAL_SYSTEM, PLAIN)
    for number in range(5):
        append(table, number + 1)
    store.reads.clear()
    planner.refresh_if_due()
    start = start_of(planner.table, 0)
    end = planner.advance(start, planner.table.version, NO_LIMITS)
    assert [path_of(change) for change in planner.between(start, end)] == appended_paths(table)
    found = [path for path in store.reads if path.endswith(".json")]
    assert found == [filenames.commit_path(version) for version in range(1, 7)], "6 does not exist yet"


class Far(Around):
    """A store whose reads are requests."""

    @property
    def small_reads_at_once(self) -> int:
        return 8


class Looks:
    """Counts how often a planner looks at its table while it is polled 100 times a second."""

    def __init__(self, planner: FeedPlanner, clock: FakeClock) -> None:
        self._planner, self._clock = planner, clock
        self._refresh, self.count = planner.table.refresh, 0

    def during(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
        def counted() -> Any:
            self.count += 1
            return self._refresh()

        self.count = 0
        monkeypatch.setattr(self._planner.table, "refresh", counted)
        for _ in range(int(seconds * 100)):
            self._clock.seconds += 0.01
            self._planner.refresh_if_due()
        return self.count


@pytest.fixture
def polled() -> tuple[Table, Looks]:
    """A table in an object store."""
    table, clock = new_table(), FakeClock()
    far = Far(table.store)
    return table, Looks(FeedPlanner(TableReader(far, load(far)), clock, PLAIN), clock)


def test_each_poll_looks_at_a_table_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    looks = Looks(planner_of(new_table(), clock), clock)
    looks.during(60, monkeypatch)
    assert looks.during(1, monkeypatch) == 100


def test_a_quiet_table_is_looked_at_less_and_less_often(
    polled: tuple[Table, Looks], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, looks = polled
    assert looks.during(0.5, monkeypatch) >= 10
    looks.during(60, monkeypatch)
    assert looks.during(10, monkeypatch) <= 11


def test_a_commit_makes_the_looks_frequent_again(polled: tuple[Table, Looks], monkeypatch: pytest.MonkeyPatch) -> None:
    table, looks = polled
    looks.during(60, monkeypatch)
    append(table, 1)
    looks.during(1.1, monkeypatch)
    assert looks.during(0.5, monkeypatch) >= 10


def test_a_table_that_lost_the_versions_that_the_stream_has_read() -> None:
    table = new_table()
    table.set_properties({"tidelog.maxTransactionTime": "0 seconds"})
    append(table, 1)
    table.checkpoint()
    table.expire(older_than=timedelta(0))
    planner = planner_of(table.refresh())
    planner.require_reached(start_of(table, table.version))
    with pytest.raises(HistoryExpiredError, match=r"read version 9 .*restored from an older copy") as caught:
        planner.require_reached(start_of(table, 9))
    assert (caught.value.earliest_version, caught.value.latest_version) == (2, table.version)
