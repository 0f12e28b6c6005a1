"""Many writers at once, in threads, on each store: rows exactly once, no gaps in versions, times in order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TypeVar

from tests.log.support import NUMBERS, numbers, read_numbers, stage_compaction
from tidelog.log import Committed, Table
from tidelog.log.errors import ConcurrentTransactionException, TableExistsError
from tidelog.log.format import filenames
from tidelog.log.state import checkpoint_writer
from tidelog.log.state.commits import read_commit
from tidelog.log.state.loader import load

WRITERS = 6
INSERTS = 8

T = TypeVar("T")


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0)` to `work(count - 1)` in threads that start at the same moment, and return the results."""
    barrier = Barrier(count, timeout=30)

    def run(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def check_log(table: Table) -> None:
    """Versions have no gaps, in-commit timestamps strictly increase, and the totals are right."""
    commits = [read_commit(table.store, version) for version in range(table.version + 1)]
    stamps = [commit.info["inCommitTimestamp"] for commit in commits]
    assert stamps == sorted(set(stamps))
    names = {status.name for status in table.store.list(filenames.LOG_FOLDER)}
    assert {f"{version:020d}.json" for version in range(table.version + 1)} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    head = load(table.store).head
    assert head.totals in (None, checkpoint_writer.totals_of(load(table.store).files()))


def test_concurrent_inserts_are_stored_exactly_once(path: str) -> None:
    Table.create(path, NUMBERS)

    def write(writer: int) -> list[Committed]:
        table = Table.open(path)
        return [table.insert(numbers([writer * INSERTS + number])) for number in range(INSERTS)]

    outcomes = [committed for each in at_once(WRITERS, write) for committed in each]
    table = Table.open(path)
    assert table.version == WRITERS * INSERTS
    assert sorted(committed.version for committed in outcomes) == list(range(1, table.version + 1))
    assert read_numbers(table) == list(range(WRITERS * INSERTS))
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == list(range(WRITERS * INSERTS))
    check_log(table)
    stamps = {record.version: record.timestamp for record in table.history()}
    for committed in outcomes:
        assert committed.timestamp == stamps[committed.version]
        assert all(version < committed.version for version in committed.rebased_over)


def test_threads_can_share_a_table(path: str) -> None:
    table = Table.create(path, NUMBERS)
    at_once(WRITERS, lambda writer: [table.insert(numbers([writer * 3 + number])) for number in range(3)])
    assert read_numbers(table.refresh()) == read_numbers(Table.open(path)) == list(range(WRITERS * 3))


def test_readers_see_whole_commits_only(path: str) -> None:
    """Each commit adds two rows whose sum is zero, so the sum of every snapshot is zero."""
    Table.create(path, NUMBERS)
    done = Event()

    def read(_: int) -> int:
        seen, table, newest = 0, Table.open(path), -1
        while True:
            last = done.is_set()
            rows = table.refresh().scan().to_arrow()["n"].to_pylist()
            assert sum(rows) == 0
            assert len(rows) == 2 * table.version
            assert table.version >= newest
            newest, seen = table.version, seen + 1
            if last:
                return newest

    def work(number: int) -> int:
        if number >= 2:
            return read(number)
        try:
            table = Table.open(path)
            for value in range(1, 11):
                table.insert(numbers([value, -value]))
        finally:
            if number == 0:
                done.set()
        return table.version

    at_once(4, work)
    assert Table.open(path).version == 20


def test_inserts_and_compactions_do_not_lose_each_others_rows(path: str) -> None:
    table = Table.create(path, NUMBERS)
    for number in range(4):
        table.insert(numbers([-number - 1]))

    def work(writer: int) -> int:
        mine = Table.open(path)
        moved = 0
        for number in range(INSERTS):
            if writer < 2:
                moved += isinstance(stage_compaction(mine).commit(), Committed)
            else:
                mine.insert(numbers([writer * INSERTS + number]))
        return moved

    moved = at_once(4, work)
    assert sum(moved[:2]) > 0
    table = Table.open(path)
    expected = sorted([-1, -2, -3, -4, *range(2 * INSERTS, 4 * INSERTS)])
    assert read_numbers(table) == expected
    assert sorted(table.changes(mode="append").to_arrow()["n"].to_pylist()) == expected
    check_log(table)


def test_exactly_one_of_many_creations_succeeds(path: str) -> None:
    def create(_: int) -> str | None:
        try:
            return Table.create(path, NUMBERS).id
        except TableExistsError:
            return None

    ids = [found for found in at_once(8, create) if found]
    assert len(ids) == 1
    assert Table.open(path).id == ids[0]


def test_many_creations_with_exist_ok_open_the_same_table(path: str) -> None:
    assert len(set(at_once(8, lambda _: Table.create(path, NUMBERS, exist_ok=True).id))) == 1


def test_many_copies_of_a_batch_write_it_once(path: str) -> None:
    Table.create(path, NUMBERS)

    def write(_: int) -> int:
        try:
            return Table.open(path).insert(numbers([7]), idempotency_key=("stream", 1)).metrics["numOutputRows"]
        except ConcurrentTransactionException:
            return 0

    assert sorted(at_once(8, write)) == [0] * 7 + [1]
    assert read_numbers(Table.open(path)) == [7]


def test_checkpoints_and_readers_during_writes(path: str) -> None:
    Table.create(path, NUMBERS)

    def work(writer: int) -> None:
        mine = Table.open(path)
        for number in range(INSERTS):
            if writer == 0:
                mine.refresh().checkpoint()
            else:
                mine.insert(numbers([writer * INSERTS + number]))
            assert len(read_numbers(Table.open(path))) <= 3 * INSERTS

    at_once(4, work)
    assert read_numbers(Table.open(path)) == list(range(INSERTS, 4 * INSERTS))
    check_log(Table.open(path))
