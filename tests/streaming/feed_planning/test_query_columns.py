"""Columns that change while a stream reads them."""

from __future__ import annotations

import uuid

import msgspec
import pyarrow as pa
import pytest

from tests.log.support import put_foreign
from tests.streaming.feed_planning.support import SCHEMA, append, loaded, new_table, planner_of, start_of
from tidelog.log import Table
from tidelog.log.errors import SchemaChangedError
from tidelog.log.format.schema import to_schema_string
from tidelog.streaming.feed_planning.limits import NO_LIMITS
from tidelog.streaming.feed_planning.query_columns import QueryColumns


def test_new_columns_end_the_stream_before_their_commit_and_a_restart_continues() -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), loaded=loaded(table))
    append(table, 2)
    table.add_columns([pa.field("note", pa.string())])
    append(table, 1)
    end = planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS)
    assert end.version == 2
    with pytest.raises(SchemaChangedError, match=r"version 3 of .*: note is new; load the table again") as caught:
        planner.advance(end, planner.table.version, NO_LIMITS)
    assert caught.value.version == 3
    restarted = planner_of(Table.open(table.path), loaded=loaded(table.refresh()))
    assert restarted.advance(end, table.version, NO_LIMITS).version == 4


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [(QueryColumns(None, None, ["n"]), False), (QueryColumns(None, None, None), True)],
    ids=["chosen columns", "a schema of the query's own"],
)
def test_new_columns_that_the_query_does_not_read(columns: QueryColumns, *, chosen: bool) -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), columns=columns, loaded=None if chosen else loaded(table))
    table.add_columns([pa.field("note", pa.string())])
    append(table, 1)
    assert planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS).version == 3


@pytest.mark.parametrize("start", [0, 1, 3], ids=["before the change", "right before it", "after it"])
def test_a_query_that_is_started_again_without_a_new_load(start: int) -> None:
    table = new_table()
    append(table, 1)
    columns = loaded(table.refresh())
    table.add_columns([pa.field("note", pa.string())])
    append(table, 1)
    with pytest.raises(SchemaChangedError, match=r"version 3 of .*: note is new; load the table again"):
        planner_of(table.refresh(), loaded=columns).advance(start_of(table, start), table.version, NO_LIMITS)


def test_a_column_that_is_gone_by_now_is_read_from_the_commits_before() -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), loaded=loaded(table))
    append(table, 1)
    without = [field for field in SCHEMA if field.name != "n"]
    schema_string = to_schema_string(pa.schema(without))
    put_foreign(table, msgspec.structs.replace(table.head.metadata, schema_string=schema_string))
    planner.table.refresh()
    end = planner.advance(start_of(table), planner.table.version, NO_LIMITS)
    assert (end.version, planner.table_schema) == (2, SCHEMA)


def test_a_wider_type_ends_the_stream_before_its_commit_and_a_restart_continues() -> None:
    schema = pa.schema([("part", pa.int64()), ("n", pa.int32())])
    table = Table.create(f"memory://{uuid.uuid4()}", schema, properties={"delta.enableTypeWidening": True})
    append(table, 1)
    planner = planner_of(table.refresh(), loaded=loaded(table))
    append(table, 1)
    rows = pa.table({"part": [0], "n": [2**40]})
    transaction = table.begin()
    transaction.evolve(rows.schema)
    transaction.insert(rows).commit()
    end = planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS)
    assert end.version == 2
    with pytest.raises(SchemaChangedError, match=r"version 3 of .*: n was int32 and is int64; load the table again"):
        planner.advance(end, planner.table.version, NO_LIMITS)
    restarted = planner_of(Table.open(table.path), loaded=loaded(table.refresh()))
    assert restarted.advance(start_of(table), table.version, NO_LIMITS).version == 3


def test_a_property_is_no_change_of_columns() -> None:
    table = new_table()
    append(table, 1)
    planner = planner_of(table.refresh(), loaded=loaded(table))
    table.set_properties({"delta.checkpointInterval": "50"})
    append(table, 1)
    assert planner.advance(start_of(table), planner.table.refresh().version, NO_LIMITS).version == 3
