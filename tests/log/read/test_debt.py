"""Table debt: small files, dead rows and the log tail."""

from __future__ import annotations

import time

import pyarrow as pa

from tests.log.faults import Counting
from tests.log.support import add, memory_store, new_table, numbers, put_foreign, put_vector, reopen
from tidelog.log import Debt
from tidelog.log.format import filenames
from tidelog.log.read.debt import debt_of
from tidelog.log.state.files import EMPTY, FileState, add_table
from tidelog.log.state.loader import LogState

TARGET = 1000


def test_a_new_table_has_no_debt_but_one_commit() -> None:
    assert new_table(memory_store()).debt() == Debt(0, 0, 0, 0, 0, 1)


def test_files_below_three_quarters_of_the_target_size_are_small() -> None:
    table = new_table(memory_store(), properties={"tidelog.targetFileSize": TARGET})
    put_foreign(table, add("a", size=749), add("b", size=750), add("c", size=1), add("d", size=5000))
    found = table.refresh().debt()
    assert (found.files, found.small_files, found.small_bytes) == (4, 2, 750)


def test_dead_rows_are_counted_from_deletion_vectors() -> None:
    store = memory_store()
    table = new_table(store)
    first, second = put_vector(store, [0, 3, 9], "one.bin"), put_vector(store, [5], "two.bin")
    put_foreign(table, add("a", deletion_vector=first), add("b"), add("c", deletion_vector=second))
    found = table.refresh().debt()
    assert (found.dead_rows, found.dead_row_files) == (4, 2)
    table.truncate()
    assert (table.debt().dead_rows, table.debt().dead_row_files) == (0, 0)


def test_debt_is_that_of_the_loaded_version() -> None:
    table = new_table(memory_store())
    table.insert(numbers([1]))
    behind = reopen(table)
    table.insert(numbers([2]))
    assert (behind.debt().files, behind.debt().log_tail) == (1, 2)
    assert (table.debt().files, table.debt().log_tail) == (2, 3)


def test_the_log_tail_is_counted_without_a_listing() -> None:
    store = Counting(memory_store())
    table = new_table(store)
    for value in range(3):
        table.insert(numbers([value]))
    behind = reopen(table)
    table.checkpoint()
    assert table.debt().log_tail == 0
    table.insert(numbers([3]))
    table.debt()
    listed = store.lists
    assert table.debt().log_tail == table.commits_since_checkpoint() == 1
    assert store.lists == listed + 1, "only commits_since_checkpoint lists"
    table.insert(numbers([4]))
    table.checkpoint()
    assert behind.debt().log_tail == behind.commits_since_checkpoint() == 0, "the checkpoint is of the loaded version"


def test_the_log_is_listed_without_a_valid_checkpoint_pointer() -> None:
    store = memory_store()
    table = new_table(store)
    table.insert(numbers([1]))
    table.checkpoint()
    table.insert(numbers([2]))
    for content in (b"no json", b"[]", b'{"version": "1"}', b'{"version": 77}', b'{"version": -1}'):
        store.replace(filenames.LAST_CHECKPOINT, content)
        assert table.debt().log_tail == 1
    store.delete(filenames.LAST_CHECKPOINT)
    assert table.debt().log_tail == 1


def test_debt_of_a_million_files_takes_milliseconds() -> None:
    table = new_table(memory_store())
    few = add_table([add("a", size=1), add("b", deletion_vector=put_vector(table.store, [1, 2], "v.bin"))] * 1000)
    many = pa.concat_tables([few] * 500).combine_chunks()
    state = LogState(table.store, table._state.head, FileState(many, EMPTY.removes), ())
    started = time.process_time()
    found = debt_of(table.store, state)
    seconds = time.process_time() - started
    assert (found.files, found.small_files, found.dead_rows) == (1_000_000, 1_000_000, 1_000_000)
    # About ten times what it takes; a Python object for each file would take far longer.
    assert seconds < 0.5, seconds
