"""The table as it is, before what follows."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from tests.log.support import live_files, put_foreign, put_vector, remove
from tests.streaming.feed_planning.support import (
    append,
    appended_paths,
    at,
    new_table,
    part_of,
    path_of,
    planner_of,
    start_of,
)
from tidelog.compaction_daemon import compact
from tidelog.log import Table
from tidelog.log.state import files
from tidelog.streaming.feed_planning import feed_planner as planner_module
from tidelog.streaming.feed_planning.feed_units import SnapshotUnits
from tidelog.streaming.feed_planning.limits import NO_LIMITS, ReadLimits
from tidelog.streaming.feed_planning.offsets import COMPLETE, Offset
from tidelog.streaming.feed_planning.query_columns import QueryColumns


def test_a_snapshot_is_read_in_parts_then_what_follows() -> None:
    table = new_table()
    append(table, 3)
    append(table, 2)
    table.delete("part = 0")
    live = {file.path for file in files.to_adds(table.refresh().at().files())}
    planner = planner_of(table)
    start = planner.snapshot_start()
    append(table, 1)
    after = appended_paths(table)[-1]
    taken, offset = [], start
    planner.table.refresh()
    for expected in [(3, 2), (3, COMPLETE), (4, COMPLETE)]:
        end = planner.advance(offset, planner.table.version, ReadLimits(files=2))
        assert at(end) == expected
        taken.append([path_of(change) for change in planner.between(offset, end)])
        # A new process finds the same files.
        again = planner_of(Table.open(table.path))
        assert [path_of(change) for change in again.between(offset, end)] == taken[-1]
        offset = Offset.from_json(json.loads(json.dumps(end.to_json())))
    assert {path for part in taken[:2] for path in part} == live
    assert taken[2] == [after]
    assert planner.advance(offset, planner.table.version, NO_LIMITS) == offset


def test_the_files_of_a_snapshot_are_listed_once_for_all_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    append(table, 4)
    listed = []

    def counted(*args: Any, **more: Any) -> SnapshotUnits:
        listed.append(args)
        return SnapshotUnits(*args, **more)

    monkeypatch.setattr(planner_module, "SnapshotUnits", counted)
    planner = planner_of(table.refresh())
    offset, triggers = planner.snapshot_start(), 0
    while offset.snapshot:
        end = planner.advance(offset, table.version, ReadLimits(files=1))
        assert len(list(planner.between(offset, end))) == 1
        offset, triggers = end, triggers + 1
    assert (triggers, len(listed)) == (4, 1)


def test_a_snapshot_keeps_its_order_after_a_checkpoint_and_a_compaction() -> None:
    table = new_table()
    for count in (2, 3, 1):
        append(table, count)
    planner = planner_of(table.refresh())
    start = planner.snapshot_start()
    end = planner.advance(start, table.version, NO_LIMITS)
    before = [path_of(change) for change in planner.between(start, end)]
    table.checkpoint()
    compact(table)
    again = planner_of(Table.open(table.path))
    assert [path_of(change) for change in again.between(start, end)] == before


def test_the_snapshot_of_an_empty_table_is_no_part_of_the_stream() -> None:
    table = new_table()
    planner = planner_of(table)
    assert planner.snapshot_start() == start_of(table, 0)


def test_files_whose_rows_are_all_deleted_count_nothing() -> None:
    table = new_table()
    append(table, 3)
    kill_rows(table, {"0", "1"})
    planner = planner_of(table.refresh())
    start = planner.snapshot_start()
    assert start.snapshot
    end = planner.advance(start, table.version, ReadLimits(files=1))
    assert [part_of(change) for change in planner.between(start, end)] == ["2"]
    assert end.is_whole
    kill_rows(table, {"2"})
    assert planner_of(table.refresh()).snapshot_start() == start_of(table, table.version)


@pytest.mark.parametrize("counts_rows", [True, False])
def test_rows_of_files_without_statistics(*, counts_rows: bool) -> None:
    table = new_table()
    table.set_properties({"delta.dataSkippingNumIndexedCols": "0"})
    append(table, 3)
    put_foreign(
        table, *(msgspec.structs.replace(file, stats=None, data_change=False) for file in live_files(table.refresh()))
    )
    planner = planner_of(table.refresh(), counts_rows=counts_rows)
    start = planner.snapshot_start()
    end = planner.advance(start, table.version, ReadLimits(rows=2))
    assert end.files == (2 if counts_rows else COMPLETE)


def kill_rows(table: Table, parts: Collection[str]) -> None:
    """Delete the only row of each file in these partitions by a vector; the files stay, as other writers leave them."""
    for file in live_files(table.refresh()):
        if file.partition_values["part"] in parts and file.deletion_vector is None:
            vector = put_vector(table.store, [0], f"vector-{file.partition_values['part']}.bin")
            put_foreign(table, remove(file), msgspec.structs.replace(file, deletion_vector=vector))


def test_a_snapshot_leaves_out_what_a_predicate_rules_out() -> None:
    table = new_table()
    append(table, 4)
    planner = planner_of(table.refresh(), columns=QueryColumns(None, "part >= 2", None))
    start = planner.snapshot_start()
    first = planner.advance(start, table.version, ReadLimits(files=1))
    second = planner.advance(first, table.version, ReadLimits(files=1))
    taken = [[part_of(change) for change in planner.between(*ends)] for ends in ((start, first), (first, second))]
    assert sorted(taken) == [["2"], ["3"]]
    assert (second.snapshot, second.files) == (False, COMPLETE)
