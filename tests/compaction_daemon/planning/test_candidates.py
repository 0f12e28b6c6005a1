"""The order in which a planner considers files."""

from __future__ import annotations

from tests.compaction_daemon.support import SCHEMA, delete_rows, live_files, put
from tests.log.support import Clock, memory_store, new_table
from tidelog.compaction_daemon.planning.candidates import by_partition, candidates_of
from tidelog.log import Table


def planned_rows(table: Table) -> list[int | None]:
    """The row counts of the files of the only partition, in the planner's order."""
    (partition,) = by_partition(candidates_of(table.refresh().at().files()))
    return [file.rows for file in partition]


def test_files_are_ordered_by_their_time_even_after_a_deletion_vector() -> None:
    clock = Clock()
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], system=clock)
    for count in (3, 2, 1):
        put(table, *range(count))
        clock.ms += 1
    delete_rows(table, [0], file=0)
    assert [add.deletion_vector is not None for add in live_files(table)] == [False, False, True]
    assert planned_rows(table) == [3, 2, 1]


def test_files_of_the_same_time_are_in_log_order() -> None:
    """A standing clock: the order must come from the log, in which a new deletion vector moves a file to the end."""
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], system=Clock())
    for count in (3, 2, 1):
        put(table, *range(count))
    assert planned_rows(table) == [3, 2, 1]
    delete_rows(table, [0], file=0)
    assert planned_rows(table) == [2, 1, 3]
    assert planned_rows(Table.open(table.store.url)) == [2, 1, 3]
    table.checkpoint()
    assert planned_rows(Table.open(table.store.url)) == [2, 1, 3]
    put(table, *range(4))
    assert planned_rows(Table.open(table.store.url)) == [2, 1, 3, 4]
