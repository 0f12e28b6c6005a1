"""Reading ahead gives what reading in turn gives, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import live_files, memory_store, new_table
from tidelog.log import Table
from tidelog.log.data.reader import DataFile, read_batches
from tidelog.log.errors import ConfigurationError, DataFileDamagedError, DataFileMissingError
from tidelog.log.read import read_ahead as module
from tidelog.log.read.read_ahead import FILES_AHEAD, SharedThreads, read_ahead

THREADS = 3
FILES = 12
WAIT_S = 30


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def values(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [value for each in batches for value in each["n"].to_pylist()]


def collect(batches: Iterator[pa.RecordBatch], into: list[int]) -> None:
    for each in batches:
        into += each["n"].to_pylist()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tidelog-read-ahead")]


def open_files() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(link.readlink())
    return [str(path) for path in found if path.suffix == ".parquet"]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert not threads()
    assert not open_files()


class Files:
    """Files that say what is read of them. `hold` keeps a file from being read until `release`."""

    def __init__(self, counts: list[int], rows: int = 1) -> None:
        self.counts = counts
        self.rows = rows
        self.begun: list[int] = []
        self.read: list[tuple[int, int]] = []
        self.readers: list[int] = []
        self.closed: list[int] = []
        self.held = {number: threading.Event() for number in range(len(counts))}
        for event in self.held.values():
            event.set()
        self.errors: dict[int, BaseException] = {}

    def __iter__(self) -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
        return (partial(self._batches, number) for number in range(len(self.counts)))

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        self.begun.append(number)
        try:
            for position in range(self.counts[number]):
                assert self.held[number].wait(WAIT_S)
                self.read.append((number, position))
                self.readers.append(threading.get_ident())
                yield batch(*[number * 1000 + position] * self.rows)
            if number in self.errors:
                raise self.errors[number]
        finally:
            self.closed.append(number)


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 16])
def test_batches_come_in_the_order_of_the_files(width: int) -> None:
    counts = [3, 0, 1, 7, 0, 0, 2, 5, 1, 1, 1, 0]
    found = values(read_ahead(Files(counts), width))
    assert found == [number * 1000 + position for number, count in enumerate(counts) for position in range(count)]


def test_a_slow_first_file_does_not_keep_the_others_waiting() -> None:
    files = Files([1] * FILES)
    files.held[0].clear()
    found: list[int] = []
    consumer = threading.Thread(target=lambda: found.extend(values(read_ahead(files, THREADS))))
    consumer.start()
    while len(files.read) < FILES - 1:
        assert consumer.is_alive()
    assert found == []
    files.held[0].set()
    consumer.join(WAIT_S)
    assert found == [number * 1000 for number in range(FILES)]


def test_one_file_and_no_file_need_no_thread() -> None:
    assert values(read_ahead(Files([]), THREADS)) == []
    reading = read_ahead(Files([2]), THREADS)
    next(reading)
    assert not threads()
    assert values(reading) == [1]


def test_nothing_is_read_before_the_first_batch_is_asked_for() -> None:
    files = Files([1, 1])
    reading = read_ahead(files, THREADS)
    assert not files.begun
    del reading
    assert not files.begun


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Wait until no thread reads."""
    made: list[module._Readers] = []

    class Known(module._Readers):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    def settle() -> None:
        while any(readers._turns for readers in made):
            pass

    monkeypatch.setattr(module, "_Readers", Known)
    return settle


@pytest.mark.parametrize("width", [2, 3, 16])
def test_a_consumer_that_stops_stops_the_readers(
    width: int, settle: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the files are: what is held is the bound, and a batch for each thread."""
    bound = 10 * (batch(0).nbytes + module.BATCH_BYTES)
    monkeypatch.setattr(module, "QUEUED_BYTES", bound)
    files = Files([10_000] * 20)
    reading = read_ahead(files, width)
    for taken in range(1, 51):
        next(reading)
        settle()
        assert len(files.read) - taken <= 10 + width
    assert len(set(files.begun)) <= width + 1
    reading.close()
    assert sorted(files.closed) == sorted(files.begun)


def test_files_without_rows_are_not_read_for_ever(settle: Callable[[], None]) -> None:
    files = Files([2] + [0] * 1000)
    reading = read_ahead(files, THREADS)
    next(reading)
    settle()
    assert len(files.begun) <= FILES_AHEAD
    assert values(reading) == [1]
    assert len(files.begun) == 1001


def test_batches_without_columns_are_not_free(settle: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED_BYTES", 20 * module.BATCH_BYTES)
    read: list[int] = []

    def many() -> Iterator[pa.RecordBatch]:
        for number in range(100_000):
            read.append(number)
            yield pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), 5, [None]))

    reading = read_ahead([many, many], THREADS)
    next(reading)
    settle()
    assert len(read) <= 20 + THREADS
    reading.close()


# --- ends ------------------------------------------------------------------------------------------------------------


class OwnError(Exception):
    pass


def test_an_error_comes_in_its_place() -> None:
    files = Files([2] * FILES)
    files.errors = {4: OwnError("fourth"), 5: ValueError("fifth"), 2: OwnError("second")}
    found: list[int] = []
    with pytest.raises(OwnError, match="second"):
        collect(read_ahead(files, THREADS), found)
    assert found == [0, 1, 1000, 1001, 2000, 2001]
    assert sorted(files.closed) == sorted(files.begun)
    assert len(files.begun) < FILES, "no file is begun after an error"


def test_an_error_of_the_sequence_of_files_comes_in_its_place() -> None:
    def files() -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
        yield from Files([1, 1, 1])
        raise OwnError

    found: list[int] = []
    with pytest.raises(OwnError):
        collect(read_ahead(files(), THREADS), found)
    assert found == [0, 1000, 2000]


def test_an_error_of_a_later_file_that_is_never_reached_is_not_raised() -> None:
    files = Files([5, 0, 1])
    files.errors = {1: OwnError()}
    reading = read_ahead(files, THREADS)
    next(reading)
    reading.close()


@pytest.mark.parametrize("end", ["close", "forget", "raise", "exhaust"])
def test_every_end_closes_the_files_and_ends_the_threads(end: str) -> None:
    files = Files([4] * FILES)
    reading = read_ahead(files, THREADS)
    next(reading)
    assert threads()
    if end == "close":
        reading.close()
    elif end == "raise":
        with pytest.raises(OwnError):
            reading.throw(OwnError())
    elif end == "exhaust":
        assert len(list(reading)) == 4 * FILES - 1
    del reading
    assert not threads()
    assert sorted(files.closed) == sorted(files.begun)


def test_an_iterator_can_be_forgotten_in_one_of_its_threads() -> None:
    """Python's garbage collector runs in any thread."""
    files = Files([2] * FILES)
    reading: list[Iterator[pa.RecordBatch]] = []
    gone = threading.Event()

    def drop() -> Iterator[pa.RecordBatch]:
        assert files.held[0].wait(WAIT_S)
        reading.clear()
        gone.set()
        yield batch(1)

    files.held[0].clear()
    reading.append(read_ahead([lambda: iter([batch(0)]), drop, *files], 2))
    next(reading[0])
    files.held[0].set()
    assert gone.wait(WAIT_S)
    for thread in threads():
        thread.join(WAIT_S)


# --- other processes -------------------------------------------------------------------------------------------------


def _sum(path: str) -> int:
    return sum(values(Table.open(path).scan().to_batches()))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), pa.schema([("n", pa.int64())]))
    for number in range(FILES):
        made.insert(pa.table({"n": np.arange(number * 1000, number * 1000 + 1000)}))
    return made


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Spark's workers are forked too
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_ahead_too(table: Table, method: str) -> None:
    """Also after this process has read, so that a forked one finds used locks and thread pools."""
    expected = sum(range(FILES * 1000))
    assert _sum(table.path) == expected
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_sum, [table.path] * 4).get(60) == [expected] * 4


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_cannot_continue_a_read(table: Table) -> None:
    """Its copy of the iterator has no threads: without this error it would wait for ever."""
    reading = table.scan().to_batches()
    next(reading)
    child = os.fork()
    if not child:
        signal.alarm(WAIT_S)
        status = 1
        try:
            next(reading)
        except ConfigurationError:
            del reading
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(values(reading)) == sum(range(1000, FILES * 1000))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_scan_and_changes_come_in_order_with_deletion_vectors(table: Table) -> None:
    start = table.version
    table.delete("n IN (0, 999, 1000, 5500, 11999)")
    live = [n for n in range(FILES * 1000) if n not in (0, 999, 1000, 5500, 11999)]
    assert set(values(table.scan().to_batches())) == set(live)
    in_turn = [
        each["n"].to_pylist()
        for add in live_files(table)
        for each in read_batches(table.store, DataFile.of(add), table.schema)
    ]
    assert values(table.scan().to_batches()) == [n for part in in_turn for n in part]
    assert table.scan("n >= 3000").count() == len([n for n in live if n >= 3000])
    assert values(table.changes(mode="append", until=start).to_batches()) == list(range(FILES * 1000))
    assert values(table.changes(after=start).to_batches()) == [0, 999, 1000, 5500, 11999]


def test_a_read_that_is_closed_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED_BYTES", 1)  # the threads cannot have read everything yet
    rows = np.random.default_rng(1).random(300_000)
    table = Table.create(str(tmp_path / "large"), pa.schema([("v", pa.float64())]))
    for _ in range(3):
        table.insert(pa.table({"v": rows}))
    for scan in (table.scan(), table.changes()):
        reading = iter(scan.to_reader())
        next(reading)
        assert open_files()
        del reading
        assert not open_files()
        assert scan.to_arrow().num_rows == 3 * len(rows)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_rows_before_a_damaged_file_are_read(table: Table, damage: str) -> None:
    files = live_files(table)
    path = Path(table.path) / files[5].path
    expected: type[Exception] = DataFileMissingError if damage == "missing" else DataFileDamagedError
    if damage == "missing":
        path.unlink()
    else:
        os.truncate(path, 100)
    found: list[int] = []
    with pytest.raises(expected):
        collect(table.scan().to_batches(), found)
    assert len(found) == 5000


def test_a_store_says_how_many_files_to_read_at_once(table: Table) -> None:
    assert table.store.reads_at_once == min(pa.cpu_count(), 8)
    assert new_table(memory_store()).store.reads_at_once >= 1


def test_threads_between_two_files_are_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer has taken all that was read, and each thread is about to begin the next file."""
    taken, goes_on = threading.Event(), threading.Event()
    fill = module._Readers._fill

    def filled(self: Any, file: Any) -> None:
        fill(self, file)
        assert goes_on.wait(30)

    class Telling(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            if taken.is_set():
                goes_on.set()
            return super().wait(timeout)

    monkeypatch.setattr(module._Readers, "_fill", filled)
    monkeypatch.setattr(module, "Condition", Telling)
    reading = read_ahead([partial(iter, [batch(number)]) for number in range(4)], 2)
    first = [next(reading), next(reading)]
    taken.set()
    try:
        rest = list(reading)
    finally:
        goes_on.set()
    assert values(iter([*first, *rest])) == [0, 1, 2, 3]


# --- a number of threads that changes --------------------------------------------------------------------------------


def all_values(counts: list[int]) -> list[int]:
    return [number * 1000 + position for number, count in enumerate(counts) for position in range(count)]


def test_a_reading_with_one_thread_has_none_of_its_own() -> None:
    files, shared = Files([2] * FILES), SharedThreads(2)
    reading = read_ahead(files, shared)
    with shared.reading():
        for number in range(FILES):
            assert values(iter([next(reading), next(reading)])) == [number * 1000, number * 1000 + 1]
            assert files.begun == [*range(number + 1)]
            assert not threads()
    assert list(reading) == []


def test_a_reading_takes_the_threads_of_one_that_has_ended() -> None:
    files, shared = Files([1] * FILES), SharedThreads(THREADS)
    reading = read_ahead(files, shared)
    other = read_ahead(Files([1, 1]), shared)
    next(other)
    first = [next(reading), next(reading)]
    other.close()
    assert values(iter([*first, *reading])) == all_values(files.counts)
    assert set(files.readers[:2]) == {threading.get_ident()}
    assert threading.get_ident() not in files.readers[2:]


def test_a_thread_ends_its_turn_when_others_need_the_core() -> None:
    files, shared = Files([1] * FILES), SharedThreads(THREADS)
    for number in range(THREADS):
        files.held[number].clear()
    found: list[int] = []
    consumer = threading.Thread(target=lambda: found.extend(values(read_ahead(files, shared))))
    consumer.start()
    while len(files.begun) < THREADS:
        assert consumer.is_alive()
    with shared.reading():
        for number in range(THREADS):
            files.held[number].set()
        consumer.join(WAIT_S)
    assert found == all_values(files.counts)
    assert set(files.readers[THREADS:]) == {consumer.ident}


@given(
    counts=st.lists(st.integers(0, 3), min_size=2, max_size=8),
    shares=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    broken=st.none() | st.integers(0, 7),
    queued_bytes=st.sampled_from([1, 2**11, 2**27]),
)
def test_any_numbers_of_threads_give_the_same_batches(
    counts: list[int], shares: list[int], broken: int | None, queued_bytes: int
) -> None:
    class Changing(SharedThreads):
        def share(self) -> int:
            return next(turns)

    files, turns = Files(counts), itertools.cycle(shares)
    last = len(counts) if broken is None or broken >= len(counts) else broken
    if last < len(counts):
        files.errors[last] = ValueError(f"file {last}")
    found: list[int] = []
    error = None
    try:
        collect(read_ahead(files, Changing(max(2, *shares)), queued_bytes=queued_bytes), found)
    except ValueError as raised:
        error = str(raised)
    # The rows before the error are read, also those of the file that is broken.
    assert found == all_values(counts[: last + 1])
    assert error == (None if last == len(counts) else f"file {last}")
    assert not threads()
