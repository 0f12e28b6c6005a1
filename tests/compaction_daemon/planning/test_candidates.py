"""The order in which a planner considers files, and what it knows of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.compaction_daemon.planning.planned_tables import File, table_of
from tests.compaction_daemon.support import SCHEMA, delete_rows, put
from tests.log.support import Clock, memory_store, new_table
from tidelog.compaction_daemon import plan
from tidelog.compaction_daemon.planning.candidates import UNKNOWN, Files, files_of
from tidelog.compaction_daemon.planning.history import ScopeKey
from tidelog.compaction_daemon.planning.plan import CLUSTERED_TAG, cluster_tag
from tidelog.log import Table
from tidelog.log.format.statistics import num_records


def planned_rows(table: Table) -> list[int | None]:
    """The row counts of the files of the only group, in the planner's order."""
    (group,) = plan(table, "major", purge=True).groups
    return [num_records(add.stats) for add in group.inputs]


def files(entries: Sequence[File], named: Sequence[ScopeKey] = (), clustered: bool = False) -> Files:
    tags = {CLUSTERED_TAG: cluster_tag(("n",), "sort")} if clustered else None
    return files_of(table_of(entries).at().files(), ("part",), 1000, tags, named)


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


def test_partitions_are_numbered_in_the_order_of_their_first_files() -> None:
    parts = ["b", "a", None, "b", "", "c", "a"]
    found = files([File(1, at=1, part=part) for part in parts])
    assert found.scopes.tolist() == [0, 1, 2, 0, 2, 3, 1], "the empty text is null"
    assert found.num_scopes == 4
    assert found.first_of(np.array([3, 0, 2])).tolist() == [5, 0, 2]
    assert found.sum_by_scope(found.sizes).tolist() == [2, 2, 2, 1]


def test_partitions_that_the_caller_names_are_found() -> None:
    named = [(("part", "a"),), (("part", "nothing"),), (("part", None),)]
    assert files([File(1, at=1, part=part) for part in ("b", "a", None)], named).named.tolist() == [1, UNKNOWN, 2]
    assert files([], named).named.tolist() == [UNKNOWN] * 3
    unpartitioned = files_of(table_of([File(1, at=1)]).at().files(), (), 1000, None, [()])
    assert (unpartitioned.scopes.tolist(), unpartitioned.named.tolist()) == ([0], [0])


def test_dead_rows_and_their_bytes() -> None:
    entries = [
        File(900, at=1, rows=100, dead=9),
        File(900, at=1, rows=100, dead=10),
        File(10, at=1, rows=7, dead=7),
        File(900, at=1, dead=1),
        File(900, at=1, rows=100),
    ]
    found = files(entries)
    assert found.dead_bytes.tolist() == [81, 90, 10, 0, 0]
    assert found.rows.tolist() == [100, 100, 7, UNKNOWN, UNKNOWN], "rows are read where some are dead"
    assert found.all_dead.tolist() == [False, False, True, False, False]
    assert found.worth(purge=False).tolist() == [False, True, True, True, False]
    assert found.worth(purge=True).tolist() == [True, True, True, True, False]


def test_files_with_another_clustering_are_unclustered() -> None:
    entries = [File(1, at=1), File(1, at=1, clustered=("n",)), File(1, at=1, clustered=("other",))]
    assert files(entries, clustered=True).unclustered.tolist() == [True, False, True]
    assert files(entries).unclustered.tolist() == [False, False, False]
