"""Planning the change feed, on tables in memory and without Spark."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.errors import NotAppendOnlyError
from tidelog.log.format import filenames
from tidelog.log.format.actions import RemoveFile, encode_commit
from tidelog.log.read.timeline import BEFORE_FIRST
from tidelog.log.state import files
from tidelog.log.state.commits import read_commits
from tidelog.log.system import REAL_SYSTEM, System
from tidelog.streaming.datasource.feed_planner import FeedPlanner
from tidelog.streaming.datasource.offsets import Offset

SCHEMA = pa.schema([("part", pa.int64()), ("n", pa.int64())])


def new_table() -> Table:
    return Table.create(f"memory://{uuid.uuid4()}", SCHEMA, partition_by=["part"])


def append(table: Table, num_files: int) -> None:
    """One commit with `num_files` files, one in each partition."""
    table.insert([{"part": part, "n": part} for part in range(num_files)])


def appended_paths(table: Table) -> list[str]:
    """The expected result: the paths of all data-changing adds, read from the log itself."""
    commits = read_commits(table.store, range(table.refresh().version + 1))
    return [add.path for commit in commits for add in commit.adds if add.data_change]


def start_of(table: Table, version: int = BEFORE_FIRST) -> Offset:
    return Offset(table.id, version)


class Consumer:
    """Uses a planner as a streaming query does: ask how far to go, then read the files up to there."""

    def __init__(self, planner: FeedPlanner, max_files: int | None) -> None:
        self.planner = planner
        self.max_files = max_files
        self.offset = start_of(planner.table)
        self.read: list[str] = []

    def poll(self) -> bool:
        """One trigger; whether a micro-batch ran."""
        end = self.planner.advance(self.offset, self.planner.table.version, self.max_files)
        if end == self.offset:
            return False
        taken = [change.files[0].file.path for change in self.planner.between(self.offset, end)]
        assert taken, "a micro-batch without rows"
        assert self.max_files is None or len(taken) <= self.max_files
        self.read += taken
        self.offset = Offset.from_json(json.loads(json.dumps(end.to_json())))
        return True

    def restart(self) -> None:
        """A new process, which knows only the offset."""
        self.planner = FeedPlanner(Table.open(self.planner.table.path), REAL_SYSTEM)


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["compact", "poll", "restart"]), st.just(0)),
)


@given(st.lists(OPERATIONS, max_size=14), st.none() | st.integers(1, 5))
def test_each_appended_file_is_read_once_in_order_and_no_compacted_file(
    operations: list[tuple[str, int]], max_files: int | None
) -> None:
    table = new_table()
    consumer = Consumer(FeedPlanner(Table.open(table.path), REAL_SYSTEM), max_files)
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
    planner = FeedPlanner(table.refresh(), REAL_SYSTEM)
    end = start_of(table)
    for _ in range(data.draw(st.integers(0, 10))):
        end = planner.advance(end, table.version, max_files)
    rest = planner.advance(end, table.version, None)
    taken = [
        change.files[0].file.path for change in [*planner.between(start_of(table), end), *planner.between(end, rest)]
    ]
    assert taken == appended_paths(table)


def test_compactions_alone_do_not_advance_the_offset() -> None:
    table = new_table()
    append(table, 1)
    append(table, 1)
    planner = FeedPlanner(table, REAL_SYSTEM)
    done = planner.advance(start_of(table), table.refresh().version, None)
    for _ in range(3):
        append(table, 1)
        done = planner.advance(done, table.refresh().version, None)
        assert compact(table).did_anything
    compacted = planner.table.refresh().version
    assert done.version == compacted - 1
    assert planner.advance(done, compacted, None) == done
    assert planner.advance(done, compacted, 1) == done


def test_a_start_within_a_version_continues_after_the_files_read() -> None:
    table = new_table()
    append(table, 3)
    append(table, 2)
    planner = FeedPlanner(table.refresh(), REAL_SYSTEM)
    first = planner.advance(start_of(table), table.version, 2)
    assert first == Offset(table.id, 1, 2)
    second = planner.advance(first, table.version, 2)
    assert second == Offset(table.id, 2, 1)
    assert planner.advance(second, table.version, 2) == Offset(table.id, 2)


def test_a_limit_that_ends_at_the_last_file_completes_the_version() -> None:
    table = new_table()
    append(table, 2)
    append(table, 1)
    planner = FeedPlanner(table.refresh(), REAL_SYSTEM)
    assert planner.advance(start_of(table), table.version, 2) == Offset(table.id, 1)


def test_the_end_is_never_past_the_target_version() -> None:
    table = new_table()
    append(table, 1)
    target = table.refresh().version
    append(table, 1)
    planner = FeedPlanner(table.refresh(), REAL_SYSTEM)
    assert planner.advance(start_of(table), target, None) == Offset(table.id, target)


def test_a_commit_that_removed_rows_is_an_error_with_its_version() -> None:
    table = new_table()
    append(table, 1)
    (file,) = files.to_adds(table.refresh().at().files())
    gone = RemoveFile(path=file.path, data_change=True, deletion_timestamp=1, size=file.size)
    content = encode_commit({"inCommitTimestamp": 4_000_000_000_000}, [gone])
    table.store.put_if_absent(filenames.commit_path(table.version + 1), content)
    planner = FeedPlanner(table.refresh(), REAL_SYSTEM)
    with pytest.raises(NotAppendOnlyError, match="continue after it with startingVersion=2 ") as caught:
        planner.advance(start_of(table), table.version, None)
    assert caught.value.version == 2
    assert planner.advance(start_of(table, 2), table.version, None) == start_of(table, 2)


class FakeClock(System):
    """A clock that only the test moves."""

    seconds = 1000.0

    def monotonic_s(self) -> float:
        return self.seconds


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
    table, clock = new_table(), FakeClock()
    return table, Looks(FeedPlanner(Table.open(table.path), clock), clock)


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
