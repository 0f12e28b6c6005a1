"""The order in which a planner considers files."""

from __future__ import annotations

from tests.compaction_daemon.support import SCHEMA, delete_rows, put
from tests.log.support import Clock, memory_store, new_table
from tidelog.compaction_daemon.planning.candidates import by_partition, candidates_of
from tidelog.log import Table


def planned_rows(table: Table) -> list[int | None]:
    """The row counts of the files of the only partition, in the planner's order."""
    (partition,) = by_partition(candidates_of(table.at().files()))
    return [file.rows for file in partition]


def test_files_are_ordered_by_time() -> None:
    clock = Clock()
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], system=clock)
    for count in (3, 2, 1):
        put(table, *range(count))
        clock.ms -= 1
    assert planned_rows(table) == [1, 2, 3]


def test_files_with_the_same_time_are_in_commit_order() -> None:
    table = new_table(memory_store(), SCHEMA, partition_by=["part"], system=Clock())
    for count in (3, 2, 1):
        put(table, *range(count))
    delete_rows(table, [0], file=1)
    assert planned_rows(table.refresh()) == [3, 2, 1]
    table.checkpoint()
    put(table, *range(4))
    for seen in (table, Table.open(table.store.url)):
        assert planned_rows(seen) == [3, 2, 1, 4]
