"""How much one micro-batch reads."""

from __future__ import annotations

import uuid

from tests.streaming.feed_planning.support import CDC, SCHEMA, append, ends, new_table, planner_of, start_of
from tidelog.log import Table
from tidelog.streaming.feed_planning.limits import NO_LIMITS, ReadLimits
from tidelog.streaming.feed_planning.offsets import COMPLETE


def sizes_of(table: Table) -> list[int]:
    planner = planner_of(table.refresh())
    end = planner.advance(start_of(table), table.version, NO_LIMITS)
    return [change.size_bytes for change in planner.between(start_of(table), end)]


def test_a_limit_of_bytes_splits_commits_but_no_file() -> None:
    table = new_table()
    append(table, 4)
    first, second, third, _ = sizes_of(table)
    planner = planner_of(table.refresh())
    assert ends(planner, ReadLimits(size_bytes=1)) == [(1, 1), (1, 2), (1, 3), (1, COMPLETE)]
    assert ends(planner, ReadLimits(size_bytes=first + second)) == [(1, 2), (1, COMPLETE)]
    assert ends(planner, ReadLimits(size_bytes=first + second + third)) == [(1, 3), (1, COMPLETE)]


def test_a_limit_of_rows_counts_live_rows() -> None:
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA)
    for _ in range(4):
        table.insert([{"part": 0, "n": n} for n in range(10)])
    planner = planner_of(table.refresh())
    assert ends(planner, ReadLimits(rows=25)) == [(2, COMPLETE), (4, COMPLETE)]
    assert ends(planner, ReadLimits(rows=9)) == [(version, COMPLETE) for version in (1, 2, 3, 4)]


def test_the_strictest_limit_holds() -> None:
    table = new_table()
    append(table, 6)
    planner = planner_of(table.refresh())
    assert ends(planner, ReadLimits(files=3, rows=2)) == [(1, 2), (1, 4), (1, COMPLETE)]
    assert ends(planner, ReadLimits(files=2, rows=3)) == [(1, 2), (1, 4), (1, COMPLETE)]


def test_rows_that_the_log_does_not_count_are_counted_in_the_file() -> None:
    """Files of change rows have no statistics. An update writes two, of ten rows each."""
    table = Table.create(f"memory://{uuid.uuid4()}", SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    table.insert([{"part": 0, "n": n} for n in range(10)])
    for value in (1, 2, 3):
        table.update("part >= 0", {"part": str(value)})
    planner = planner_of(table.refresh(), columns=CDC, counts_rows=True)
    assert ends(planner, ReadLimits(rows=30)) == [(2, COMPLETE), (3, COMPLETE), (4, COMPLETE)]
    assert ends(planner, ReadLimits(rows=50)) == [(3, COMPLETE), (4, COMPLETE)]


def test_a_commit_that_took_rows_away_and_added_rows_is_read_as_a_whole() -> None:
    """Whoever applies it in parts could delete a key that another part has just written."""
    table = new_table()
    append(table, 3)
    table.update("part >= 0", {"n": "n + 1"})
    table.overwrite([{"part": part, "n": 9} for part in range(3)])
    table.delete("part >= 0")
    planner = planner_of(table.refresh(), columns=CDC)
    # Inserts alone and deletes alone are split.
    whole, parts = [(2, COMPLETE), (3, COMPLETE)], [1, 2, COMPLETE]
    assert ends(planner, ReadLimits(files=1)) == [
        *[(1, part) for part in parts],
        *whole,
        *[(4, part) for part in parts],
    ]
