"""Columns that change while a stream reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.streaming.feed_planning.support import append, new_table, planner_of, start_of
from tidelog.log import Table
from tidelog.log.errors import SchemaChangedError
from tidelog.streaming.feed_planning.limits import NO_LIMITS
from tidelog.streaming.feed_planning.query_columns import QueryColumns


def test_new_columns_end_the_stream_before_their_commit_and_a_restart_continues() -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), schema_version=table.version)
    append(table, 2)
    table.add_columns([pa.field("note", pa.string())])
    append(table, 1)
    end = planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS)
    assert end.version == 2
    with pytest.raises(SchemaChangedError, match=r"version 3 of .*: note is new; load the table again") as caught:
        planner.advance(end, planner.table.version, NO_LIMITS)
    assert caught.value.version == 3
    restarted = planner_of(Table.open(table.path), schema_version=table.refresh().version)
    assert restarted.advance(end, table.version, NO_LIMITS).version == 4


@pytest.mark.parametrize(
    ("columns", "schema_version"),
    [(QueryColumns(None, None, ["n"]), 1), (QueryColumns(None, None, None), None)],
    ids=["chosen columns", "a schema of the query's own"],
)
def test_new_columns_that_the_query_does_not_read(columns: QueryColumns, schema_version: int | None) -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), columns=columns, schema_version=schema_version)
    table.add_columns([pa.field("note", pa.string())])
    append(table, 1)
    assert planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS).version == 3


def test_a_property_is_no_change_of_columns() -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), schema_version=table.version)
    table.set_properties({"delta.checkpointInterval": "50"})
    append(table, 1)
    assert planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS).version == 3
